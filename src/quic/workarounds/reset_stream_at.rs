//! Receives RESET_STREAM_AT (draft-ietf-quic-reliable-stream-reset): the frame resets a stream, but the first bytes
//! of the stream, up to its *reliable size*, are still delivered.
//!
//! quinn-proto does not support the frame. So the key that opens a packet passes the frame to `quic::streams` and
//! puts an empty STREAM frame in its place, which opens the stream if the peer's first data was lost. `quic::streams`
//! reads up to the reliable size and then stops the stream. After that a RESET_STREAM with the final size is inserted
//! into the next opened packet. To quinn-proto it looks like the peer's answer to the STOP_SENDING. An opened packet
//! may be a duplicate, which quinn-proto drops, so the frame is inserted into each packet until one was accepted.
//!
//! Bounds: a connection takes the received frames after each datagram, so there are never more than fit in one; one
//! RESET_STREAM is due for each stream that was stopped.
//!
//! Assumed of quinn-proto: a packet key may return a payload that is longer than the sealed one; an empty STREAM
//! frame opens a stream, and is ignored on one that has ended; a RESET_STREAM ends a stream that was stopped; `stats`
//! counts the accepted ones.
//!
//! Not here: sending the frame, for which quinn-proto would have to retransmit a part of a stream.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use bytes::BytesMut;
use uringcore_wire::frame_iterator::{Frame, Frames, ResetAt, take_stream};
use uringcore_wire::varint;

use super::received_offsets::{Arrived, ReceivedOffsets};

/// RESET_STREAM_AT frames that were found in received packets, and RESET_STREAM frames that must be inserted into
/// them.
#[derive(Default)]
pub struct ResetSlot {
    is_enabled: AtomicBool,
    /// True if `found` or `due` has entries. The flag is outside of the lock, so that a packet without such frames
    /// costs one relaxed load.
    is_used: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    found: Vec<ResetAt>,
    due: Vec<ResetAt>,
}

impl ResetSlot {
    /// Starts to replace RESET_STREAM_AT frames.
    pub fn enable(&self) {
        self.is_enabled.store(true, Ordering::Relaxed);
    }

    /// Reads the payload of an opened packet. Also records arrived stream data in `received_offsets`, because that
    /// needs the same iteration over the frames.
    pub fn opened(&self, payload: &mut BytesMut, received_offsets: &ReceivedOffsets) {
        let (is_enabled, counts) = (
            self.is_enabled.load(Ordering::Relaxed),
            received_offsets.is_enabled(),
        );
        if !is_enabled && !counts {
            return;
        }
        let length = payload.len();
        // Most packets contain no RESET_STREAM_AT. Then this vector stays empty and allocates nothing.
        let mut found = Vec::new();
        let mut rest = &payload[..];
        while let Some((stream_id, end, fin)) = take_stream(&mut rest) {
            if counts {
                received_offsets.note(Arrived::new(stream_id, end, fin, length));
            }
        }
        let skipped = length - rest.len();
        for (start, end, frame) in Frames::new(rest) {
            match frame {
                Frame::Stream {
                    stream_id,
                    end,
                    fin,
                } if counts => received_offsets.note(Arrived::new(stream_id, end, fin, length)),
                // The frame has no data, but states the stream's final size.
                Frame::ResetStream {
                    stream_id,
                    final_size,
                } if counts => received_offsets.note(Arrived::new(stream_id, final_size, true, 0)),
                // An invalid RESET_STREAM_AT is left in the packet. quinn-proto does not know the type and closes with
                // FRAME_ENCODING_ERROR.
                Frame::ResetStreamAt(reset)
                    if is_enabled && reset.reliable_size <= reset.final_size =>
                {
                    found.push((skipped + start, skipped + end, reset));
                }
                _ => {}
            }
        }
        for (start, end, reset) in &found {
            let frame = &mut payload[*start..*end];
            frame.fill(0);
            // A STREAM frame with a length and without an offset is not longer than the RESET_STREAM_AT frame that it
            // replaces.
            frame[0] = 0x0a;
            let size = varint::size(reset.stream_id);
            varint::fill(&mut frame[1..=size], reset.stream_id);
        }
        if found.is_empty() && !self.is_used() {
            return;
        }
        let mut state = self.state();
        state.found.extend(found.iter().map(|(_, _, reset)| *reset));
        self.is_used.store(true, Ordering::Relaxed);
        if !state.due.is_empty() {
            let mut whole = BytesMut::new();
            for reset in &state.due {
                for value in [0x04, reset.stream_id, reset.code, reset.final_size] {
                    varint::put(&mut whole, value);
                }
            }
            whole.extend_from_slice(payload);
            *payload = whole;
        }
    }

    /// True if a frame was found or must be inserted.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// Removes and returns the frames that were found since the last call.
    pub fn take_found(&self) -> Vec<ResetAt> {
        if !self.is_used() {
            return Vec::new();
        }
        let mut state = self.state();
        self.is_used.store(!state.due.is_empty(), Ordering::Relaxed);
        std::mem::take(&mut state.found)
    }

    /// Inserts RESET_STREAM frames into each opened packet, until [`accepted`](Self::accepted) is called.
    pub fn insert(&self, resets: impl IntoIterator<Item = ResetAt>) {
        self.state().due.extend(resets);
        self.is_used.store(true, Ordering::Relaxed);
    }

    /// Called when quinn-proto has accepted the inserted RESET_STREAM frames.
    pub fn accepted(&self) {
        let mut state = self.state();
        state.due = Vec::new();
        self.is_used
            .store(!state.found.is_empty(), Ordering::Relaxed);
    }

    /// True if a RESET_STREAM frame must be inserted.
    pub fn is_due(&self) -> bool {
        self.is_used() && !self.state().due.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Poisoning is ignored: no code that holds this lock panics, so the state is valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Appends the transport parameter that announces support (section 3 of the draft), with its final number and with
/// the number that drafts used. It has no value.
pub fn append_parameters(parameters: &mut Vec<u8>) {
    for id in [PARAMETER, PARAMETER_OF_DRAFTS] {
        varint::put(parameters, id);
        varint::put(parameters, 0);
    }
}

const PARAMETER: u64 = 0x1d;
const PARAMETER_OF_DRAFTS: u64 = 0x17_f758_6d2c_b571;

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use quinn_proto::{self as quinn, Dir, VarInt};

    use super::*;
    use crate::workarounds::bare_quinn::BareQuinn;

    /// Two endpoints of bare quinn-proto, of which the client may open one stream. A RESET_STREAM of the client with
    /// code 64 is rewritten as a RESET_STREAM_AT with code 7 and a reliable size of 6, which has the same length.
    fn resetting() -> (BareQuinn, Arc<ResetSlot>) {
        let mut transport = quinn::TransportConfig::default();
        transport.max_concurrent_uni_streams(1u8.into());
        let bare = BareQuinn::connected(transport);
        let seal = |_: &[u8], payload: &mut [u8]| {
            let frames = Frames::new(payload).map(|(start, end, _)| start..end);
            for frame in frames.collect::<Vec<_>>() {
                if let [kind @ 0x04, _, code @ .., size, reliable] = &mut payload[frame] {
                    *kind = 0x24;
                    let final_size = *reliable;
                    (code[0], *size, *reliable) = (7, final_size, 6);
                }
            }
        };
        *bare.client.spy.on_seal.lock().unwrap() = Some(Box::new(seal));
        let slot = Arc::new(ResetSlot::default());
        slot.enable();
        let opened = slot.clone();
        let open = move |_: &[u8], payload: &mut BytesMut| {
            opened.opened(payload, &ReceivedOffsets::default())
        };
        *bare.server.spy.on_open.lock().unwrap() = Some(Box::new(open));
        (bare, slot)
    }

    fn written(bare: &mut BareQuinn) -> quinn::StreamId {
        let client = bare.client.connection();
        let id = client.streams().open(Dir::Uni).unwrap();
        client.send_stream(id).write(b"headerdata").unwrap();
        id
    }

    fn reset(bare: &mut BareQuinn, id: quinn::StreamId) {
        let client = bare.client.connection();
        client.send_stream(id).reset(VarInt::from_u32(64)).unwrap();
        bare.exchange();
    }

    #[test]
    fn bare_quinn_accepts_an_inserted_reset_stream() {
        let (mut bare, slot) = resetting();
        let id = written(&mut bare);
        bare.exchange();
        reset(&mut bare, id);
        let expected = ResetAt {
            stream_id: id.into(),
            code: 7,
            final_size: 10,
            reliable_size: 6,
        };
        assert_eq!(slot.take_found(), [expected]);
        let server = bare.server.connection();
        assert_eq!(server.streams().accept(Dir::Uni), Some(id));
        let mut stream = server.recv_stream(id);
        let mut chunks = stream.read(true).unwrap();
        assert_eq!(chunks.next(6).unwrap().unwrap().bytes, "header");
        let _ = chunks.finalize();
        assert_eq!(stream.received_reset(), Ok(None));
        stream.stop(VarInt::from_u32(7)).unwrap();
        slot.insert([expected]);
        assert_eq!(server.stats().frame_rx.reset_stream, 0);
        assert!(bare.client.connection().streams().open(Dir::Uni).is_none());
        bare.exchange();
        bare.sleep(Duration::from_millis(30));
        bare.exchange();
        assert!(bare.server.connection().stats().frame_rx.reset_stream > 0);
        slot.accepted();
        // The stream has ended, so the limit allows another one.
        assert!(bare.client.connection().streams().open(Dir::Uni).is_some());
    }

    #[test]
    fn bare_quinn_opens_a_stream_for_an_empty_stream_frame() {
        let (mut bare, slot) = resetting();
        let id = written(&mut bare);
        // The packet with the stream's data is lost.
        bare.client.transmit(bare.now);
        reset(&mut bare, id);
        assert_eq!(slot.take_found().len(), 1);
        let server = bare.server.connection();
        assert_eq!(server.streams().accept(Dir::Uni), Some(id));
        assert!(!server.is_closed());
    }

    fn opened(slot: &ResetSlot, payload: &[u8]) -> Vec<u8> {
        let mut payload = BytesMut::from(payload);
        slot.opened(&mut payload, &ReceivedOffsets::default());
        payload.to_vec()
    }

    #[test]
    fn reset_stream_at_is_replaced_by_an_empty_stream_frame() {
        let slot = ResetSlot::default();
        // A PING; RESET_STREAM_AT of stream 0x41 with code 7, final size 100 and reliable size 5; a STREAM frame to the
        // end.
        let payload = b"\x01\x24\x40\x41\x07\x40\x64\x05\x08\x04abc";
        assert_eq!(
            opened(&slot, payload),
            payload,
            "the replacement of frames is not enabled"
        );
        slot.enable();
        let expected = b"\x01\x0a\x40\x41\x00\x00\x00\x00\x08\x04abc";
        assert_eq!(opened(&slot, payload), expected);
        let reset = ResetAt {
            stream_id: 0x41,
            code: 7,
            final_size: 100,
            reliable_size: 5,
        };
        assert_eq!(slot.take_found(), [reset]);
        assert_eq!(slot.take_found(), []);
        slot.insert([reset]);
        // The frame is inserted into every packet until quinn-proto has accepted it.
        for _ in 0..2 {
            assert_eq!(opened(&slot, b"\x01"), b"\x04\x40\x41\x07\x40\x64\x01");
        }
        slot.accepted();
        assert_eq!(opened(&slot, b"\x01"), b"\x01");
    }

    #[test]
    fn an_invalid_reset_stream_at_is_left_for_quinn_to_reject() {
        let slot = ResetSlot::default();
        slot.enable();
        let payload = b"\x24\x04\x07\x05\x06";
        assert_eq!(opened(&slot, payload), payload);
        assert_eq!(slot.take_found(), []);
    }
}
