//! qlog events of a connection's packets (draft-ietf-quic-qlog-main-schema-02 and draft-ietf-quic-qlog-quic-events,
//! which qvis reads).
//!
//! - `frames`: the frames of a packet's payload.
//! - `packet_header`: the header of a packet.
//! - `transport_parameters`: transport parameters.
//! - `dropped_packets`: received packets that were dropped.
//! - `recovery_metrics`: round-trip times and congestion.
//! - `key_events`: creation and removal of keys.
//! - `path_addresses`: addresses.
//! - `event_log`: the list of events, stored or passed on.
//! - `json_writer`: writing JSON.
//!
//! A [`Recorder`] belongs to one connection. The connection calls it, and so do the packet keys, which see every
//! packet in plain text (`tls::keys::packet_hook`). The data of an event is JSON; its name and time are separate. Not
//! here: files, the wall clock, and an application's own events.

mod dropped_packets;
mod event_log;
mod frames;
mod json_writer;
mod key_events;
mod packet_header;
mod path_addresses;
mod recovery_metrics;
mod transport_parameters;

use std::{
    net::SocketAddr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use uringcore_wire::{
    coalesced_packets::CoalescedPacket,
    frame_iterator::{Frame, Frames},
    packet_header::{PacketType, Space, is_long},
};

use crate::workarounds::{
    duplicate_packet_detection::ReceivedNumbers,
    lost_packet_detection::{Flight, Sent, Trigger},
};
use dropped_packets::UnreportedPackets;
use event_log::EventLog;
pub use event_log::{EVENTS_MAX, Recorded, Sink};
use json_writer::{List, Object};
pub(crate) use key_events::{Epoch, KeyName};
pub(crate) use path_addresses::Started;
pub(crate) use recovery_metrics::Metrics;
use recovery_metrics::Recovery;
pub(crate) use transport_parameters::ConnectionIds;

/// The direction of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Sent,
    Received,
}

/// A packet in plain text.
pub(crate) struct Packet<'a> {
    pub direction: Direction,
    pub space: Space,
    pub number: u64,
    pub header: &'a [u8],
    pub payload: &'a [u8],
    pub tag_len: usize,
}

impl Packet<'_> {
    fn length(&self) -> usize {
        self.header.len() + self.payload.len() + self.tag_len
    }

    fn packet_type(&self) -> PacketType {
        PacketType::in_space(self.space, is_long(self.header))
    }
}

/// The events of one connection. They are stored until they are taken, [`EVENTS_MAX`] at most, or passed to a
/// [`Sink`].
#[derive(Debug)]
pub struct Recorder {
    is_client: bool,
    /// True if no more events are stored, so that packets need not be decoded.
    is_over: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    event_log: EventLog,
    recovery: Recovery,
    flight: Flight,
    unreported: UnreportedPackets,
    received: [ReceivedNumbers; 3],
    keys: key_events::Keys,
    is_receiving: bool,
    /// The destination connection IDs of this side's last packet, and of the peer's.
    destinations: [Option<Vec<u8>>; 2],
    /// The number and the spin bit of the newest 1-RTT packet that has arrived.
    spin: Option<(u64, bool)>,
    /// The exponent of delays in the peer's ACK frames (RFC 9000 section 18.2).
    peer_ack_delay_exponent: Option<u32>,
    has_remote_parameters: bool,
}

impl Recorder {
    pub(crate) fn new(is_client: bool) -> Self {
        Self {
            is_client,
            is_over: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Passes the stored events to `sink`, and then each event when it happens, until the sink refuses one.
    pub fn hand_to(&self, sink: Box<dyn Sink>) {
        let mut state = self.state();
        state.event_log.hand_to(sink);
        self.free_if_over(state);
    }

    /// Drops stored events, and records no more.
    pub fn end(&self) {
        let mut state = self.state();
        state.event_log.end();
        self.free_if_over(state);
    }

    /// Frees the state when no more events are recorded.
    fn free_if_over(&self, mut state: MutexGuard<'_, State>) {
        if state.event_log.is_over() && !self.is_over.swap(true, Ordering::Relaxed) {
            *state = State::default();
            state.event_log.end();
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Removes and returns the stored events.
    pub fn take(&self) -> Vec<Recorded> {
        self.state().event_log.take()
    }

    /// Records an event of the application, with the time of the last event. `data` is a JSON object.
    pub fn note(&self, name: impl Into<std::borrow::Cow<'static, str>>, data: String) {
        self.state().event_log.push(name, data);
    }

    /// Sets the time of the next events.
    pub(crate) fn set_time(&self, now: Instant) {
        self.state().event_log.set_time(now);
    }

    /// Called before a batch of packets is made.
    pub(crate) fn sending(&self, now: Instant) {
        if self.is_over() {
            return;
        }
        let mut state = self.state();
        state.event_log.set_time(now);
        state.flight.begin_batch();
    }

    /// Called when the connection restarts with another version, with packet numbers from 0 and other keys.
    pub(crate) fn begin_again(&self) {
        let mut state = self.state();
        state.flight = Flight::default();
        state.received = Default::default();
        state.recovery = Recovery::default();
    }

    pub(crate) fn packet(&self, packet: &Packet<'_>) {
        if self.is_over() {
            return;
        }
        match packet.direction {
            Direction::Sent => self.sent(packet),
            Direction::Received => self.received(packet),
        }
    }

    fn sent(&self, packet: &Packet<'_>) {
        let mut state = self.state();
        let (mut is_ack_eliciting, mut frames_end) = (false, 0);
        for (_, end, frame) in Frames::new(packet.payload) {
            frames_end = end;
            is_ack_eliciting |= !matches!(
                frame,
                Frame::Ack(_) | Frame::TransportClose | Frame::ApplicationClose
            );
        }
        // Bytes after the last frame are PADDING.
        let is_padded = frames_end < packet.payload.len();
        let at = state.event_log.time();
        state.flight.sent(Sent {
            number: packet.number,
            space: packet.space,
            packet_type: packet.packet_type(),
            length: packet.length(),
            at,
            is_ack_eliciting,
            is_in_flight: is_ack_eliciting || is_padded,
            is_probe: false,
        });
        state.note_destination(packet);
        let data = packet_data(packet, ACK_DELAY_EXPONENT);
        state.event_log.push("transport:packet_sent", data);
    }

    fn received(&self, packet: &Packet<'_>) {
        let mut state = self.state();
        state.unreported.seen(packet.packet_type());
        if !state.received[packet.space as usize].insert(packet.number) {
            state.dropped(Some(packet.packet_type()), "duplicate", packet.length());
            return;
        }
        state.note_destination(packet);
        let exponent = state.peer_ack_delay_exponent.unwrap_or(ACK_DELAY_EXPONENT);
        let data = packet_data(packet, exponent);
        state.event_log.push("transport:packet_received", data);
        for (_, _, frame) in Frames::new(packet.payload) {
            if let Frame::Ack(ack) = frame {
                state.flight.acked(packet.space, &ack);
            }
        }
        if packet.packet_type() == PacketType::OneRtt {
            state.note_spin(packet, self.is_client);
        }
    }

    /// Records a packet that no key could open, or whose version has no keys.
    pub(crate) fn unopened(&self, space: Space, header: &[u8], is_of_known_version: bool) {
        let packet_type = PacketType::in_space(space, is_long(header));
        let mut state = self.state();
        let length = state.unreported.seen(packet_type).unwrap_or_default();
        let trigger = match is_of_known_version {
            true => "payload_decrypt_error",
            false => "unsupported_version",
        };
        state.dropped(Some(packet_type), trigger, length);
    }

    /// Records a Retry packet, which no key protects. `header` ends before the token.
    pub(crate) fn retry(&self, header: &[u8], token_len: usize) {
        let mut state = self.state();
        state.unreported.seen(PacketType::Retry);
        // quinn-proto sends everything again after a Retry, 0-RTT packets included.
        state.flight.discard(Space::Initial);
        state.flight.discard(Space::Data);
        let mut data = Object::new();
        // There is no member `frames`: a Retry has none, and qvis fails on an empty list.
        data.raw("header", &packet_header::without_number("retry", header));
        data.raw("raw", &raw(header.len() + token_len));
        state
            .event_log
            .push("transport:packet_received", data.finish());
    }

    /// Records a Version Negotiation packet for this client, and the version that the client chose after it.
    pub(crate) fn negotiation(
        &self,
        packet: &[u8],
        offered: &[u32],
        supported: &[u32],
        chosen: Option<u32>,
    ) {
        let mut state = self.state();
        let mut data = Object::new();
        data.raw(
            "header",
            &packet_header::without_number("version_negotiation", packet),
        );
        data.raw("raw", &raw(packet.len()));
        state
            .event_log
            .push("transport:packet_received", data.finish());
        let data = version_information(Some(offered), Some(supported), chosen);
        state.event_log.push("transport:version_information", data);
    }

    /// Records the version that a server has chosen from the client's version information (RFC 9368), if that was sent.
    pub(crate) fn version_chosen(&self, ours: &[u32], theirs: Option<&[u32]>, chosen: u32) {
        let data = version_information(Some(ours), theirs, Some(chosen));
        self.state()
            .event_log
            .push("transport:version_information", data);
    }

    /// Records `count` sent datagrams of at most `size` bytes, `total` bytes in all. quinn-proto expects
    /// acknowledgements of `tracked` packets among them.
    pub(crate) fn datagrams_sent(
        &self,
        total: usize,
        size: usize,
        tracked: usize,
        has_probe: bool,
    ) {
        if self.is_over() {
            return;
        }
        let mut state = self.state();
        state.flight.batched(tracked, has_probe);
        state.datagrams("transport:datagrams_sent", total, size);
    }

    /// Called before a received datagram of `length` bytes, with these packets, is handled. `length` is `None` if the
    /// packets belong to the datagram of the last call.
    pub(crate) fn receiving(&self, length: Option<usize>, packets: Vec<CoalescedPacket>) {
        if self.is_over() {
            return;
        }
        let mut state = self.state();
        state.is_receiving = true;
        state.unreported.begin(packets);
        if let Some(length) = length {
            state.datagrams("transport:datagrams_received", length, length);
        }
    }

    /// Called after a datagram was handled. Packets that were not reported are recorded as dropped. If the whole
    /// datagram was dropped, `reason` is the cause.
    pub(crate) fn received_all(&self, reason: Option<&'static str>) {
        if self.is_over() {
            return;
        }
        let mut state = self.state();
        state.is_receiving = false;
        for arrival in state.unreported.finish() {
            let trigger = match (reason, arrival.packet_type) {
                (Some(reason), _) => reason,
                (None, None) => "header_parse_error",
                (None, Some(PacketType::Retry)) => "unexpected_packet",
                (None, Some(kind)) if state.keys.has(kind) => "header_parse_error",
                (None, Some(_)) => "key_unavailable",
            };
            state.dropped(arrival.packet_type, trigger, arrival.length);
        }
    }

    /// Records a packet that belongs to no connection and was probably meant for this one.
    pub(crate) fn unassigned(&self, packet: &CoalescedPacket, trigger: &'static str) {
        self.state()
            .dropped(packet.packet_type, trigger, packet.length);
    }

    pub(crate) fn local_parameters(&self, encoded: &[u8]) {
        let data = transport_parameters::to_json("local", encoded);
        self.state()
            .event_log
            .push("transport:parameters_set", data);
    }

    /// Records the peer's transport parameters, at the first call only.
    pub(crate) fn remote_parameters(&self, encoded: &[u8]) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.has_remote_parameters, true) {
            state.peer_ack_delay_exponent = transport_parameters::ack_delay_exponent(encoded);
            let data = transport_parameters::to_json("remote", encoded);
            state.event_log.push("transport:parameters_set", data);
        }
    }

    /// Records changes of the recovery metrics, after packets were received or sent and after timers.
    pub(crate) fn recovery(&self, metrics: Metrics) {
        if self.is_over() {
            return;
        }
        let mut state = self.state();
        let (packets, probes) = state.recovery.lost(&metrics);
        if packets + probes > 0 {
            for (packet, trigger) in state.flight.lost(packets, probes > 0) {
                state
                    .event_log
                    .push("recovery:packet_lost", lost(&packet, trigger));
            }
        }
        let in_flight = state.flight.bytes();
        for (name, data) in state.recovery.changed(metrics, in_flight) {
            state.event_log.push(name, data);
        }
        // This method runs after each batch and each datagram, so here the log notices soon that a sink has refused an
        // event.
        self.free_if_over(state);
    }

    /// Forgets packets with 0-RTT data that the server has rejected. They are neither acknowledged nor lost.
    pub(crate) fn early_data_rejected(&self) {
        self.state().flight.discard(Space::Data);
    }

    /// Records new keys of one direction.
    pub(crate) fn key_made(&self, key: KeyName) {
        let mut state = self.state();
        if let Some((name, data)) = state.keys.made(key, self.is_client) {
            state.event_log.push(name, data);
        }
    }

    /// Records that 1-RTT keys of the next generation are in use.
    pub(crate) fn keys_updated(&self) {
        let mut state = self.state();
        let by_peer = state.is_receiving;
        for (name, data) in state.keys.updated(by_peer) {
            state.event_log.push(name, data);
        }
    }

    pub(crate) fn key_dropped(&self, key: KeyName) {
        let mut state = self.state();
        if let Some((name, data)) = state.keys.dropped(key, self.is_client) {
            state.event_log.push(name, data);
        }
        // When quinn-proto drops keys, it also drops the packet number space that they belong to.
        match key.epoch {
            Epoch::Initial if !state.keys.has(PacketType::Initial) => {
                state.flight.discard(Space::Initial)
            }
            Epoch::Handshake => state.flight.discard(Space::Handshake),
            Epoch::Initial | Epoch::Early | Epoch::OneRtt(_) => {}
        }
    }

    /// Records the addresses and connection IDs at the beginning of the connection.
    pub(crate) fn started(&self, started: &Started<'_>) {
        let data = started.data(self.is_client);
        self.state()
            .event_log
            .push("connectivity:connection_started", data);
    }

    /// Records that a path change to or of the peer's address `remote` has begun or ended.
    pub(crate) fn migration(&self, state_name: &'static str, remote: SocketAddr) {
        let data = path_addresses::migration(state_name, remote);
        self.state()
            .event_log
            .push("connectivity:migration_state_updated", data);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn datagrams(&mut self, name: &'static str, total: usize, size: usize) {
        let size = size.clamp(1, total.max(1));
        let mut lengths = List::new();
        let mut rest = total;
        while rest > 0 {
            let one = rest.min(size);
            let mut raw = Object::new();
            raw.number("length", (one + UDP_HEADER) as u64);
            raw.number("payload_length", one as u64);
            lengths.raw(&raw.finish());
            rest -= one;
        }
        let mut data = Object::new();
        data.number("count", total.div_ceil(size) as u64);
        data.raw("raw", &lengths.finish());
        self.event_log.push(name, data.finish());
    }

    fn dropped(&mut self, packet_type: Option<PacketType>, trigger: &'static str, length: usize) {
        let mut data = Object::new();
        let mut header = Object::new();
        header.unescaped("packet_type", packet_header::type_name(packet_type));
        data.raw("header", &header.finish());
        data.raw("raw", &raw(length));
        data.unescaped("trigger", trigger);
        self.event_log
            .push("transport:packet_dropped", data.finish());
    }

    /// Records a change of the destination connection ID in the packets of one side.
    fn note_destination(&mut self, packet: &Packet<'_>) {
        let (owner, last) = match packet.direction {
            Direction::Sent => ("remote", &mut self.destinations[0]),
            Direction::Received => ("local", &mut self.destinations[1]),
        };
        let destination = packet_header::destination(packet.header);
        if last.as_deref() == Some(destination) {
            return;
        }
        if let Some(old) = last.replace(destination.to_vec()) {
            let mut data = Object::new();
            data.unescaped("owner", owner);
            data.hex("old", &old);
            data.hex("new", destination);
            self.event_log
                .push("connectivity:connection_id_updated", data.finish());
        }
    }

    /// Records a change of the latency spin bit (RFC 9000 section 17.4): the value in this side's next packets, as in
    /// aioquic.
    fn note_spin(&mut self, packet: &Packet<'_>, is_client: bool) {
        if self.spin.is_some_and(|(newest, _)| newest > packet.number) {
            return;
        }
        let shown = packet.header.first().is_some_and(|first| first & 0x20 != 0);
        let ours = shown != is_client;
        let before = self.spin.replace((packet.number, ours));
        if before.is_some_and(|(_, state)| state) != ours {
            let mut data = Object::new();
            data.flag("state", ours);
            self.event_log
                .push("connectivity:spin_bit_updated", data.finish());
        }
    }
}

fn packet_data(packet: &Packet<'_>, exponent: u32) -> String {
    let mut data = Object::new();
    let (frames, left_out) = frames::to_json(packet.payload, exponent);
    data.raw("frames", &frames);
    if left_out > 0 {
        // The qlog schema does not define this member, but allows additional ones.
        data.number("bytes_of_frames_left_out", left_out as u64);
    }
    data.raw("header", &packet_header::to_json(packet));
    data.raw("raw", &raw(packet.length()));
    data.finish()
}

/// aioquic has `type` and `packet_number` at the top level of the event; qvis reads them from `packet_header` and
/// `raw`. The event has both.
fn lost(packet: &Sent, trigger: Trigger) -> String {
    let name = packet_header::type_name(Some(packet.packet_type));
    let mut header = Object::new();
    header.number("packet_number", packet.number);
    header.unescaped("packet_type", name);
    let mut data = Object::new();
    data.unescaped("type", name);
    data.number("packet_number", packet.number);
    data.raw("header", &header.finish());
    data.raw("raw", &raw(packet.length));
    if packet.is_probe {
        data.flag("is_mtu_probe_packet", true);
    }
    data.unescaped(
        "trigger",
        match trigger {
            Trigger::Reordering => "reordering_threshold",
            Trigger::Time => "time_threshold",
        },
    );
    data.finish()
}

/// The versions are written as numbers, as in aioquic.
fn version_information(
    server: Option<&[u32]>,
    client: Option<&[u32]>,
    chosen: Option<u32>,
) -> String {
    let mut data = Object::new();
    for (name, versions) in [("server_versions", server), ("client_versions", client)] {
        let Some(versions) = versions else { continue };
        let mut list = List::new();
        for version in versions {
            list.raw(&version.to_string());
        }
        data.raw(name, &list.finish());
    }
    match chosen {
        Some(version) => data.number("chosen_version", version.into()),
        None => data.raw("chosen_version", "null"),
    }
    data.finish()
}

fn raw(length: usize) -> String {
    let mut raw = Object::new();
    raw.number("length", length as u64);
    raw.finish()
}

/// The default of `ack_delay_exponent` (RFC 9000 section 18.2), which quinn-proto uses.
const ACK_DELAY_EXPONENT: u32 = 3;
const UDP_HEADER: usize = 8;

#[cfg(test)]
mod tests;
