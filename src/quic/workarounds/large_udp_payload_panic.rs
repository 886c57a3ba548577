//! The largest UDP payload with which quinn-proto does not panic.
//!
//! Packets with long headers have a length field, for which quinn-proto reserves two bytes. 0-RTT data can fill such
//! a packet, so that the length needs more.
//!
//! Assumed of quinn-proto: a packet whose length exceeds a two-byte variable-length integer makes it panic.

/// In bytes. It is a little below the real limit, so that an error message can name a round number.
pub const UDP_PAYLOAD_WITHOUT_PANIC_MAX: u16 = 16_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use quinn_proto::{Dir, TransportConfig, congestion::CubicConfig};

    use crate::workarounds::bare_quinn::BareQuinn;

    /// True if quinn-proto sends a first flight with datagrams of this size, filled by 0-RTT data. False if it panics.
    fn leaves(udp_payload: u16) -> bool {
        let mut congestion = CubicConfig::default();
        // With a congestion window below one datagram, quinn-proto would send nothing.
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
    fn bare_quinn_panics_on_larger_udp_payloads() {
        assert!(leaves(UDP_PAYLOAD_WITHOUT_PANIC_MAX));
        assert!(!leaves((1 << 14) + 100));
    }
}
