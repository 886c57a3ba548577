//! Sends a CONNECTION_CLOSE of the transport, which names a frame type (RFC 9000 section 19.19), instead of the
//! application's.
//!
//! quinn-proto offers no way to close as the transport. So the packet key turns the frame from type 0x1d into type 0x1c
//! without changing its length: the frame type replaces filler bytes before the reason.
//!
//! Before the handshake is complete quinn-proto sends a transport close with APPLICATION_ERROR instead of an
//! application's (section 10.2.3). There is nothing to hide here, but no room for large numbers either, so that frame
//! stays as it is.
//!
//! Assumed of quinn-proto: once the handshake is complete `close` is sent as a frame of type 0x1d with the code and the
//! whole reason, if that fits in a packet; and it seals the payload that a packet key has edited.

use uringcore_wire::{
    frames::{Frame, Frames},
    varint,
};

/// How many filler bytes the reason of a close needs to name `frame_type`.
pub fn filler(frame_type: u64) -> usize {
    varint::size(frame_type)
}

/// Rewrites the close in `payload`, if there is one.
pub fn rewrite(payload: &mut [u8], frame_type: u64) {
    let frame = Frames::new(payload).find(|(_, _, frame)| *frame == Frame::ApplicationClose);
    if let Some((start, end, _)) = frame {
        rewrite_frame(&mut payload[start..end], frame_type);
    }
}

fn rewrite_frame(frame: &mut [u8], frame_type: u64) -> Option<()> {
    let code_len = varint::size_at(&frame[1..])?;
    let length_at = 1 + code_len;
    let length_len = varint::size_at(&frame[length_at..])?;
    let length = varint::take(&mut &frame[length_at..])?;
    let filler = filler(frame_type);
    let reason_len = length.checked_sub(filler as u64)?;
    frame[0] = 0x1c;
    varint::fill(&mut frame[length_at..length_at + filler], frame_type);
    varint::fill(
        &mut frame[length_at + filler..length_at + filler + length_len],
        reason_len,
    );
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quinn_proto::{ConnectionError, Event, VarInt};

    use crate::seams::bare_quinn::BareQuinn;

    #[test]
    fn application_close_becomes_a_transport_close_of_the_same_length() {
        for (frame_type, reason) in [(6_u64, &b"bad"[..]), (0x31, b""), (0xaf, &[b'x'; 63])] {
            let filler = vec![0; filler(frame_type)];
            let length = filler.len() + reason.len();
            let mut payload = vec![0x01, 0x1d, 0x0a];
            let mut encoded = vec![0; varint::size(length as u64)];
            varint::fill(&mut encoded, length as u64);
            payload.extend([&encoded[..], &filler, reason, &[0, 0]].concat());
            let before = payload.len();
            rewrite(&mut payload, frame_type);
            assert_eq!(payload.len(), before);
            let mut rest = &payload[1..];
            assert_eq!(varint::take(&mut rest), Some(0x1c));
            assert_eq!(varint::take(&mut rest), Some(0x0a));
            assert_eq!(varint::take(&mut rest), Some(frame_type));
            assert_eq!(varint::take(&mut rest), Some(reason.len() as u64));
            assert_eq!(rest, [reason, &[0, 0]].concat());
        }
    }

    #[test]
    fn bare_quinn_closes_with_the_whole_reason_and_seals_what_is_made_of_it() {
        let mut bare = BareQuinn::connected(quinn_proto::TransportConfig::default());
        let (code, frame_type) = (VarInt::from_u32(0x0a), 0x31_u64);
        let reason = [&vec![0; filler(frame_type)][..], &[b'x'; 512]].concat();
        let now = bare.now;
        *bare.client.spy.on_seal.lock().unwrap() =
            Some(Box::new(move |_, payload| rewrite(payload, frame_type)));
        bare.client
            .connection()
            .close(now, code, reason.clone().into());
        bare.exchange();
        let sealed = bare.client.spy.last_sealed().payload;
        let close = Frames::new(&sealed).find(|(_, _, frame)| *frame == Frame::ApplicationClose);
        let (start, end, _) = close.expect("type 0x1d");
        assert!(sealed[start..end].ends_with(&reason));
        let heard = bare.server.events.iter().find_map(|event| match event {
            Event::ConnectionLost { reason } => Some(reason.clone()),
            _ => None,
        });
        let Some(ConnectionError::ConnectionClosed(close)) = heard else {
            panic!("{heard:?}")
        };
        assert_eq!(
            (u64::from(close.error_code), &close.reason[..]),
            (0x0a, &[b'x'; 512][..])
        );
    }
}
