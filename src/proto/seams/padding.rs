//! PADDING (RFC 9000 section 19.1) that nobody has to read.
//!
//! quinn-proto reads PADDING one byte a frame, and a client's Initial packets are little else: an eighth of
//! what a handshake costs a server. So what stands behind the last frame is cut off between the key that opened
//! the packet and the state machine. What watches packets has seen it by then.
//!
//! Zeros at the end may belong to a frame, so frames are walked over; a payload in which that fails stays as it
//! is, for the state machine to answer.
//!
//! Assumed of quinn-proto: it counts received bytes by the datagram, before packets are opened; PADDING asks for
//! no acknowledgement, whatever there is of it; a payload without any frame is an error, so one frame of
//! PADDING is left where there is nothing else; and data that it keeps out of order is taken to hold as much
//! memory as its packet's payload is long. What is left of a payload is therefore copied, if it is short.

use bytes::BytesMut;

use crate::wire::frames::Frames;

/// Less is left where it is.
const WORTH_IT: usize = 16;

/// Cuts the PADDING at the end of an opened packet.
pub fn cut(payload: &mut BytesMut) {
    if !payload.ends_with(&[0; WORTH_IT]) {
        return;
    }
    let Some(end) = Frames::new(payload).end() else {
        return;
    };
    let end = end.max(1);
    match end < payload.len() / 2 {
        true => *payload = BytesMut::from(&payload[..end]),
        false => payload.truncate(end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quinn_proto::TransportConfig;

    use crate::{
        seams::bare::{Bare, Packet},
        wire::frames::Frame,
    };

    fn after_cut(payload: &[u8]) -> Vec<u8> {
        let mut payload = BytesMut::from(payload);
        cut(&mut payload);
        payload.to_vec()
    }

    #[test]
    fn padding_behind_the_last_frame_is_cut_and_nothing_else() {
        // CRYPTO and ACK that end in zeros, with PADDING in front of them and between them.
        let frames = [
            &[0, 0, 0x06, 0, 32][..],
            &[0; 32],
            &[0, 0x02, 40, 0, 8, 0],
            &[0; 16],
        ]
        .concat();
        assert_eq!(after_cut(&frames), frames);
        for padding in [WORTH_IT, 50, 1_000] {
            let padded = [&frames[..], &vec![0; padding]].concat();
            assert_eq!(after_cut(&padded), frames, "{padding} bytes");
        }
    }

    #[test]
    fn of_a_packet_that_is_all_padding_one_frame_is_left() {
        assert_eq!(after_cut(&[0; 1_162]), [0]);
        assert_eq!(after_cut(&[0; 3]), [0; 3]);
    }

    #[test]
    fn a_payload_that_cannot_be_read_stays_as_it_is() {
        for start in [
            // Of an unknown type; CRYPTO longer than what there is; an ACK with more ranges than that.
            &[0x3f][..],
            &[0x06, 0, 0x7f, 0xff],
            &[0x02, 0, 0, 0x7f, 0xff],
        ] {
            let payload = [start, &[0; 200]].concat();
            assert_eq!(after_cut(&payload), payload);
        }
        // Data without a length goes to the end.
        let stream = [&[0x08, 0][..], &[0; 200]].concat();
        assert_eq!(after_cut(&stream), stream);
    }

    #[test]
    fn what_is_left_of_a_payload_holds_no_more_memory_than_it_has_bytes() {
        let mut payload = BytesMut::zeroed(1_200);
        payload[..4].copy_from_slice(&[0x06, 0, 1, 7]);
        let all = payload.as_ptr();
        cut(&mut payload);
        assert_eq!(payload[..], [0x06, 0, 1, 7]);
        assert_ne!(payload.as_ptr(), all);
    }

    /// How a handshake of bare quinn-proto goes: what the server has to send after each of the client's
    /// datagrams, how many bytes that is, and what its keys opened.
    fn handshake(is_cut: bool) -> (Vec<usize>, Vec<Packet>) {
        let mut bare = Bare::begin(1, TransportConfig::default());
        if is_cut {
            *bare.server.spy.on_open.lock().unwrap() = Some(Box::new(|_, payload| cut(payload)));
        }
        let mut sizes = Vec::new();
        loop {
            let sent = bare.client.transmit(bare.now);
            let is_over = sent.is_empty();
            for datagram in sent {
                bare.server_gets(&datagram);
                let answer = bare.server.transmit(bare.now);
                sizes.extend(answer.iter().map(Vec::len));
                answer
                    .iter()
                    .for_each(|datagram| bare.client_gets(datagram));
            }
            if is_over {
                break;
            }
        }
        assert!(!bare.server.connection().is_handshaking());
        let opened = std::mem::take(&mut *bare.server.spy.opened.lock().unwrap());
        (sizes, opened)
    }

    #[test]
    fn bare_quinn_shakes_hands_in_as_many_packets_without_the_padding() {
        let (plain, _) = handshake(false);
        let (cut, opened) = handshake(true);
        assert_eq!(plain.len(), cut.len(), "{plain:?} {cut:?}");
        let is_padded = |packet: &&Packet| packet.payload.ends_with(&[0; 500]);
        assert!(opened.iter().filter(is_padded).count() > 0);
    }

    #[test]
    fn bare_quinn_wants_a_frame_in_each_packet_and_acknowledges_no_padding() {
        for (left, is_lost) in [(0, true), (1, false)] {
            let mut bare = Bare::connected(TransportConfig::default());
            bare.server.spy.sealed.lock().unwrap().clear();
            bare.client.connection().ping();
            *bare.server.spy.on_open.lock().unwrap() = Some(Box::new(move |_, payload| {
                payload.fill(0);
                payload.truncate(left);
            }));
            bare.exchange();
            bare.sleep(std::time::Duration::from_millis(30));
            let sent = bare.server.transmit(bare.now);
            let sealed = bare.server.spy.sealed.lock().unwrap();
            let frames = |packet: &Packet| {
                Frames::new(&packet.payload).any(|(_, _, frame)| frame == Frame::TransportClose)
            };
            assert_eq!(sealed.iter().any(frames), is_lost);
            assert_eq!(sent.is_empty() && sealed.is_empty(), !is_lost);
        }
    }
}
