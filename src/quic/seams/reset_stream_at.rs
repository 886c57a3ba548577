//! RESET_STREAM_AT (draft-ietf-quic-reliable-stream-reset), received: the reset of a stream whose first bytes
//! count all the same.
//!
//! The state machine does not know the frame. So the key that opens a packet puts an empty STREAM frame in its
//! place, which opens the stream where the peer's first data is lost, and keeps what it said for
//! `quic::streams`. That reads up to the reliable size, takes it for the end, and stops the stream. The state
//! machine then hears of the final size by a RESET_STREAM in front of the next packet that is opened: the
//! peer's answer to the STOP_SENDING, if no other comes before. It is repeated until one was taken, for a
//! packet that is opened may be a duplicate.
//!
//! Bounds: a connection looks at what was found after each datagram, so there is never more than fits into one;
//! what is due is said once for each stream that was stopped.
//!
//! Assumed of quinn-proto: a packet key may give a payload back that is longer than what was sealed; an empty
//! STREAM frame opens a stream, and is ignored on one that is over; a RESET_STREAM ends one that was stopped;
//! `stats` counts those that it took.
//!
//! Not here: sending one, which needs the state machine to send a part of a stream again.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use bytes::BytesMut;
use uringcore_wire::frames::{Frame, Frames, ResetAt};
use uringcore_wire::varint;

use super::inflow::{Arrived, Inflow};

/// What a connection's keys have found, and what they are to say.
#[derive(Default)]
pub struct ResetSlot {
    is_enabled: AtomicBool,
    /// There is something in `found` or `due`; kept beside them so that a packet costs one relaxed load.
    is_used: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    found: Vec<ResetAt>,
    due: Vec<ResetAt>,
}

impl ResetSlot {
    /// From now on the frame is understood.
    pub fn enable(&self) {
        self.is_enabled.store(true, Ordering::Relaxed);
    }

    /// Looks at the payload of a packet that was opened. The walk over its frames serves `inflow` too.
    pub fn opened(&self, payload: &mut BytesMut, inflow: &Inflow) {
        let (is_enabled, counts) = (self.is_enabled.load(Ordering::Relaxed), inflow.is_enabled());
        if !is_enabled && !counts {
            return;
        }
        let length = payload.len();
        let resets = Frames::new(payload).filter_map(|(start, end, frame)| match frame {
            Frame::Stream {
                stream_id,
                end,
                fin,
            } if counts => {
                inflow.note(Arrived::new(stream_id, end, fin, length));
                None
            }
            // It has no data, and is known whole.
            Frame::ResetStream {
                stream_id,
                final_size,
            } if counts => {
                inflow.note(Arrived::new(stream_id, final_size, true, 0));
                None
            }
            // What it says cannot be otherwise: the state machine refuses what it does not know, with
            // FRAME_ENCODING_ERROR.
            Frame::ResetStreamAt(reset)
                if is_enabled && reset.reliable_size <= reset.final_size =>
            {
                Some((start, end, reset))
            }
            _ => None,
        });
        // Most packets have none, and nothing is allocated for them.
        let found: Vec<_> = resets.collect();
        for (start, end, reset) in &found {
            let frame = &mut payload[*start..*end];
            frame.fill(0);
            // With a length, and without an offset: at most as long as what was there.
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

    /// True if something was found, or is to be said.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// What was found since the last time.
    pub fn take_found(&self) -> Vec<ResetAt> {
        if !self.is_used() {
            return Vec::new();
        }
        let mut state = self.state();
        self.is_used.store(!state.due.is_empty(), Ordering::Relaxed);
        std::mem::take(&mut state.found)
    }

    /// The state machine is to hear of this.
    pub fn say(&self, resets: impl IntoIterator<Item = ResetAt>) {
        self.state().due.extend(resets);
        self.is_used.store(true, Ordering::Relaxed);
    }

    /// It has taken RESET_STREAM frames: those that were due are among them.
    pub fn said(&self) {
        let mut state = self.state();
        state.due = Vec::new();
        self.is_used
            .store(!state.found.is_empty(), Ordering::Relaxed);
    }

    /// True if something is to be said.
    pub fn is_due(&self) -> bool {
        self.is_used() && !self.state().due.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The transport parameter that announces it, empty (section 3), and the draft's number for it.
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
    use crate::seams::bare::Bare;

    /// Two ends of the bare library, of which the client may have one stream open. Its resets with code 64
    /// are seen with code 7 and a reliable size of 6, which takes as many bytes.
    fn resetting() -> (Bare, Arc<ResetSlot>) {
        let mut transport = quinn::TransportConfig::default();
        transport.max_concurrent_uni_streams(1u8.into());
        let bare = Bare::connected(transport);
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
        let open =
            move |_: &[u8], payload: &mut BytesMut| opened.opened(payload, &Inflow::default());
        *bare.server.spy.on_open.lock().unwrap() = Some(Box::new(open));
        (bare, slot)
    }

    fn written(bare: &mut Bare) -> quinn::StreamId {
        let client = bare.client.connection();
        let id = client.streams().open(Dir::Uni).unwrap();
        client.send_stream(id).write(b"headerdata").unwrap();
        id
    }

    fn reset(bare: &mut Bare, id: quinn::StreamId) {
        let client = bare.client.connection();
        client.send_stream(id).reset(VarInt::from_u32(64)).unwrap();
        bare.exchange();
    }

    #[test]
    fn bare_quinn_hears_of_a_reset_in_front_of_the_next_packet() {
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
        slot.say([expected]);
        assert_eq!(server.stats().frame_rx.reset_stream, 0);
        assert!(bare.client.connection().streams().open(Dir::Uni).is_none());
        bare.exchange();
        bare.sleep(Duration::from_millis(30));
        bare.exchange();
        assert!(bare.server.connection().stats().frame_rx.reset_stream > 0);
        slot.said();
        // The stream is over, and its place is there for another.
        assert!(bare.client.connection().streams().open(Dir::Uni).is_some());
    }

    #[test]
    fn bare_quinn_opens_a_stream_for_the_frame_that_takes_its_place() {
        let (mut bare, slot) = resetting();
        let id = written(&mut bare);
        // Its data is lost.
        bare.client.transmit(bare.now);
        reset(&mut bare, id);
        assert_eq!(slot.take_found().len(), 1);
        let server = bare.server.connection();
        assert_eq!(server.streams().accept(Dir::Uni), Some(id));
        assert!(!server.is_closed());
    }

    fn opened(slot: &ResetSlot, payload: &[u8]) -> Vec<u8> {
        let mut payload = BytesMut::from(payload);
        slot.opened(&mut payload, &Inflow::default());
        payload.to_vec()
    }

    #[test]
    fn the_frame_becomes_one_that_opens_the_stream_and_is_kept() {
        let slot = ResetSlot::default();
        // A PING; stream 0x41, code 7, final size 100, reliable size 5; a STREAM frame to the end.
        let payload = b"\x01\x24\x40\x41\x07\x40\x64\x05\x08\x04abc";
        assert_eq!(opened(&slot, payload), payload, "it is not enabled");
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
        slot.say([reset]);
        // Until it was taken it is in front of every packet.
        for _ in 0..2 {
            assert_eq!(opened(&slot, b"\x01"), b"\x04\x40\x41\x07\x40\x64\x01");
        }
        slot.said();
        assert_eq!(opened(&slot, b"\x01"), b"\x01");
    }

    #[test]
    fn one_that_cannot_be_is_left_for_the_state_machine_to_refuse() {
        let slot = ResetSlot::default();
        slot.enable();
        let payload = b"\x24\x04\x07\x05\x06";
        assert_eq!(opened(&slot, payload), payload);
        assert_eq!(slot.take_found(), []);
    }
}
