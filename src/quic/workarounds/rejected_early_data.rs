//! Handles a client's 0-RTT data (RFC 9001 section 4.6) that the server rejects, and limits DATAGRAM frames in 0-RTT
//! packets to a size that quinn-proto can send.
//!
//! This crate keeps early data until the server has accepted or rejected it (`quic::streams::early_data`,
//! `quic::connection::datagram_frame_sender`), and sends it again if quinn-proto has discarded it.
//!
//! Assumed of quinn-proto:
//!
//! - It discards a rejected flight: its streams are unopened and their data is gone. The only report is
//!   `accepted_0rtt`, which is valid when the connection is established.
//! - After a Retry it sends stream data again, but no DATAGRAM frames that have left.
//! - After a rejection and after a Retry, it still sends DATAGRAM frames that were in its buffer.
//! - It accepts a DATAGRAM frame that fits in a 1-RTT packet but not in a 0-RTT packet, whose header is longer. It
//!   cannot send such a frame until it has 1-RTT keys.
//! - It panics if a session has 0-RTT keys but not the server's remembered transport parameters.

use quinn_proto::{self as quinn, TransportError, transport_parameters::TransportParameters};

/// True if quinn-proto may use 0-RTT keys, because the server's remembered transport parameters can be read.
pub fn may_begin(parameters: &Result<Option<TransportParameters>, TransportError>) -> bool {
    matches!(parameters, Ok(Some(_)))
}

/// True if the server has accepted 0-RTT data, on a client whose handshake is complete. `None` if there was none.
pub fn is_accepted(conn: &quinn::Connection) -> Option<bool> {
    conn.has_0rtt().then(|| conn.accepted_0rtt())
}

/// The number of DATAGRAM frames that were sent so far. quinn-proto sends them in the order in which they were
/// queued.
pub fn datagrams_sent(conn: &quinn::Connection) -> u64 {
    conn.stats().frame_tx.datagram
}

/// The largest payload of a DATAGRAM frame in a 0-RTT packet. `None` if the server accepts no DATAGRAM frames.
pub fn datagram_size_max(conn: &mut quinn::Connection) -> Option<usize> {
    let max = conn.datagrams().max_size()?;
    Some(max.min(SIZE_IN_0RTT))
}

/// The largest payload in a 0-RTT packet of 1,200 bytes. The header has up to 53 bytes (two connection IDs of 20),
/// the tag 16, and quinn-proto begins no frame if fewer than 9 bytes are left.
const SIZE_IN_0RTT: usize = 1_200 - 53 - 16 - 9;

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::Ordering;

    use bytes::Bytes;
    use quinn_proto::{Dir, StreamEvent, StreamId};

    use crate::workarounds::bare_quinn::BareQuinn;

    fn resuming() -> BareQuinn {
        let mut transport = quinn::TransportConfig::default();
        transport.datagram_receive_buffer_size(Some(1 << 20));
        BareQuinn::resuming(transport)
    }

    /// Opens a stream on the client and writes `data`.
    fn write(bare: &mut BareQuinn, data: &[u8]) -> StreamId {
        let client = bare.client.connection();
        let stream = client.streams().open(Dir::Uni).unwrap();
        assert_eq!(client.send_stream(stream).write(data), Ok(data.len()));
        stream
    }

    fn send_datagram(bare: &mut BareQuinn, data: &'static [u8]) {
        let data = Bytes::from_static(data);
        bare.client
            .connection()
            .datagrams()
            .send(data, false)
            .unwrap();
    }

    /// Delivers the first flight to the server, and the server's answer to the client.
    fn answered(bare: &mut BareQuinn, flight: &[Vec<u8>]) {
        flight
            .iter()
            .for_each(|datagram| bare.server_gets(datagram));
        let answer = bare.server.transmit(bare.now);
        answer
            .iter()
            .for_each(|datagram| bare.client_gets(datagram));
        bare.exchange();
    }

    fn datagrams_received(bare: &mut BareQuinn) -> Vec<Bytes> {
        let server = bare.server.connection();
        std::iter::from_fn(|| server.datagrams().recv()).collect()
    }

    /// The data of the client's first stream that has arrived at the server.
    fn received(bare: &mut BareQuinn) -> Option<Bytes> {
        let server = bare.server.connection();
        let stream = server.streams().accept(Dir::Uni)?;
        let mut incoming = server.recv_stream(stream);
        let mut chunks = incoming.read(true).unwrap();
        let chunk = chunks.next(usize::MAX).unwrap();
        let _ = chunks.finalize();
        chunk.map(|chunk| chunk.bytes)
    }

    #[test]
    fn bare_quinn_keeps_accepted_0rtt_data() {
        let mut bare = resuming();
        write(&mut bare, b"early");
        send_datagram(&mut bare, b"early");
        bare.exchange();
        assert_eq!(is_accepted(bare.client.connection()), Some(true));
        assert_eq!(received(&mut bare).unwrap(), "early");
        assert_eq!(datagrams_received(&mut bare), ["early"]);
    }

    #[test]
    fn bare_quinn_discards_rejected_0rtt_data_except_unsent_datagrams() {
        let mut bare = resuming();
        bare.forget_sessions();
        let first = write(&mut bare, b"early");
        send_datagram(&mut bare, b"sent");
        let first_flight = bare.client.transmit(bare.now);
        assert_eq!(datagrams_sent(bare.client.connection()), 1);
        send_datagram(&mut bare, b"not sent");
        bare.client.events.clear();
        answered(&mut bare, &first_flight);
        let client = bare.client.connection();
        assert!(!client.is_handshaking());
        assert_eq!(is_accepted(client), Some(false));
        // The client's stream from the rejected flight does not exist any more, and the next stream that is opened gets
        // its ID.
        assert!(client.send_stream(first).write(b"more").is_err());
        assert_eq!(client.streams().open(Dir::Uni), Some(first));
        let is_of_stream = |event: &quinn::Event| match event {
            quinn::Event::Stream(event) => !matches!(event, StreamEvent::Available { .. }),
            _ => false,
        };
        assert!(!bare.client.events.iter().any(is_of_stream));
        assert_eq!(received(&mut bare), None);
        assert_eq!(datagrams_received(&mut bare), ["not sent"]);
    }

    #[test]
    fn bare_quinn_resends_streams_but_no_datagrams_after_a_retry() {
        let mut bare = resuming();
        bare.server.retries = true;
        write(&mut bare, b"early");
        send_datagram(&mut bare, b"sent");
        let first_flight = bare.client.transmit(bare.now);
        assert_eq!(datagrams_sent(bare.client.connection()), 1);
        send_datagram(&mut bare, b"not sent");
        answered(&mut bare, &first_flight);
        assert!(!bare.client.connection().is_handshaking());
        assert_eq!(received(&mut bare).unwrap(), "early");
        assert_eq!(datagrams_received(&mut bare), ["not sent"]);
    }

    /// Returns how many datagrams of `size` bytes quinn-proto sends as 0-RTT data.
    fn sent_early(size: usize) -> u64 {
        let mut bare = resuming();
        for _ in 0..2 {
            let data = Bytes::from(vec![0; size]);
            let client = bare.client.connection();
            client.datagrams().send(data, false).unwrap();
        }
        bare.client.transmit(bare.now);
        datagrams_sent(bare.client.connection())
    }

    #[test]
    fn bare_quinn_accepts_datagrams_too_large_for_a_0rtt_packet() {
        let mut bare = resuming();
        let claimed = bare.client.connection().datagrams().max_size().unwrap();
        let fits = datagram_size_max(bare.client.connection()).unwrap();
        assert!(fits < claimed);
        assert_eq!(sent_early(fits), 2);
        assert_eq!(sent_early(claimed), 0);
    }

    #[test]
    fn bare_quinn_panics_without_the_tickets_transport_parameters() {
        let mut bare = BareQuinn::connected(quinn::TransportConfig::default());
        assert!(!may_begin(&Ok(None)));
        bare.client
            .spy
            .hides_parameters
            .store(true, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| bare.dial())).is_err());
    }
}
