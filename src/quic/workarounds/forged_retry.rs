//! Drops forged Retry packets before quinn-proto reads them.
//!
//! The integrity tag of a Retry (RFC 9001 section 5.8) proves that its sender has seen the client's first packet. A
//! Retry with a wrong tag must be discarded (RFC 9000 section 17.2.5.2). quinn-proto discards it, but then rejects
//! the server's genuine Retry, too. So anybody who has seen the client's connection ID could make the handshake fail.
//!
//! Assumed of quinn-proto: it discards a Retry with a wrong tag, but counts it as the server's first packet, and then
//! accepts no Retry, not even the genuine one.

use uringcore_wire::coalesced_packets::is_retry;

/// True if quinn-proto may read this packet. `is_genuine` is called for Retry packets only.
pub fn may_pass(packet: &[u8], is_genuine: impl FnOnce(&[u8]) -> bool) -> bool {
    !is_retry(packet) || is_genuine(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workarounds::bare_quinn::BareQuinn;

    /// True if the handshake succeeds although a forged Retry arrives before the server's.
    fn succeeds(is_guarded: bool) -> bool {
        let mut bare = BareQuinn::begin(1, quinn_proto::TransportConfig::default());
        bare.server.retries = true;
        let first_flight = bare.client.transmit(bare.now);
        first_flight
            .iter()
            .for_each(|datagram| bare.server_gets(datagram));
        let retry = bare.server.transmit(bare.now).remove(0);
        assert!(is_retry(&retry));
        let mut forged = retry.clone();
        *forged.last_mut().unwrap() ^= 1;
        for packet in [&forged, &retry] {
            if !is_guarded || may_pass(packet, |packet| packet == retry) {
                bare.client_gets(packet);
            }
        }
        bare.exchange();
        !bare.client.connection().is_handshaking()
    }

    #[test]
    fn bare_quinn_rejects_a_genuine_retry_after_a_forged_one() {
        assert!(!succeeds(false));
        assert!(succeeds(true));
    }
}
