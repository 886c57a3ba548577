//! Retry packets that no server made.
//!
//! A Retry's integrity tag (RFC 9001 section 5.8) proves that whoever made it has seen the client's first
//! packet, so others can be told by it, and have to be discarded (RFC 9000 section 17.2.5.2). The
//! state machine does that, but a datagram from anybody who knows the client's connection ID then
//! makes the handshake fail. So a forged one is not shown to it.
//!
//! Assumed of quinn-proto: it discards a Retry whose tag is wrong, but counts it as the server's first
//! packet, after which it takes no Retry any more, not even the right one.

use uringcore_wire::datagram::is_retry;

/// True if the state machine may see a packet. `is_genuine` is asked of a Retry alone.
pub fn may_pass(packet: &[u8], is_genuine: impl FnOnce(&[u8]) -> bool) -> bool {
    !is_retry(packet) || is_genuine(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seams::bare::Bare;

    /// True if the handshake succeeds when a forged Retry comes before the server's.
    fn succeeds(is_guarded: bool) -> bool {
        let mut bare = Bare::begin(1, quinn_proto::TransportConfig::default());
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
    fn bare_quinn_takes_no_retry_after_a_forged_one() {
        assert!(!succeeds(false));
        assert!(succeeds(true));
    }
}
