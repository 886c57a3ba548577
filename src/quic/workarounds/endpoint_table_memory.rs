//! The memory of quinn-proto's tables after a peak of connections.
//!
//! quinn-proto's endpoint never shrinks its tables. So an endpoint without connections is replaced by a new one with
//! the same configuration (`quic::endpoint::connection_table`).
//!
//! Assumed of quinn-proto: its tables never shrink, which the test below checks; and an endpoint without connections
//! and pending accepts has no state that a new one would lack, which follows from the fields of its `Endpoint` (the
//! keys of resets and tokens are in the configuration).
//!
//! This file has only the test.

#[cfg(test)]
mod tests {
    use quinn_proto::EndpointEvent;

    use crate::workarounds::bare_quinn::{BareQuinn, End};

    /// The capacity of quinn-proto's table of connections. Only the `Debug` text of its endpoint shows it.
    fn room(end: &End) -> usize {
        let text = format!("{:?}", end.endpoint);
        let slab = text.split("connections: Slab {").nth(1).unwrap();
        let capacity = slab.split("cap: ").nth(1).unwrap();
        let digits: String = capacity.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    }

    #[test]
    fn bare_quinn_never_shrinks_its_tables() {
        let mut bare = BareQuinn::begin(1, quinn_proto::TransportConfig::default());
        let mut handles = vec![bare.client.handle()];
        for _ in 1..200 {
            bare.dial();
            handles.push(bare.client.handle());
        }
        assert!(room(&bare.client) >= 200);
        for handle in handles {
            let drained = EndpointEvent::drained();
            bare.client.endpoint.handle_event(handle, drained);
        }
        assert_eq!(bare.client.endpoint.open_connections(), 0);
        assert_eq!(bare.client.endpoint.incoming_buffer_bytes(), 0);
        assert!(room(&bare.client) >= 200);
    }
}
