//! Detects when the peer has received the first bytes of a stream.
//!
//! The state machine reports only when all of a stream is acknowledged. But it keeps written data until that data is
//! acknowledged, and no longer. So once our reference to the bytes is the only one, the peer has them.
//!
//! Assumed of quinn-proto: it keeps a written piece as one buffer, whole or cut; it drops the buffer when all of it is
//! acknowledged, and before that only with its stream.

use bytes::Bytes;
use quinn_proto as quinn;

/// The first bytes of a stream, from the time they wait to be written until the stream is forgotten.
#[derive(Debug)]
pub struct Head {
    bytes: Bytes,
    /// The number of written bytes.
    taken: usize,
}

impl Head {
    /// The caller must hold no other reference to the bytes.
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes, taken: 0 }
    }

    pub fn is_waiting(&self) -> bool {
        self.taken < self.bytes.len()
    }

    /// Writes the rest as the stream's first data.
    pub fn hand_over(
        &mut self,
        stream: &mut quinn::SendStream<'_>,
    ) -> Result<(), quinn::WriteError> {
        while self.is_waiting() {
            let mut left = [self.bytes.slice(self.taken..)];
            self.taken += stream.write_chunks(&mut left)?.bytes;
        }
        Ok(())
    }

    /// True if the peer has acknowledged all of the head.
    pub fn is_delivered(&self) -> bool {
        !self.is_waiting() && self.bytes.is_unique()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quinn_proto::{self as quinn, Dir, StreamId};

    use super::*;
    use crate::seams::bare_quinn::BareQuinn;

    /// A client's stream with a head and more data after it.
    fn begun(bare: &mut BareQuinn) -> (StreamId, Head) {
        let client = bare.client.connection();
        let id = client.streams().open(Dir::Uni).unwrap();
        let mut head = Head::new(Bytes::from(b"head".to_vec()));
        head.hand_over(&mut client.send_stream(id)).unwrap();
        client.send_stream(id).write(b"and what follows").unwrap();
        (id, head)
    }

    #[test]
    fn bare_quinn_keeps_a_piece_until_it_is_acknowledged() {
        let mut bare = BareQuinn::connected(quinn::TransportConfig::default());
        let (_, head) = begun(&mut bare);
        assert!(!head.is_waiting() && !head.is_delivered());
        // The packet is lost, and so are all retransmissions for a while.
        for _ in 0..3 {
            bare.client.transmit(bare.now);
            bare.sleep(Duration::from_secs(2));
            assert!(!head.is_delivered());
        }
        bare.exchange();
        bare.sleep(Duration::from_millis(30));
        bare.exchange();
        assert!(head.is_delivered());
    }

    #[test]
    fn a_head_that_the_peers_credit_cuts_is_delivered_when_all_of_it_is() {
        let mut transport = quinn::TransportConfig::default();
        transport.receive_window(3u8.into());
        let mut bare = BareQuinn::connected(transport);
        let client = bare.client.connection();
        let id = client.streams().open(Dir::Uni).unwrap();
        let mut head = Head::new(Bytes::from(b"head".to_vec()));
        let handed_over = head.hand_over(&mut client.send_stream(id));
        assert_eq!(handed_over, Err(quinn::WriteError::Blocked));
        bare.exchange();
        bare.sleep(Duration::from_millis(30));
        bare.exchange();
        assert!(head.is_waiting() && !head.is_delivered());
        let mut stream = bare.server.connection().recv_stream(id);
        let mut chunks = stream.read(true).unwrap();
        assert_eq!(chunks.next(9).unwrap().unwrap().bytes, "hea");
        let _ = chunks.finalize();
        bare.exchange();
        let client = bare.client.connection();
        head.hand_over(&mut client.send_stream(id)).unwrap();
        assert!(!head.is_delivered());
        bare.exchange();
        bare.sleep(Duration::from_millis(30));
        bare.exchange();
        assert!(head.is_delivered());
    }
}
