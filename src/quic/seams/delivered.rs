//! The first bytes of a stream, of which it is known when the peer has them.
//!
//! The state machine says when all of a stream was acknowledged, and nothing before that. But it keeps what it
//! was given until that is acknowledged, and no longer: so once nobody but us has the bytes, the peer does.
//!
//! Assumed of quinn-proto: a piece that it takes stays one by itself, whole or cut; it is let go when all of it
//! was acknowledged, and before that only with its stream.

use bytes::Bytes;
use quinn_proto as quinn;

/// What a stream begins with, from when it waits to be handed over until its stream is forgotten.
#[derive(Debug)]
pub struct Head {
    bytes: Bytes,
    /// So much of it was handed over.
    taken: usize,
}

impl Head {
    /// The bytes have to be nobody else's.
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes, taken: 0 }
    }

    pub fn is_waiting(&self) -> bool {
        self.taken < self.bytes.len()
    }

    /// Hands over what is left of it, as the stream's first data.
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

    /// True if the peer has acknowledged all of it.
    pub fn is_delivered(&self) -> bool {
        !self.is_waiting() && self.bytes.is_unique()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quinn_proto::{self as quinn, Dir, StreamId};

    use super::*;
    use crate::seams::bare::Bare;

    /// A client's stream that begins with a head, and has more behind it.
    fn begun(bare: &mut Bare) -> (StreamId, Head) {
        let client = bare.client.connection();
        let id = client.streams().open(Dir::Uni).unwrap();
        let mut head = Head::new(Bytes::from(b"head".to_vec()));
        head.hand_over(&mut client.send_stream(id)).unwrap();
        client.send_stream(id).write(b"and what follows").unwrap();
        (id, head)
    }

    #[test]
    fn bare_quinn_keeps_a_piece_until_it_is_acknowledged() {
        let mut bare = Bare::connected(quinn::TransportConfig::default());
        let (_, head) = begun(&mut bare);
        assert!(!head.is_waiting() && !head.is_delivered());
        // It is lost, with all that is sent again until it is not.
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
        let mut bare = Bare::connected(transport);
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
