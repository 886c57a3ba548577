//! The hook of a connection's packet keys: shows packets in plain text to an observer and to a recorder.
//!
//! quinn-proto does not expose packet numbers and acknowledgements. But this crate wraps its packet keys, which see
//! every payload before it is sealed and after it is opened. Not here: parsing of payloads.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use bytes::BytesMut;
use uringcore_wire::packet_header::Space;

use crate::qlog::{ConnectionIds, Direction, KeyName, Packet, Recorder};
use crate::workarounds::{
    max_datagram_frame_size::DatagramLimit, path_challenge::ProbeSlot,
    received_offsets::ReceivedOffsets, reset_stream_at::ResetSlot,
};

/// Receives the packets that a [`PacketHook`] shows.
pub(crate) trait PacketObserver: Send + Sync {
    /// Called before a packet is sealed, with `overhead` bytes of header and tag. May rewrite the payload. Returns how
    /// many of its first bytes must be sealed.
    fn sealing(&self, space: Space, number: u64, overhead: usize, payload: &mut [u8]) -> usize;
    /// Called after a packet was opened and is authentic. It may be a duplicate.
    fn opened(&self, space: Space, payload: &[u8]);
    /// Called before the packet is passed to quinn-proto. May rewrite the payload.
    fn passing_on(&self, space: Space, payload: &mut BytesMut);
}

/// The hook of one connection. If it is closed, a packet costs one relaxed load.
#[derive(Default)]
pub(crate) struct PacketHook {
    open: AtomicBool,
    /// True if the observer receives packets. The recorder always does.
    observed: AtomicBool,
    observer: OnceLock<Arc<dyn PacketObserver>>,
    recorder: OnceLock<Arc<Recorder>>,
    ids: OnceLock<ConnectionIds>,
    key_sets: AtomicU64,
    has_opened_handshake: AtomicBool,
    probe: ProbeSlot,
    resets: ResetSlot,
    received_offsets: ReceivedOffsets,
    datagram_limit: DatagramLimit,
}

impl PacketHook {
    /// Makes a hook that passes each packet to `recorder`.
    pub fn recorded(recorder: Arc<Recorder>) -> Self {
        Self {
            open: AtomicBool::new(true),
            recorder: OnceLock::from(recorder),
            ..Self::default()
        }
    }

    /// Sets the observer, once. It receives no packets before [`set_open`](Self::set_open).
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

    /// The packet that is sealed instead of the next PING.
    pub fn probe(&self) -> &ProbeSlot {
        &self.probe
    }

    /// RESET_STREAM_AT frames that were received.
    pub fn resets(&self) -> &ResetSlot {
        &self.resets
    }

    /// Sets the limit on DATAGRAM frames of the peer.
    pub fn set_datagram_limit(&mut self, limit: DatagramLimit) {
        self.datagram_limit = limit;
    }

    /// The limit on DATAGRAM frames of the peer.
    pub fn datagram_limit(&self) -> DatagramLimit {
        self.datagram_limit
    }

    /// The offsets up to which the data of streams has arrived.
    pub fn received_offsets(&self) -> &ReceivedOffsets {
        &self.received_offsets
    }

    /// Counts keys of a further key phase: the first ones are made before any key update, later ones at every update.
    /// Returns the generation of the keys; the keys of the handshake have generation 0.
    pub(in crate::tls) fn count_key_phase(&self) -> u64 {
        let before = self.key_sets.fetch_add(1, Ordering::Relaxed);
        if let Some(recorder) = self.recorder().filter(|_| before > 0) {
            recorder.keys_updated();
        }
        before + 1
    }

    /// Records that keys of one direction were made.
    pub(in crate::tls) fn key_made(&self, key: KeyName) {
        if let Some(recorder) = self.recorder() {
            recorder.key_made(key);
        }
    }

    /// Records that keys of one direction were dropped.
    pub(in crate::tls) fn key_dropped(&self, key: KeyName) {
        if let Some(recorder) = self.recorder() {
            recorder.key_dropped(key);
        }
    }

    /// Records a packet that could not be opened. `is_of_known_version` is false if there are no keys for its version.
    pub(in crate::tls) fn unopened(&self, space: Space, header: &[u8], is_of_known_version: bool) {
        if let Some(recorder) = self.recorder() {
            recorder.unopened(space, header, is_of_known_version);
        }
    }

    /// The number of key updates of 1-RTT packets.
    pub fn key_updates(&self) -> u64 {
        self.key_sets.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// The connection IDs of the first packets. Empty until they are known.
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

    /// Records that a Handshake packet was opened. Its sender has the keys, so it has received packets at its address.
    pub(in crate::tls) fn handshake_opened(&self) {
        self.has_opened_handshake.store(true, Ordering::Relaxed);
    }

    /// True if the peer has sent an authentic Handshake packet.
    pub fn has_opened_handshake(&self) -> bool {
        self.has_opened_handshake.load(Ordering::Relaxed)
    }

    /// Shows a packet before it is sealed. Returns how many bytes of the payload must be sealed.
    pub(in crate::tls) fn sealing(
        &self,
        space: Space,
        number: u64,
        header: &[u8],
        payload: &mut [u8],
        tag_len: usize,
    ) -> usize {
        if !self.open.load(Ordering::Relaxed) {
            return payload.len();
        }
        let mut length = payload.len();
        if self.observed.load(Ordering::Relaxed)
            && let Some(observer) = self.observer.get()
        {
            length = observer.sealing(space, number, header.len() + tag_len, payload);
        }
        let sealed = &payload[..length];
        self.record(Direction::Sent, space, number, header, sealed, tag_len);
        length
    }

    pub(in crate::tls) fn opened(
        &self,
        space: Space,
        number: u64,
        header: &[u8],
        payload: &mut BytesMut,
        tag_len: usize,
    ) {
        if !self.open.load(Ordering::Relaxed) {
            return;
        }
        let observer = match self.observed.load(Ordering::Relaxed) {
            true => self.observer.get(),
            false => None,
        };
        if let Some(observer) = observer {
            observer.opened(space, payload);
        }
        self.record(Direction::Received, space, number, header, payload, tag_len);
        if let Some(observer) = observer {
            observer.passing_on(space, payload);
        }
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
