//! New connections that wait until somebody has decided about them: nothing of them may be dropped.
//!
//! An `Incoming` of quinn-proto is a place in its endpoint, and dropping it gives nothing back. So each one is passed
//! to `accept`, `refuse`, `retry` or `ignore` on every way (`quic::endpoint::accept`), also of those that wait
//! (`quic::endpoint::pending_accepts`) when the endpoint itself goes.
//!
//! Assumed of quinn-proto: what follows a first packet is kept for as long as its `Incoming` is neither accepted nor
//! refused, sent a Retry nor ignored, even when that was dropped; `ignore` gives all of it back.
//!
//! There is nothing here but the question; what is done about it are calls in those two files.

#[cfg(test)]
mod tests {
    use crate::seams::bare::Bare;

    /// A server that has two datagrams of a client that is not let in yet.
    fn waiting() -> Bare {
        let mut bare = Bare::begin(1, quinn_proto::TransportConfig::default());
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
        // Its client is not heard any more, whatever it sends.
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
