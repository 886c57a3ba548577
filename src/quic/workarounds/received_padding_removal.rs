//! Removes PADDING (RFC 9000 section 19.1) before quinn-proto reads it.
//!
//! quinn-proto reads each byte of PADDING as a frame, and a client's Initial packets are mostly PADDING: an eighth of
//! a handshake's cost for a server. So, after a packet was opened, the bytes after its last frame are cut off before
//! quinn-proto gets the payload. Observers of packets still see them.
//!
//! A client's Initial packets are not cut. quinn-proto counts the opened bytes of the packet that begins a
//! connection, and until the client's address is validated a server sends at most three times as many (RFC 9000
//! section 8.1). In these packets PADDING is rewritten as frames whose type has eight bytes, so that there are an
//! eighth as many frames.
//!
//! Zeros at the end may belong to a frame, so frames are parsed. A payload that fails to parse stays as it is, and
//! quinn-proto rejects it.
//!
//! Assumed of quinn-proto: it counts received bytes by the datagram, before packets are opened, except for that
//! Initial packet; a frame type may have any form of a variable-length integer; any amount of PADDING is not
//! ack-eliciting; a payload without any frame is an error, so one frame of PADDING is left if there is nothing else.
//!
//! By its source, quinn-proto charges out-of-order data with the memory of its packet's whole payload; no test can
//! check that. So a payload of which little is left is copied. Without the copy, a peer could make this side hold
//! more memory than is counted.

use bytes::BytesMut;
use uringcore_wire::frame_iterator::Frames;

/// The minimum number of PADDING bytes that are removed. Fewer are not worth the work.
const WORTH_IT: usize = 16;

/// A PADDING frame whose type has the longest form of a variable-length integer.
const LONG: [u8; 8] = [0xc0, 0, 0, 0, 0, 0, 0, 0];

/// Cuts off the PADDING at the end of an opened packet.
pub fn cut(payload: &mut BytesMut) {
    let Some(end) = begin(payload) else {
        return;
    };
    let end = end.max(1);
    match end < payload.len() / 2 {
        true => *payload = BytesMut::from(&payload[..end]),
        false => payload.truncate(end),
    }
}

/// Rewrites the PADDING at the end of an opened packet as fewer frames. The payload keeps its length.
pub fn fold(payload: &mut [u8]) {
    if let Some(end) = begin(payload) {
        let frames = payload[end..].chunks_exact_mut(LONG.len());
        frames.for_each(|frame| frame.copy_from_slice(&LONG));
    }
}

/// The offset at which the PADDING at the end of the payload begins. `None` if there is too little PADDING to remove.
fn begin(payload: &[u8]) -> Option<usize> {
    match payload.ends_with(&[0; WORTH_IT]) {
        true => Frames::new(payload).end(),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quinn_proto::TransportConfig;
    use uringcore_wire::{frame_iterator::Frame, varint};

    use crate::workarounds::bare_quinn::{BareQuinn, Packet};

    fn after_cut(payload: &[u8]) -> Vec<u8> {
        let mut payload = BytesMut::from(payload);
        cut(&mut payload);
        payload.to_vec()
    }

    #[test]
    fn only_padding_after_the_last_frame_is_cut() {
        // The payload has CRYPTO and ACK frames that end in zero bytes, and PADDING before and between these frames.
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
    fn one_padding_frame_is_left_of_a_packet_full_of_padding() {
        assert_eq!(after_cut(&[0; 1_162]), [0]);
        assert_eq!(after_cut(&[0; 3]), [0; 3]);
    }

    #[test]
    fn folded_padding_has_the_same_length_and_fewer_frames() {
        for padding in [3, WORTH_IT, 50, 1_000] {
            let ping = [&[0x01][..], &vec![0; padding]].concat();
            let mut folded = ping.clone();
            fold(&mut folded);
            assert_eq!(folded.len(), ping.len());
            let mut rest = &folded[1..];
            let types: Vec<_> = std::iter::from_fn(|| varint::take(&mut rest)).collect();
            let few = match padding < WORTH_IT {
                true => padding,
                false => padding / 8 + padding % 8,
            };
            assert_eq!(types, vec![0; few], "{padding} bytes");
        }
    }

    #[test]
    fn a_malformed_payload_is_left_unchanged() {
        for start in [
            // An unknown type; CRYPTO that is longer than the payload; an ACK with more ranges than the payload.
            &[0x3f][..],
            &[0x06, 0, 0x7f, 0xff],
            &[0x02, 0, 0, 0x7f, 0xff],
        ] {
            let payload = [start, &[0; 200]].concat();
            assert_eq!(after_cut(&payload), payload);
        }
        // A STREAM frame without a length extends to the end of the payload.
        let stream = [&[0x08, 0][..], &[0; 200]].concat();
        assert_eq!(after_cut(&stream), stream);
    }

    #[test]
    fn a_cut_payload_holds_no_spare_memory() {
        let mut payload = BytesMut::zeroed(1_200);
        payload[..4].copy_from_slice(&[0x06, 0, 1, 7]);
        let all = payload.as_ptr();
        cut(&mut payload);
        assert_eq!(payload[..], [0x06, 0, 1, 7]);
        assert_ne!(payload.as_ptr(), all);
    }

    /// Runs a handshake of bare quinn-proto whose server edits opened payloads. Returns how many datagrams the server
    /// sends after each datagram of the client, and the packets that the server has opened.
    fn handshake(names: usize, edit: fn(&mut BytesMut)) -> (Vec<usize>, Vec<Packet>) {
        let mut bare = BareQuinn::begin_with_names(1, TransportConfig::default(), names);
        *bare.server.spy.on_open.lock().unwrap() = Some(Box::new(move |_, payload| edit(payload)));
        let mut counts = Vec::new();
        loop {
            let sent = bare.client.transmit(bare.now);
            let is_over = sent.is_empty();
            for datagram in sent {
                bare.server_gets(&datagram);
                let answer = bare.server.transmit(bare.now);
                counts.push(answer.len());
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
        (counts, opened)
    }

    #[test]
    fn bare_quinn_answers_folded_padding_with_as_many_bytes() {
        // A certificate that fits in one datagram, and one that fills the three that may be sent at once.
        for (names, at_once) in [(1, 1), (60, 3)] {
            let (plain, _) = handshake(names, |_| {});
            let (folded, opened) = handshake(names, |payload| fold(payload));
            assert_eq!((plain[0], folded[0]), (at_once, at_once));
            assert_eq!(plain.len(), folded.len(), "{plain:?} {folded:?}");
            let is_padded = |packet: &&Packet| packet.payload.ends_with(&[0; 500]);
            assert!(opened.iter().filter(is_padded).count() > 0);
        }
    }

    #[test]
    fn bare_quinn_answers_a_cut_first_packet_with_fewer_bytes() {
        let (counts, _) = handshake(60, cut);
        assert_eq!(counts[0], 1, "{counts:?}");
    }

    #[test]
    fn bare_quinn_needs_a_frame_and_does_not_acknowledge_padding() {
        for (left, is_lost) in [(0, true), (1, false)] {
            let mut bare = BareQuinn::connected(TransportConfig::default());
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
