//! Observes and edits packets in plain text, through the hook of the packet keys (`tls::keys::packet_hook`). Passes
//! them to the observers of pings (`ping_observer`), connection IDs (`connection_id_observer`) and paths
//! (`path_observer`), turns a CONNECTION_CLOSE of the application into one of the transport, and detects the peer's
//! answers to a close and to a path challenge.
//!
//! quinn-proto offers none of that: its `ping` reports no answer, its `close` is always the application's, and it
//! does not report if the peer received the close. The hook is closed unless a ping is outstanding, a close is in
//! progress, a path is probed, connection IDs are reported or the peer is at an address that is not validated.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use bytes::BytesMut;
use quinn_proto as quinn;
use uringcore_wire::{
    frame_iterator::{Frame, Frames, ResetAt},
    packet_header::Space,
};

use super::{
    connection_id_observer::ConnectionIdObserver,
    path_observer::{PacketLimit, PathObserver, Sealed},
    ping_observer::{PingObserver, PingResults, Purpose},
};
use crate::tls::{PacketHook, PacketObserver, ProbeSlot};
use crate::{
    Event,
    workarounds::{received_offsets::ReceivedOffsets, transport_close},
};

/// Starts and ends the observation of one connection's packets, and returns the results.
pub(super) struct ConnectionObserver {
    hook: Arc<PacketHook>,
    inner: Arc<Inner>,
    /// The identifiers of pings that wait until the handshake is complete.
    early_pings: Vec<u64>,
    /// quinn-proto's counter of received RESET_STREAM frames when the last RESET_STREAM was inserted.
    resets_accepted: u64,
}

impl ConnectionObserver {
    pub fn new(hook: Arc<PacketHook>) -> Self {
        let inner = Arc::new(Inner::default());
        hook.attach(inner.clone());
        Self {
            hook,
            inner,
            early_pings: Vec::new(),
            resets_accepted: 0,
        }
    }

    /// Starts again with a new quinn-proto connection, which replaces the first one.
    pub fn begin_again(&mut self, hook: Arc<PacketHook>) {
        *self = Self {
            early_pings: std::mem::take(&mut self.early_pings),
            ..Self::new(hook)
        };
    }

    /// Stores a ping until the handshake is complete.
    pub fn keep_ping(&mut self, uid: u64) {
        self.early_pings.push(uid);
    }

    /// Returns the stored pings, when the handshake is complete.
    pub fn take_early_pings(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.early_pings)
    }

    /// Waits for the acknowledgement of a PING with the identifier `uid`. The caller makes quinn-proto send the PING.
    pub fn expect_ping(&mut self, uid: u64) {
        self.expect(Purpose::Application(uid));
    }

    /// Waits for the acknowledgement of a PING, which proves that the peer has the keys after `changes` updates.
    pub fn expect_keys_ping(&mut self, changes: u64) {
        self.expect(Purpose::Keys(changes));
    }

    fn expect(&mut self, purpose: Purpose) {
        self.inner.state().pings.expect(purpose);
        self.hook.set_open(true);
    }

    /// The results since the last call. `None` if nothing was observed.
    pub fn poll(&mut self) -> Option<Observed> {
        // Most calls find no results. A plain load leaves the cache line shared, while a swap would claim it for this
        // processor core.
        let has_results = &self.inner.has_results;
        if !has_results.load(Ordering::Relaxed) || !has_results.swap(false, Ordering::Relaxed) {
            return None;
        }
        let mut state = self.inner.state();
        let observed = Observed {
            pings: state.pings.take_results(),
            ids: state
                .ids
                .as_mut()
                .map(ConnectionIdObserver::take_events)
                .unwrap_or_default(),
        };
        state.drop_paths();
        if !state.pings.is_waiting() {
            self.hook.set_open(state.is_needed());
        }
        Some(observed)
    }

    /// Observes the connection IDs that this side issues after `first`, and those that the peer retires.
    pub fn expect_ids(&mut self, first: Vec<u8>) {
        self.inner.state().ids = Some(ConnectionIdObserver::new(first));
        self.hook.set_open(true);
    }

    /// Records a connection ID that this side has generated. Returns true if the application must get an event for the
    /// ID.
    pub fn issued(&self, id: &[u8]) -> bool {
        let mut state = self.inner.state();
        state.ids.as_mut().is_some_and(|ids| ids.issued(id))
    }

    pub fn observes_ids(&self) -> bool {
        self.inner.state().ids.is_some()
    }

    /// The slot of a packet that replaces the next PING: the packet key seals the packet in the slot in its place.
    pub fn probe(&self) -> &ProbeSlot {
        self.hook.probe()
    }

    /// True if RESET_STREAM_AT frames have arrived and were not taken, or if RESET_STREAM frames are being inserted.
    pub fn uses_resets(&self) -> bool {
        self.hook.resets().is_used()
    }

    /// The RESET_STREAM_AT frames that have arrived since the last call.
    pub fn take_resets(&mut self) -> Vec<ResetAt> {
        self.hook.resets().take_found()
    }

    /// Starts inserting RESET_STREAM frames into received packets between their decryption and quinn-proto, which has
    /// no RESET_STREAM_AT (`workarounds::reset_stream_at`). quinn-proto drops duplicate packets with all their frames,
    /// so the frames are inserted into each packet until [`confirm_resets`](Self::confirm_resets) finds that it has
    /// accepted one.
    pub fn insert_resets(&mut self, conn: &quinn::Connection, due: Vec<ResetAt>) {
        if !due.is_empty() {
            self.hook.resets().insert(due);
            self.resets_accepted = conn.stats().frame_rx.reset_stream;
        }
    }

    /// Stops inserting RESET_STREAM frames if quinn-proto has accepted one.
    pub fn confirm_resets(&mut self, conn: &quinn::Connection) {
        let resets = self.hook.resets();
        if resets.is_due() && conn.stats().frame_rx.reset_stream != self.resets_accepted {
            resets.accepted();
        }
    }

    /// The offsets up to which the data of streams has arrived.
    pub fn received_offsets(&self) -> &ReceivedOffsets {
        self.hook.received_offsets()
    }

    /// Observes the peer's MAX_DATA frames. `bytes` is the peer's present limit; quinn-proto assumes a higher one.
    pub fn expect_max_data(&mut self, bytes: u64) {
        self.inner.state().max_data = Some(bytes);
        self.hook.set_open(true);
    }

    /// The peer's current limit on all streams' data. `None` if it is not observed.
    pub fn max_data(&self) -> Option<u64> {
        self.inner.state().max_data
    }

    pub fn forget_max_data(&mut self) {
        let mut state = self.inner.state();
        state.max_data = None;
        self.hook.set_open(state.is_needed());
    }

    /// Waits for a PATH_RESPONSE with `data` (RFC 9000 section 8.2.1).
    pub fn expect_path_response(&mut self, data: [u8; 8]) {
        self.inner.state().challenge = Some(data);
        self.inner.path_answered.store(false, Ordering::Relaxed);
        self.hook.set_open(true);
    }

    /// True if the PATH_RESPONSE has arrived, on any path (RFC 9000 section 8.2.3).
    pub fn path_answered(&self) -> bool {
        self.inner.path_answered.load(Ordering::Relaxed)
    }

    /// Stops waiting for the PATH_RESPONSE.
    pub fn forget_path(&mut self) {
        let mut state = self.inner.state();
        state.challenge = None;
        self.inner.path_answered.store(false, Ordering::Relaxed);
        self.hook.set_open(state.is_needed());
    }

    /// Observes packets with PATH_CHALLENGE and PATH_RESPONSE frames, while the client may be at an unproved address.
    pub fn observe_paths(&mut self) {
        let mut state = self.inner.state();
        state.paths.get_or_insert_default().set_over(false);
        self.hook.set_open(true);
    }

    pub fn stop_observing_paths(&mut self) {
        let mut state = self.inner.state();
        if let Some(paths) = &mut state.paths {
            paths.set_over(true);
        }
        state.drop_paths();
        self.hook.set_open(state.is_needed());
    }

    /// Limits the length of the packets that are sealed before the next [`take_sealed`](Self::take_sealed).
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

    /// The data of PATH_RESPONSE frames that have arrived since the last call.
    pub fn take_path_responses(&mut self) -> Vec<[u8; 8]> {
        let mut state = self.inner.state();
        let paths = state.paths.as_mut();
        paths
            .map(|paths| paths.take_responses())
            .unwrap_or_default()
    }

    /// True if the peer has sent an authentic Handshake packet.
    pub fn has_opened_handshake(&self) -> bool {
        self.hook.has_opened_handshake()
    }

    /// Waits for the peer's CONNECTION_CLOSE, which shows that it has received ours.
    pub fn expect_close(&mut self) {
        self.inner.state().awaits_close = true;
        self.hook.set_open(true);
    }

    /// True if a CONNECTION_CLOSE of the peer has arrived since [`expect_close`](Self::expect_close).
    pub fn peer_has_closed(&self) -> bool {
        self.inner.peer_has_closed.load(Ordering::Relaxed)
    }

    /// Turns the next CONNECTION_CLOSE into one of the transport that names `frame_type`. The reason of the close must
    /// begin with the bytes of [`transport_close::filler`].
    pub fn close_as_transport(&mut self, frame_type: u64) {
        self.inner.state().close_frame_type = Some(frame_type);
        self.hook.set_open(true);
    }
}

/// The results of observing one connection's packets.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Observed {
    pub pings: PingResults,
    /// Events about connection IDs.
    pub ids: Vec<Event>,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    has_results: AtomicBool,
    peer_has_closed: AtomicBool,
    path_answered: AtomicBool,
}

#[derive(Default)]
struct State {
    pings: PingObserver,
    close_frame_type: Option<u64>,
    awaits_close: bool,
    ids: Option<ConnectionIdObserver>,
    /// The limit in the peer's last MAX_DATA frame. `None` unless quinn-proto assumes a higher limit.
    max_data: Option<u64>,
    /// The data of the PATH_CHALLENGE that waits for its PATH_RESPONSE.
    challenge: Option<[u8; 8]>,
    paths: Option<Box<PathObserver>>,
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
        if space != Space::Data {
            return payload.len();
        }
        state.pings.sealing(number, payload);
        match &mut state.paths {
            Some(paths) => paths.sealing(number, overhead, payload),
            None => payload.len(),
        }
    }

    fn opened(&self, space: Space, payload: &[u8]) {
        let mut state = self.state();
        if state.awaits_close && Frames::new(payload).any(|(_, _, frame)| is_close(frame)) {
            self.peer_has_closed.store(true, Ordering::Relaxed);
        }
        if let Some(ids) = state.ids.as_mut().filter(|_| space == Space::Data) {
            ids.opened(payload);
            self.has_results
                .fetch_or(ids.has_events(), Ordering::Relaxed);
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
        if state.pings.opened(payload) {
            self.has_results.store(true, Ordering::Relaxed);
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
            // `ConnectionObserver::poll` takes the results and closes the hook.
            self.has_results.store(true, Ordering::Relaxed);
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

    /// True if the hook must stay open.
    fn is_needed(&self) -> bool {
        let is_asking = self.pings.is_waiting() || self.challenge.is_some();
        let is_watching = self.ids.is_some() || self.paths.is_some() || self.max_data.is_some();
        is_asking || is_watching || self.is_closing()
    }

    fn drop_paths(&mut self) {
        self.paths.take_if(|paths| paths.may_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACK: [u8; 5] = [0x02, 5, 0, 0, 0];
    const CLOSE: [u8; 4] = [0x1d, 0, 0, 0];

    fn observer() -> (ConnectionObserver, Arc<Inner>) {
        let observer = ConnectionObserver::new(Arc::default());
        let packets = observer.inner.clone();
        (observer, packets)
    }

    #[test]
    fn only_acks_in_1_rtt_packets_answer_pings() {
        let (mut observer, packets) = observer();
        observer.expect_ping(7);
        packets.sealing(Space::Handshake, 5, 25, &mut [0x01, 0, 0]);
        packets.opened(Space::Data, &ACK);
        assert_eq!(observer.poll(), None);
        packets.sealing(Space::Data, 5, 25, &mut [0x01, 0, 0]);
        packets.opened(Space::Handshake, &ACK);
        assert_eq!(observer.poll(), None);
        assert!(packets.state().is_needed());
        packets.opened(Space::Data, &ACK);
        assert_eq!(observer.poll().unwrap().pings.answered, [7]);
        assert!(!packets.state().is_needed());
        packets.opened(Space::Data, &ACK);
        assert_eq!(observer.poll(), None);
    }

    #[test]
    fn pings_before_the_handshake_survive_a_change_of_version() {
        let (mut observer, _) = observer();
        observer.keep_ping(1);
        observer.begin_again(Arc::default());
        observer.keep_ping(2);
        assert_eq!(observer.take_early_pings(), [1, 2]);
        assert_eq!(observer.take_early_pings(), [0; 0]);
    }

    #[test]
    fn a_close_of_the_peer_is_an_answer_only_after_this_sides_close() {
        let (mut observer, packets) = observer();
        packets.opened(Space::Data, &CLOSE);
        assert!(!observer.peer_has_closed());
        observer.expect_close();
        packets.opened(Space::Data, &[0x01]);
        assert!(!observer.peer_has_closed());
        packets.opened(Space::Handshake, &CLOSE);
        assert!(observer.peer_has_closed());
    }

    #[test]
    fn max_data_frames_raise_the_observed_limit() {
        let (mut observer, packets) = observer();
        let max_data = |bytes: u8| [0x10, bytes];
        observer.expect_max_data(20);
        packets.opened(Space::Data, &max_data(10));
        assert_eq!(observer.max_data(), Some(20));
        packets.opened(Space::Data, &max_data(30));
        assert_eq!(observer.max_data(), Some(30));
        observer.forget_max_data();
        packets.opened(Space::Data, &max_data(40));
        assert_eq!(observer.max_data(), None);
    }

    #[test]
    fn only_a_path_response_with_the_challenges_data_is_an_answer() {
        let (mut observer, packets) = observer();
        let response = |byte: u8| [&[0x1b][..], &[byte; 8]].concat();
        observer.expect_path_response([7; 8]);
        packets.opened(Space::Data, &response(6));
        assert!(!observer.path_answered());
        packets.opened(Space::Data, &response(7));
        assert!(observer.path_answered());
        observer.forget_path();
        assert!(!observer.path_answered());
    }
}
