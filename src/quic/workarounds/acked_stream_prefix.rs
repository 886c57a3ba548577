//! Detects when the peer has acknowledged the first bytes of a stream.
//!
//! quinn-proto reports only when all of a stream is acknowledged. But it keeps a reference to written data until that
//! data is acknowledged. So when this file's reference to the bytes is the only one left, the peer has them.
//!
//! Assumed of quinn-proto: it keeps a written piece as one buffer, whole or cut; it drops the buffer when all of it
//! is acknowledged, and before that only with its stream.

use bytes::Bytes;
use quinn_proto as quinn;

/// The first bytes of a stream, from the time they wait to be written until the stream is forgotten.
#[derive(Debug)]
pub struct Head {
    bytes: Bytes,
    /// The number of bytes that were written to quinn-proto.
    taken: usize,
}

impl Head {
    /// The caller must keep no other reference to `bytes`.
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes, taken: 0 }
    }

    pub fn is_waiting(&self) -> bool {
        self.taken < self.bytes.len()
    }

    /// Writes the remaining bytes to quinn-proto, before any other data of the stream.
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

    /// True if the peer has acknowledged all of the bytes.
    pub fn is_delivered(&self) -> bool {
        !self.is_waiting() && self.bytes.is_unique()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quinn_proto::{self as quinn, Dir, StreamId};

    use super::*;
    use crate::workarounds::bare_quinn::BareQuinn;

    /// Opens a client's stream and writes a head and more data.
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
        // The test drops the packet and its retransmissions.
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
    fn a_head_cut_by_flow_control_counts_when_all_of_it_is_acked() {
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
