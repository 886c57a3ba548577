//! Observes and edits packets in plain text, at the tap of the packet keys: matches PINGs with the ACKs that cover
//! them, turns a CONNECTION_CLOSE into one of the transport, and detects the peer's answer to our close and to a
//! path probe.
//!
//! quinn-proto offers none of that: its `ping` reports no answer, its `close` is the application's, and it does not
//! report if the peer received it. The tap is closed while no ping is outstanding, no close is in progress, no path
//! is probed, connection IDs are not reported (`id_observer`) and the peer is at a validated address
//! (`path_observer`).

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::BytesMut;
use uringcore_wire::{
    frames::{Frame, Frames},
    header::Space,
};

use super::{
    id_observer::IdObserver,
    path_observer::{PacketLimit, PathObserver, Sealed},
};
use crate::tls::{PacketObserver, ProbeSlot, Tap};
use crate::{
    Event,
    seams::{inflow::Inflow, reset_stream_at::ResetSlot, transport_close},
};

/// The host's side of the observation of one connection's packets.
pub(crate) struct ConnectionObserver {
    tap: Arc<Tap>,
    inner: Arc<Inner>,
}

impl ConnectionObserver {
    pub fn new(tap: Arc<Tap>) -> Self {
        let inner = Arc::new(Inner::default());
        tap.attach(inner.clone());
        Self { tap, inner }
    }

    /// Expects an answer for `uid`. The caller makes the state machine send a PING.
    pub fn expect_ping(&mut self, uid: u64) {
        self.expect(Asker::Host(uid));
    }

    /// Expects an answer that proves that the peer has the keys after `changes` updates.
    pub fn expect_keys_ping(&mut self, changes: u64) {
        self.expect(Asker::Keys(changes));
    }

    fn expect(&mut self, asker: Asker) {
        self.inner.state().pings.push(Ping { asker, first: None });
        self.tap.set_open(true);
    }

    /// The results of pings since the last call.
    pub fn poll_pings(&mut self) -> Option<PingResults> {
        if !self.inner.results.swap(false, Ordering::Relaxed) {
            return None;
        }
        let mut state = self.inner.state();
        let results = PingResults {
            answered: std::mem::take(&mut state.answered),
            keys_answered: std::mem::take(&mut state.keys_answered),
            send_again: std::mem::take(&mut state.send_again),
            ids: state
                .ids
                .as_mut()
                .map(IdObserver::take_events)
                .unwrap_or_default(),
        };
        state.drop_paths();
        if state.pings.is_empty() {
            state.sealed.clear();
            self.tap.set_open(state.is_needed());
        }
        Some(results)
    }

    /// Observes the connection IDs that this side issues, besides `first`, and that the peer retires.
    pub fn expect_ids(&mut self, first: Vec<u8>) {
        self.inner.state().ids = Some(IdObserver::new(first));
        self.tap.set_open(true);
    }

    /// Records a generated ID of this side. Returns true if it must be reported.
    pub fn issued(&self, id: &[u8]) -> bool {
        let mut state = self.inner.state();
        state.ids.as_mut().is_some_and(|ids| ids.issued(id))
    }

    pub fn observes_ids(&self) -> bool {
        self.inner.state().ids.is_some()
    }

    /// The packet to seal instead of a PING.
    pub fn probe(&self) -> &ProbeSlot {
        self.tap.probe()
    }

    /// Received RESET_STREAM_AT frames.
    pub fn resets(&self) -> &ResetSlot {
        self.tap.resets()
    }

    /// How far the data of streams has arrived.
    pub fn inflow(&self) -> &Inflow {
        self.tap.inflow()
    }

    /// Observes the peer's limit, which is `bytes` for now. The state machine assumes a higher one.
    pub fn expect_max_data(&mut self, bytes: u64) {
        self.inner.state().max_data = Some(bytes);
        self.tap.set_open(true);
    }

    /// The peer's current limit, if it is observed.
    pub fn max_data(&self) -> Option<u64> {
        self.inner.state().max_data
    }

    pub fn forget_max_data(&mut self) {
        let mut state = self.inner.state();
        state.max_data = None;
        self.tap.set_open(state.is_needed());
    }

    /// Expects the answer to a path challenge with `data` (RFC 9000 section 8.2.1).
    pub fn expect_path_response(&mut self, data: [u8; 8]) {
        self.inner.state().challenge = Some(data);
        self.inner.path_answered.store(false, Ordering::Relaxed);
        self.tap.set_open(true);
    }

    /// True if the answer has arrived, on any path (RFC 9000 section 8.2.3).
    pub fn path_answered(&self) -> bool {
        self.inner.path_answered.load(Ordering::Relaxed)
    }

    /// Stops waiting for the path's answer.
    pub fn forget_path(&mut self) {
        let mut state = self.inner.state();
        state.challenge = None;
        self.inner.path_answered.store(false, Ordering::Relaxed);
        self.tap.set_open(state.is_needed());
    }

    /// Observes packets for frames about the peer's paths.
    pub fn observe_paths(&mut self) {
        let mut state = self.inner.state();
        state.paths.get_or_insert_default().set_over(false);
        self.tap.set_open(true);
    }

    pub fn stop_observing_paths(&mut self) {
        let mut state = self.inner.state();
        if let Some(paths) = &mut state.paths {
            paths.set_over(true);
        }
        state.drop_paths();
        self.tap.set_open(state.is_needed());
    }

    /// Limits the length of the packets that are sealed until [`take_sealed`](Self::take_sealed).
    pub fn limit_packets(&mut self, limit: PacketLimit) {
        if let Some(paths) = &mut self.inner.state().paths {
            paths.limit(limit);
        }
    }

    pub fn take_sealed(&mut self) -> Sealed {
        let mut state = self.inner.state();
        let paths = state.paths.as_mut();
        paths.map(|paths| paths.take_sealed()).unwrap_or_default()
    }

    /// The data of PATH_RESPONSE frames since the last call.
    pub fn take_path_responses(&mut self) -> Vec<[u8; 8]> {
        let mut state = self.inner.state();
        let paths = state.paths.as_mut();
        paths
            .map(|paths| paths.take_responses())
            .unwrap_or_default()
    }

    /// True if the peer has sent an authentic Handshake packet.
    pub fn has_opened_handshake(&self) -> bool {
        self.tap.has_opened_handshake()
    }

    /// We are closing: the peer's CONNECTION_CLOSE will show that it has received ours.
    pub fn expect_close(&mut self) {
        self.inner.state().awaits_close = true;
        self.tap.set_open(true);
    }

    /// True if the peer has closed since [`expect_close`](Self::expect_close).
    pub fn peer_has_closed(&self) -> bool {
        self.inner.peer_has_closed.load(Ordering::Relaxed)
    }

    /// Turns the coming CONNECTION_CLOSE into one of the transport that names this frame type. Its reason must
    /// begin with [`transport_close::filler`] bytes.
    pub fn close_as_transport(&mut self, frame_type: u64) {
        self.inner.state().close_frame_type = Some(frame_type);
        self.tap.set_open(true);
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PingResults {
    pub answered: Vec<u64>,
    /// The newest answered argument of [`ConnectionObserver::expect_keys_ping`].
    pub keys_answered: Option<u64>,
    /// A later packet was acknowledged and the PING was not: it is probably lost.
    pub send_again: bool,
    /// Events of connection IDs.
    pub ids: Vec<Event>,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    results: AtomicBool,
    peer_has_closed: AtomicBool,
    path_answered: AtomicBool,
}

#[derive(Default)]
struct State {
    pings: Vec<Ping>,
    /// Packet numbers that carried a PING, the newest last.
    sealed: VecDeque<u64>,
    answered: Vec<u64>,
    keys_answered: Option<u64>,
    send_again: bool,
    close_frame_type: Option<u64>,
    awaits_close: bool,
    ids: Option<IdObserver>,
    /// The limit in the peer's MAX_DATA frames, while the state machine assumes a higher one.
    max_data: Option<u64>,
    /// The data that a PATH_RESPONSE must repeat.
    challenge: Option<[u8; 8]>,
    paths: Option<Box<PathObserver>>,
}

struct Ping {
    asker: Asker,
    /// The first packet with a PING that was sealed after the request.
    first: Option<u64>,
}

#[derive(Clone, Copy)]
enum Asker {
    Host(u64),
    Keys(u64),
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PacketObserver for Inner {
    fn sealing(&self, space: Space, number: u64, overhead: usize, payload: &mut [u8]) -> usize {
        let mut state = self.state();
        if let Some(frame_type) = state.close_frame_type {
            transport_close::rewrite(payload, frame_type);
        }
        let awaited = space == Space::Data && !state.pings.is_empty();
        if awaited && Frames::new(payload).any(|(_, _, frame)| frame == Frame::Ping) {
            state.sealed_ping(number);
        }
        match &mut state.paths {
            Some(paths) if space == Space::Data => paths.sealing(number, overhead, payload),
            _ => payload.len(),
        }
    }

    fn opened(&self, space: Space, payload: &[u8]) {
        let mut state = self.state();
        if state.awaits_close && Frames::new(payload).any(|(_, _, frame)| is_close(frame)) {
            self.peer_has_closed.store(true, Ordering::Relaxed);
        }
        if let Some(ids) = state.ids.as_mut().filter(|_| space == Space::Data) {
            ids.opened(payload);
            self.results.fetch_or(ids.has_events(), Ordering::Relaxed);
        }
        if space != Space::Data {
            return;
        }
        if let Some(paths) = &mut state.paths {
            paths.opened(payload);
        }
        if let Some(max) = &mut state.max_data {
            for (_, _, frame) in Frames::new(payload) {
                if let Frame::MaxData(bytes) = frame {
                    *max = bytes.max(*max);
                }
            }
        }
        if let Some(data) = state.challenge {
            let answers = |frame| frame == Frame::PathResponse(data);
            if Frames::new(payload).any(|(_, _, frame)| answers(frame)) {
                self.path_answered.store(true, Ordering::Relaxed);
            }
        }
        if state.sealed.is_empty() {
            return;
        }
        for (_, _, frame) in Frames::new(payload) {
            let Frame::Ack(ack) = frame else { continue };
            let covered = state
                .sealed
                .iter()
                .rev()
                .copied()
                .find(|&number| ack.covers(number));
            match covered {
                Some(number) => state.acknowledged(number),
                None if state
                    .sealed
                    .back()
                    .is_some_and(|&newest| ack.largest > newest) =>
                {
                    state.send_again = !state.pings.is_empty();
                }
                None => continue,
            }
            self.results.store(true, Ordering::Relaxed);
        }
    }

    fn passing_on(&self, space: Space, payload: &mut BytesMut) {
        if space != Space::Data {
            return;
        }
        let mut state = self.state();
        if state
            .paths
            .as_mut()
            .is_some_and(|paths| paths.passing_on(payload))
        {
            // The caller that takes the results closes the tap.
            self.results.store(true, Ordering::Relaxed);
        }
    }
}

fn is_close(frame: Frame<'_>) -> bool {
    matches!(frame, Frame::ApplicationClose | Frame::TransportClose)
}

impl State {
    fn is_closing(&self) -> bool {
        self.close_frame_type.is_some() || self.awaits_close
    }

    /// True if packets must be observed.
    fn is_needed(&self) -> bool {
        let is_asking = !self.pings.is_empty() || self.challenge.is_some();
        let is_watching = self.ids.is_some() || self.paths.is_some() || self.max_data.is_some();
        is_asking || is_watching || self.is_closing()
    }

    fn drop_paths(&mut self) {
        self.paths.take_if(|paths| paths.may_end());
    }

    fn sealed_ping(&mut self, number: u64) {
        for ping in self.pings.iter_mut().filter(|ping| ping.first.is_none()) {
            ping.first = Some(number);
        }
        if self.sealed.len() == SEALED_MAX {
            self.sealed.pop_front();
        }
        self.sealed.push_back(number);
    }

    /// A PING in packet `number` answers every request made before that packet was sealed.
    fn acknowledged(&mut self, number: u64) {
        let (answered, keys_answered) = (&mut self.answered, &mut self.keys_answered);
        self.pings.retain(|ping| {
            if ping.first.is_none_or(|first| first > number) {
                return true;
            }
            match ping.asker {
                Asker::Host(uid) => answered.push(uid),
                Asker::Keys(changes) => *keys_answered = Some(changes).max(*keys_answered),
            }
            false
        });
        self.sealed.retain(|&sealed| sealed > number);
    }
}

/// How many unanswered PING packets are remembered. More are only sent when PINGs keep being lost, and then the
/// newest matter.
const SEALED_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(largest: u8, first_range: u8) -> [u8; 5] {
        [0x02, largest, 0, 0, first_range]
    }

    fn observer() -> (ConnectionObserver, Arc<Inner>) {
        let observer = ConnectionObserver::new(Arc::default());
        let inner = observer.inner.clone();
        (observer, inner)
    }

    #[test]
    fn ping_is_answered_by_an_ack_of_its_packet_only() {
        let (mut observer, inner) = observer();
        observer.expect_ping(7);
        inner.opened(Space::Data, &ack(3, 3));
        inner.sealing(Space::Data, 4, 25, &mut [0x08, 0, 1, 2]);
        inner.sealing(Space::Data, 5, 25, &mut [0x01, 0, 0]);
        inner.opened(Space::Data, &ack(4, 4));
        inner.opened(Space::Handshake, &ack(5, 0));
        assert_eq!(observer.poll_pings(), None);
        inner.opened(Space::Data, &ack(5, 0));
        assert_eq!(observer.poll_pings().unwrap().answered, [7]);
        inner.opened(Space::Data, &ack(5, 0));
        assert_eq!(observer.poll_pings(), None, "answered once");
    }

    #[test]
    fn an_answer_about_older_keys_says_nothing_of_newer_ones() {
        let (mut observer, inner) = observer();
        observer.expect_keys_ping(1);
        inner.sealing(Space::Data, 4, 25, &mut [0x01]);
        observer.expect_keys_ping(2);
        inner.sealing(Space::Data, 9, 25, &mut [0x01]);
        inner.opened(Space::Data, &ack(4, 0));
        assert_eq!(observer.poll_pings().unwrap().keys_answered, Some(1));
        inner.opened(Space::Data, &ack(9, 0));
        assert_eq!(observer.poll_pings().unwrap().keys_answered, Some(2));
    }

    #[test]
    fn lost_ping_is_sent_again_and_a_younger_question_waits_for_its_own_packet() {
        let (mut observer, inner) = observer();
        observer.expect_ping(1);
        inner.sealing(Space::Data, 10, 25, &mut [0x01]);
        observer.expect_ping(2);
        inner.opened(Space::Data, &ack(11, 0));
        assert_eq!(
            observer.poll_pings().unwrap(),
            PingResults {
                send_again: true,
                ..PingResults::default()
            }
        );
        inner.sealing(Space::Data, 12, 25, &mut [0x01]);
        inner.opened(Space::Data, &ack(10, 0));
        assert_eq!(observer.poll_pings().unwrap().answered, [1]);
        inner.opened(Space::Data, &ack(12, 0));
        assert_eq!(observer.poll_pings().unwrap().answered, [2]);
    }
}
