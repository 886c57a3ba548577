//! An `Incoming` of quinn-proto that is dropped leaks its entry in the endpoint.
//!
//! So each `Incoming` is passed to `accept`, `refuse`, `retry` or `ignore` (`quic::endpoint::accept`), even one that
//! still waits when the endpoint itself is dropped (`quic::endpoint::session_lookup_wait`).
//!
//! Assumed of quinn-proto: datagrams after a first packet are kept until its `Incoming` is accepted, refused, retried
//! or ignored, even after a drop; `ignore` frees all of it.
//!
//! This file has only the test.

#[cfg(test)]
mod tests {
    use crate::workarounds::bare_quinn::BareQuinn;

    /// A server that has received two datagrams of a client and has not accepted it yet.
    fn waiting() -> BareQuinn {
        let mut bare = BareQuinn::begin(1, quinn_proto::TransportConfig::default());
        bare.server.pending_accepts = Some(Vec::new());
        let first = bare.client.transmit(bare.now);
        for _ in 0..2 {
            first.iter().for_each(|datagram| bare.server_gets(datagram));
        }
        assert_eq!(bare.server.pending_accepts.as_ref().unwrap().len(), 1);
        assert!(bare.server.endpoint.incoming_buffer_bytes() > 0);
        bare
    }

    #[test]
    fn bare_quinn_leaks_the_packets_of_a_dropped_incoming() {
        let mut bare = waiting();
        let kept = bare.server.endpoint.incoming_buffer_bytes();
        bare.server.pending_accepts = Some(Vec::new());
        assert_eq!(bare.server.endpoint.incoming_buffer_bytes(), kept);
        // The server drops further datagrams of the client.
        bare.sleep(std::time::Duration::from_secs(2));
        let again = bare.client.transmit(bare.now);
        assert!(!again.is_empty());
        again.iter().for_each(|datagram| bare.server_gets(datagram));
        assert!(bare.server.pending_accepts.as_ref().unwrap().is_empty());
        assert!(bare.server.endpoint.incoming_buffer_bytes() > kept);
    }

    #[test]
    fn bare_quinn_frees_an_ignored_incoming() {
        let mut bare = waiting();
        for incoming in bare.server.pending_accepts.take().unwrap() {
            bare.server.endpoint.ignore(incoming);
        }
        assert_eq!(bare.server.endpoint.incoming_buffer_bytes(), 0);
    }
}
