//! New connections that wait for a decision must not be dropped.
//!
//! An `Incoming` of quinn-proto holds an entry in its endpoint, and dropping it does not free the entry. So each one is
//! passed to `accept`, `refuse`, `retry` or `ignore` on every path (`quic::endpoint::accept`), even those that wait
//! (`quic::endpoint::pending_accepts`) when the endpoint itself is dropped.
//!
//! Assumed of quinn-proto: datagrams after a first packet are kept until its `Incoming` is accepted, refused, retried
//! or ignored, even after a drop; `ignore` frees all of it.
//!
//! This file has only the test; the calls are in those two files.

#[cfg(test)]
mod tests {
    use crate::seams::bare_quinn::BareQuinn;

    /// A server with two datagrams of a client that is not accepted yet.
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
    fn bare_quinn_keeps_what_belongs_to_an_incoming_that_was_dropped() {
        let mut bare = waiting();
        let kept = bare.server.endpoint.incoming_buffer_bytes();
        bare.server.pending_accepts = Some(Vec::new());
        assert_eq!(bare.server.endpoint.incoming_buffer_bytes(), kept);
        // Further datagrams of the client are dropped.
        bare.sleep(std::time::Duration::from_secs(2));
        let again = bare.client.transmit(bare.now);
        assert!(!again.is_empty());
        again.iter().for_each(|datagram| bare.server_gets(datagram));
        assert!(bare.server.pending_accepts.as_ref().unwrap().is_empty());
        assert!(bare.server.endpoint.incoming_buffer_bytes() > kept);
    }

    #[test]
    fn bare_quinn_keeps_nothing_of_one_that_is_ignored() {
        let mut bare = waiting();
        for incoming in bare.server.pending_accepts.take().unwrap() {
            bare.server.endpoint.ignore(incoming);
        }
        assert_eq!(bare.server.endpoint.incoming_buffer_bytes(), 0);
    }
}
