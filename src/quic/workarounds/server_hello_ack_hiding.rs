//! Hides acknowledgements of a ServerHello from quinn-proto, so that it is sent again.
//!
//! Some clients (picoquic) restart when they receive the negotiated version: they acknowledge the ServerHello, forget
//! it, and send their ClientHello again. So after a switch of the version, acknowledgements in Initial packets are
//! hidden. quinn-proto repeats the ServerHello until a Handshake packet shows that the client has read it, which is
//! when Initial keys are discarded anyway (RFC 9001 section 4.9.1).
//!
//! Assumed of quinn-proto: it reads the payload that a packet key returns, not the sealed one; PADDING may occur
//! between frames; and it sends data of Initial packets again after each probe timeout until it is acknowledged.

use uringcore_wire::frame_iterator::{Frame, Frames};

/// Replaces each ACK in the payload of an opened packet by PADDING.
pub fn hide(payload: &mut [u8]) {
    let found: Vec<_> = Frames::new(payload)
        .filter(|(_, _, frame)| matches!(frame, Frame::Ack(_)))
        .map(|(start, end, _)| start..end)
        .collect();
    for range in found {
        payload[range].fill(PADDING);
    }
}

/// The type of a PADDING frame (RFC 9000 section 19.1).
const PADDING: u8 = 0;

#[cfg(test)]
mod tests {
    use uringcore_wire::packet_header::{Extent, PacketType};

    use super::*;
    use std::time::Duration;

    use crate::workarounds::bare_quinn::BareQuinn;

    /// The number of Initial packets with CRYPTO frames that a server of bare quinn-proto sends after a probe timeout,
    /// although the client has acknowledged the first one.
    fn repeated(is_hidden: bool) -> usize {
        let mut bare = BareQuinn::begin(1, quinn_proto::TransportConfig::default());
        let first_flight = bare.client.transmit(bare.now);
        first_flight
            .iter()
            .for_each(|datagram| bare.server_gets(datagram));
        let flight = bare.server.transmit(bare.now).remove(0);
        let end = Extent::of(&flight, PacketType::Initial).unwrap().end;
        bare.client_gets(&flight[..end]);
        if is_hidden {
            *bare.server.spy.on_open.lock().unwrap() = Some(Box::new(|_, payload| hide(payload)));
        }
        let answer = bare.client.transmit(bare.now);
        answer
            .iter()
            .for_each(|datagram| bare.server_gets(datagram));
        let opened = bare.server.spy.opened.lock().unwrap().last().cloned();
        let has_ack = |payload: &[u8]| {
            Frames::new(payload).any(|(_, _, frame)| matches!(frame, Frame::Ack(_)))
        };
        assert!(has_ack(&opened.unwrap().payload));
        bare.server.spy.sealed.lock().unwrap().clear();
        bare.sleep(Duration::from_secs(2));
        bare.server.transmit(bare.now);
        let sealed = bare.server.spy.sealed.lock().unwrap();
        let initial = sealed
            .iter()
            .filter(|packet| packet.header[0] & 0xb0 == 0x80);
        let is_crypto = |frame| matches!(frame, Frame::Crypto { .. });
        initial
            .filter(|packet| Frames::new(&packet.payload).any(|(_, _, frame)| is_crypto(frame)))
            .count()
    }

    #[test]
    fn bare_quinn_repeats_a_server_hello_whose_acknowledgement_is_hidden() {
        assert_eq!(repeated(false), 0);
        assert!(repeated(true) > 0);
    }
}
