//! Sends a CONNECTION_CLOSE of the transport, which names a frame type (RFC 9000 section 19.19).
//!
//! quinn-proto can only send the application's CONNECTION_CLOSE. So the packet key turns the frame from type 0x1d
//! into type 0x1c. The frame keeps its length: the frame type takes the place of filler bytes before the reason.
//!
//! Before the handshake is complete, quinn-proto replaces the application's close by one of the transport with the
//! code APPLICATION_ERROR (section 10.2.3). That frame stays as it is, because it has no room for a large frame type.
//!
//! Assumed of quinn-proto: once the handshake is complete `close` is sent as a frame of type 0x1d with the code and
//! the whole reason, if that fits in a packet; and it seals the payload that a packet key has edited.

use uringcore_wire::{
    frame_iterator::{Frame, Frames},
    varint,
};

/// The number of filler bytes with which the reason of a close must begin, to have room for `frame_type`.
pub fn filler(frame_type: u64) -> usize {
    varint::size(frame_type)
}

/// Rewrites the application's close in `payload`, if there is one.
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

    use crate::workarounds::bare_quinn::BareQuinn;

    #[test]
    fn an_application_close_becomes_a_transport_close_of_the_same_length() {
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
    fn bare_quinn_sends_the_whole_reason_and_seals_the_edited_close() {
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
