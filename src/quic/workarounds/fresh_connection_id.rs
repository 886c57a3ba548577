//! Switches to another connection ID of the peer (RFC 9000 section 9.5), and reports if there was one.
//!
//! A path that is used with an old connection ID can be linked with the previous path. quinn-proto takes the next ID
//! on `local_address_changed`, and does not report if there is none.
//!
//! Assumed of quinn-proto: for a new ID it emits one endpoint event at once, with the reset token; without a new ID
//! it emits none.

use quinn_proto::{self as quinn, ConnectionHandle};

/// Switches to another connection ID of the peer. Returns false if the peer has provided none.
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
    use crate::workarounds::bare_quinn::BareQuinn;

    /// How many events a change of the local address emits.
    fn reported(bare: &mut BareQuinn) -> usize {
        let client = bare.client.connection();
        client.local_address_changed();
        std::iter::from_fn(|| client.poll_endpoint_events()).count()
    }

    #[test]
    fn bare_quinn_emits_one_event_for_each_fresh_connection_id() {
        let mut bare = BareQuinn::connected(quinn::TransportConfig::default());
        let header = |bare: &mut BareQuinn| {
            bare.client.connection().ping();
            bare.client.transmit(bare.now);
            bare.client.spy.last_sealed().header[1..9].to_vec()
        };
        let mut seen = vec![header(&mut bare)];
        while bare.client.take_fresh_id() {
            let id = header(&mut bare);
            assert!(!seen.contains(&id), "the ID was not used before");
            seen.push(id);
            assert!(seen.len() < 20, "the peer issues only a few");
        }
        assert!(seen.len() > 1);
        assert_eq!(seen.last(), Some(&header(&mut bare)), "no ID was left");
        assert_eq!(reported(&mut bare), 0);
        assert_eq!(
            reported(&mut BareQuinn::connected(quinn::TransportConfig::default())),
            1
        );
    }
}
