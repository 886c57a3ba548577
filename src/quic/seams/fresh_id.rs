//! Another of the peer's connection IDs (RFC 9000 section 9.5), and whether there was one.
//!
//! quinn-proto takes the next ID when it is told that the local address has changed, and does not say
//! when there is none. A path that is asked or used with an old ID can be linked with the one before.
//!
//! Assumed of quinn-proto: it tells its endpoint of the reset token that comes with a new ID, at once
//! and in one event; without a new ID it tells nothing.

use quinn_proto::{self as quinn, ConnectionHandle};

/// Goes over to the next ID. False when there is none.
pub fn take(
    endpoint: &mut quinn::Endpoint,
    handle: ConnectionHandle,
    connection: &mut quinn::Connection,
) -> bool {
    connection.local_address_changed();
    let mut is_fresh = false;
    while let Some(event) = connection.poll_endpoint_events() {
        is_fresh = true;
        if let Some(event) = endpoint.handle_event(handle, event) {
            connection.handle_event(event);
        }
    }
    is_fresh
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seams::bare::Bare;

    /// How many events come of a local address that has changed.
    fn reported(bare: &mut Bare) -> usize {
        let client = bare.client.connection();
        client.local_address_changed();
        std::iter::from_fn(|| client.poll_endpoint_events()).count()
    }

    #[test]
    fn bare_quinn_tells_of_a_fresh_id_as_long_as_there_is_one() {
        let mut bare = Bare::connected(quinn::TransportConfig::default());
        let header = |bare: &mut Bare| {
            bare.client.connection().ping();
            bare.client.transmit(bare.now);
            bare.client.spy.last_sealed().header[1..9].to_vec()
        };
        let mut seen = vec![header(&mut bare)];
        while bare.client.take_fresh_id() {
            let id = header(&mut bare);
            assert!(!seen.contains(&id), "it is another one");
            seen.push(id);
            assert!(seen.len() < 20, "the peer gives no more than a few");
        }
        assert!(seen.len() > 1);
        assert_eq!(seen.last(), Some(&header(&mut bare)), "there was none");
        assert_eq!(reported(&mut bare), 0);
        assert_eq!(
            reported(&mut Bare::connected(quinn::TransportConfig::default())),
            1
        );
    }
}
