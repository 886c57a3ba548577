//! A tap on a connection's packets where they are still, or again, in the clear.
//!
//! The QUIC state machine keeps packet numbers and acknowledgements to itself. Its packet keys are
//! ours though, and they see every payload before it is sealed and after it is opened. Nothing here
//! knows what is in a payload.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::qlog::{ConnectionIds, Direction, KeyName, Packet, Recorder};
use crate::seams::{path_challenge::ProbeSlot, reset_stream_at::ResetSlot};
use crate::wire::header::Space;

/// Whoever listens to a tap.
pub(crate) trait PacketObserver: Send + Sync {
    /// A packet is about to be sealed. The payload may be rewritten; its length is final.
    fn sealing(&self, space: Space, number: u64, payload: &mut [u8]);
    /// A packet was opened and is authentic. It may be a duplicate.
    fn opened(&self, space: Space, payload: &[u8]);
}

/// One connection's tap. While nobody listens it costs one relaxed load a packet.
#[derive(Default)]
pub(crate) struct Tap {
    open: AtomicBool,
    /// Whether the observer wants to hear of packets; the recorder always does.
    observed: AtomicBool,
    observer: OnceLock<Arc<dyn PacketObserver>>,
    recorder: OnceLock<Arc<Recorder>>,
    ids: OnceLock<ConnectionIds>,
    key_sets: AtomicU64,
    probe: ProbeSlot,
    resets: ResetSlot,
}

impl Tap {
    /// A tap whose packets are recorded.
    pub fn recorded(recorder: Arc<Recorder>) -> Self {
        Self {
            open: AtomicBool::new(true),
            recorder: OnceLock::from(recorder),
            ..Self::default()
        }
    }

    /// Names the observer, once. It hears nothing before [`set_open`](Self::set_open).
    pub fn attach(&self, observer: Arc<dyn PacketObserver>) {
        let _ = self.observer.set(observer);
    }

    pub fn set_open(&self, open: bool) {
        self.observed.store(open, Ordering::Relaxed);
        self.open
            .store(open || self.recorder.get().is_some(), Ordering::Relaxed);
    }

    pub fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.recorder.get()
    }

    /// What is sealed in the place of a PING.
    pub fn probe(&self) -> &ProbeSlot {
        &self.probe
    }

    /// What RESET_STREAM_AT frames say.
    pub fn resets(&self) -> &ResetSlot {
        &self.resets
    }

    /// Keys of the next phase are being made: once ahead of the first change, then at every change.
    /// Returns their generation; the first keys had 0.
    pub(in crate::tls) fn make_keys(&self) -> u64 {
        let before = self.key_sets.fetch_add(1, Ordering::Relaxed);
        if let Some(recorder) = self.recorder().filter(|_| before > 0) {
            recorder.keys_updated();
        }
        before + 1
    }

    /// Keys for one direction are there.
    pub(in crate::tls) fn key_made(&self, key: KeyName) {
        if let Some(recorder) = self.recorder() {
            recorder.key_made(key);
        }
    }

    /// They are gone.
    pub(in crate::tls) fn key_dropped(&self, key: KeyName) {
        if let Some(recorder) = self.recorder() {
            recorder.key_dropped(key);
        }
    }

    /// A packet was not opened: its keys do not fit, or there are none for its version.
    pub(in crate::tls) fn unopened(&self, space: Space, header: &[u8], is_of_known_version: bool) {
        if let Some(recorder) = self.recorder() {
            recorder.unopened(space, header, is_of_known_version);
        }
    }

    /// How often the keys of 1-RTT packets were changed.
    pub fn key_updates(&self) -> u64 {
        self.key_sets.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// The connection IDs of the first packets, once they are known.
    pub fn ids(&self) -> ConnectionIds {
        self.ids.get().cloned().unwrap_or_default()
    }

    pub(in crate::tls) fn local_parameters(&self, encoded: &[u8]) {
        if let Some(recorder) = self.recorder() {
            recorder.local_parameters(encoded);
        }
    }

    pub(in crate::tls) fn set_ids(&self, ids: ConnectionIds) {
        let _ = self.ids.set(ids);
    }

    pub(in crate::tls) fn sealing(
        &self,
        space: Space,
        number: u64,
        header: &[u8],
        payload: &mut [u8],
        tag_len: usize,
    ) {
        if !self.open.load(Ordering::Relaxed) {
            return;
        }
        if self.observed.load(Ordering::Relaxed)
            && let Some(observer) = self.observer.get()
        {
            observer.sealing(space, number, payload);
        }
        self.record(Direction::Sent, space, number, header, payload, tag_len);
    }

    pub(in crate::tls) fn opened(
        &self,
        space: Space,
        number: u64,
        header: &[u8],
        payload: &[u8],
        tag_len: usize,
    ) {
        if !self.open.load(Ordering::Relaxed) {
            return;
        }
        if self.observed.load(Ordering::Relaxed)
            && let Some(observer) = self.observer.get()
        {
            observer.opened(space, payload);
        }
        self.record(Direction::Received, space, number, header, payload, tag_len);
    }

    pub(in crate::tls) fn record(
        &self,
        direction: Direction,
        space: Space,
        number: u64,
        header: &[u8],
        payload: &[u8],
        tag_len: usize,
    ) {
        if let Some(recorder) = self.recorder.get() {
            recorder.packet(&Packet {
                direction,
                space,
                number,
                header,
                payload,
                tag_len,
            });
        }
    }
}
