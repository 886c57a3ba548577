//! Classifies received datagrams and passes them to connections.
//!
//! Not here: splitting a datagram (`workarounds::version_2_packets`), Version Negotiation (`version_negotiation`), and
//! new connections (`accept`).

use std::time::Instant;

use bytes::BytesMut;
use quinn_proto::{ConnectionId, DatagramEvent, EcnCodepoint};
use uringcore_wire::{
    coalesced_packets::{CoalescedPacket, FirstPacket, arrivals},
    packet_header::version_of,
};

use super::Entry;
use crate::{
    DatagramMeta, Endpoint,
    connection::receive::{Arrived, Receipt},
    paths::path::Local,
    tls::TOKEN_SIZE,
    workarounds::{forged_retry, version_2_packets},
};

impl Endpoint {
    /// Handles one datagram: packets of a connection, a Version Negotiation packet, or a packet of an unknown version.
    pub(crate) fn dispatch(&mut self, now: Instant, meta: DatagramMeta, data: BytesMut) {
        match FirstPacket::of(&data) {
            FirstPacket::Packet => self.handle_packets(now, meta, data),
            FirstPacket::Negotiation => self.handle_negotiation(now, meta, &data),
            FirstPacket::UnknownVersion => {
                self.log_unassigned(now, arrivals(&data), "unsupported_version");
                self.answer_version(meta, &data);
            }
        }
    }

    /// Handles a datagram whose first packet has a short header: a 1-RTT packet or a stateless reset. No other packet
    /// follows it in the datagram, so there is nothing to split, and it has no version to check.
    pub(super) fn handle_short_header(&mut self, now: Instant, meta: DatagramMeta, data: BytesMut) {
        self.arrival_bytes = data.len();
        let length = Some(data.len());
        self.pass_to_quinn(now, meta, data, length);
    }

    /// Logs packets that belong to no connection. Only at a client that has the socket to itself, because they are
    /// probably for that client.
    fn log_unassigned(&self, now: Instant, packets: Vec<CoalescedPacket>, trigger: &'static str) {
        if !self.is_logging || self.server.is_some() || self.connections.len() != 1 {
            return;
        }
        let log = |entry: &Entry| {
            entry.connection.log().set_time(now);
            entry.connection.packet_log().cloned()
        };
        let mut logs = self.connections.iter().filter_map(|(_, entry)| log(entry));
        if let Some(log) = logs.next() {
            packets.iter().for_each(|packet| match packet.packet_type {
                None => log.unassigned(packet, "header_parse_error"),
                Some(_) => log.unassigned(packet, trigger),
            });
        }
    }

    /// Handles a datagram that begins with a long header of a known version. Splits it into pieces, because quinn-proto
    /// can process only packets of one version together.
    ///
    /// A first packet is refused here by its raw bytes in two cases. If its version is not one of the server's, it is
    /// answered with Version Negotiation, unless it belongs to a connection. A Retry with a wrong integrity tag is
    /// dropped. Limits of the server refuse a first packet later (`accept`).
    fn handle_packets(&mut self, now: Instant, meta: DatagramMeta, mut data: BytesMut) {
        // quinn-proto consumes the bytes. It knows the versions of this endpoint's clients and therefore sends no
        // Version Negotiation for them, so the answer is made here, from a copy: it contains the packet's connection
        // IDs.
        let other_version = match self.is_of_other_version(&data) {
            true => Some(data.clone()),
            false => None,
        };
        let (length, is_server) = (data.len(), self.server.is_some());
        let first = version_2_packets::next_piece(&mut data, is_server);
        let remote = self.known_address(meta.remote);
        if !forged_retry::may_pass(&first, |retry| self.is_genuine_retry(remote, retry)) {
            self.log_unassigned(now, arrivals(&first), "payload_decrypt_error");
            return;
        }
        self.arrival_bytes = length;
        let is_taken = self.pass_to_quinn(now, meta, first, Some(length));
        while !data.is_empty() {
            let piece = version_2_packets::next_piece(&mut data, is_server);
            self.pass_to_quinn(now, meta, piece, None);
        }
        if let (false, Some(first_packet)) = (is_taken, other_version) {
            self.answer_version(meta, &first_packet);
        }
    }

    /// Passes one piece of a received datagram (one packet or several) to quinn-proto, and acts on its result: an event
    /// for a connection, an answer without a connection, or a client's first packet. `datagram_len` is the length of
    /// the whole datagram for its first piece, and `None` for later pieces. Returns false if quinn-proto has ignored
    /// the piece.
    fn pass_to_quinn(
        &mut self,
        now: Instant,
        meta: DatagramMeta,
        piece: BytesMut,
        datagram_len: Option<usize>,
    ) -> bool {
        let ecn = meta.ecn.and_then(EcnCodepoint::from_bits);
        let (remote, local_ip) = (self.known_address(meta.remote), meta.local_ip);
        let local = Local {
            socket: self.arrival,
            ip: local_ip,
        };
        // The packet may contain an address token, which is valid only for the packet's version.
        let version = version_of(&piece);
        let is_long = version.is_some();
        if let Some(version) = version {
            self.tokens.set(version);
        }
        // quinn-proto consumes the bytes and does not report the packets in them, so the log needs a list.
        let packets = match self.is_logging {
            true => arrivals(&piece),
            false => Vec::new(),
        };
        // The ID selects one of several reset keys. quinn-proto does not report the ID that it answers for.
        let id = match is_long || !self.reset_keys.has_former() {
            true => None,
            false => self.short_header_id(&piece),
        };
        self.scratch.clear();
        match self
            .quinn
            .handle(now, remote, local_ip, ecn, piece, &mut self.scratch)
        {
            None => {
                self.log_unassigned(now, packets, "unknown_connection_id");
                return false;
            }
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(index) = self.index_of(handle) {
                    let connection = &mut self.connections[index].connection;
                    let is_client = connection.is_client();
                    connection.log().arrival(now, datagram_len, packets);
                    if datagram_len.is_none() {
                        connection.count_piece();
                    }
                    let receipt = connection.receive(
                        event,
                        Arrived {
                            now,
                            remote: meta.remote,
                            local,
                            ecn: ecn.filter(|_| datagram_len.is_some()),
                            length: std::mem::take(&mut self.arrival_bytes),
                        },
                    );
                    connection.note_batch();
                    match receipt {
                        Receipt::Taken => {}
                        Receipt::AddressValidated => self.count_at_validated(index),
                        Receipt::Dropped => self.stats.moves_dropped += 1,
                    }
                    self.touch(index);
                    if is_client {
                        self.use_preferred_address(now, index);
                    }
                }
            }
            Some(DatagramEvent::Response(transmit)) => {
                self.log_unassigned(now, packets, "unknown_connection_id");
                // quinn-proto has written an answer without a connection. Only a stateless reset has a short header.
                let is_reset = self.scratch.first().is_some_and(|first| first & 0x80 == 0);
                // quinn-proto answers a first packet with a reset if the endpoint has no server. Such a reset is
                // useless, and its connection ID was not checked, so it is dropped.
                if is_reset && is_long {
                    self.stats.responses_dropped += 1;
                    return true;
                }
                if is_reset && !self.resets.try_take(now) {
                    self.stats.responses_dropped += 1;
                    return true;
                }
                self.stats.stateless_resets_sent += u64::from(is_reset);
                if let (true, Some(id)) = (is_reset, id) {
                    // RFC 9000 section 10.3: the last 16 bytes of a stateless reset are the token.
                    let at = self.scratch.len() - TOKEN_SIZE;
                    let token = self.reset_keys.token(&id);
                    self.scratch[at..].copy_from_slice(&token);
                }
                self.respond(transmit);
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.handle_incoming(now, incoming),
        }
        true
    }

    /// The destination connection ID of a packet with a short header.
    fn short_header_id(&self, piece: &[u8]) -> Option<ConnectionId> {
        let id = piece.get(1..1 + self.settings.connection_id_length);
        id.map(ConnectionId::new)
    }
}
