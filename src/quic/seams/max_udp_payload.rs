//! The largest UDP payload that the state machine can fill.
//!
//! Packets with long headers have a length field, for which it reserves two bytes. 0-RTT data can fill such a packet.
//!
//! Assumed of quinn-proto: a packet whose length exceeds a two-byte variable-length integer makes it panic.

/// A little below the limit, so that an error message can name a round number.
pub const UDP_PAYLOAD_MAX: u16 = 16_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use quinn_proto::{Dir, TransportConfig, congestion::CubicConfig};

    use crate::seams::bare_quinn::BareQuinn;

    /// True if a first flight whose 0-RTT data fills a datagram leaves on a path of this size.
    fn leaves(udp_payload: u16) -> bool {
        let mut congestion = CubicConfig::default();
        // A congestion window below one datagram never sends anything.
        congestion.initial_window(4 * u64::from(udp_payload));
        let mut transport = TransportConfig::default();
        transport
            .initial_mtu(udp_payload)
            .congestion_controller_factory(Arc::new(congestion));
        let mut bare = BareQuinn::resuming(transport);
        let client = bare.client.connection();
        let stream = client.streams().open(Dir::Uni).unwrap();
        client.send_stream(stream).write(&[0; 40_000]).unwrap();
        let transmit = AssertUnwindSafe(|| bare.client.transmit(bare.now));
        let longest = |sent: Vec<Vec<u8>>| sent.iter().map(Vec::len).max();
        let longest = catch_unwind(transmit).map(longest);
        longest.is_ok_and(|longest| longest == Some(udp_payload.into()))
    }

    #[test]
    fn bare_quinn_panics_on_a_first_flight_of_larger_packets() {
        assert!(leaves(UDP_PAYLOAD_MAX));
        assert!(!leaves((1 << 14) + 100));
    }
}
