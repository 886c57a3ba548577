//! The tables of an endpoint after a peak.
//!
//! quinn-proto's endpoint keeps the room that its connections once took for as long as it lives. So one that has none
//! left is replaced by a new one with the same configuration (`quic::endpoint::table`).
//!
//! Assumed of quinn-proto: its tables never shrink, and in an endpoint without connections and without anybody who waits
//! there is nothing that a new one would lack: what a reset or a token is made with stands in the configuration. The
//! first half is asked below; the second is to be read off the fields of its `Endpoint`.
//!
//! There is nothing here but the question: which endpoint is replaced, and when, is the table's own state.

#[cfg(test)]
mod tests {
    use quinn_proto::EndpointEvent;

    use crate::seams::bare::{Bare, End};

    /// For how many connections there is room, which only the endpoint's debugging text tells.
    fn room(end: &End) -> usize {
        let text = format!("{:?}", end.endpoint);
        let slab = text.split("connections: Slab {").nth(1).unwrap();
        let capacity = slab.split("cap: ").nth(1).unwrap();
        let digits: String = capacity.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    }

    #[test]
    fn bare_quinn_keeps_the_room_of_connections_that_have_gone() {
        let mut bare = Bare::begin(1, quinn_proto::TransportConfig::default());
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
