//! Datagrams on their way into an endpoint: what they are, and who takes them.
//!
//! Not here: how they are cut (`wire`), what Version Negotiation does (`negotiation`), and new
//! connections (`endpoint`).

use std::time::Instant;

use bytes::BytesMut;
use quinn_proto::{DatagramEvent, EcnCodepoint};

use super::{
    DatagramMeta, Endpoint,
    path::Local,
    wire::{self, Kind},
};
use crate::tls::{TicketScope, version_of};

impl Endpoint {
    /// Takes one datagram, whatever it is.
    pub(super) fn take_in(&mut self, now: Instant, meta: DatagramMeta, data: BytesMut) {
        match wire::kind(&data) {
            Kind::Packet => self.take_packets(now, meta, data),
            Kind::Negotiation => self.handle_negotiation(now, meta, &data),
            Kind::Unknown(_) => self.answer_version(meta, &data),
        }
    }

    fn take_packets(&mut self, now: Instant, meta: DatagramMeta, mut data: BytesMut) {
        // The state machine does not say whether it has taken a first packet or passed it over.
        let other_version = match self.is_of_other_version(&data) {
            true => Some(data.clone()),
            false => None,
        };
        let (length, is_server) = (data.len(), self.server.is_some());
        let first = wire::next_piece(&mut data, is_server);
        if wire::is_retry(&first) && self.is_forged_retry(&first) {
            return;
        }
        let is_taken = self.take_piece(now, meta, first, Some(length));
        while !data.is_empty() {
            let piece = wire::next_piece(&mut data, is_server);
            self.take_piece(now, meta, piece, None);
        }
        if let (false, Some(first_packet)) = (is_taken, other_version) {
            self.answer_version(meta, &first_packet);
        }
    }

    /// Whether anything became of it. The first piece comes with the whole datagram's length.
    fn take_piece(
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
        // A first packet may show a token, and a Retry bring one.
        let _tokens = version_of(&piece).map(TicketScope::of);
        self.scratch.clear();
        match self
            .quinn
            .handle(now, remote, local_ip, ecn, piece, &mut self.scratch)
        {
            None => return false,
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(index) = self.index_of(handle) {
                    let connection = &mut self.connections[index].connection;
                    match datagram_len {
                        Some(length) => connection.receiving(now, length),
                        None => connection.count_piece(),
                    }
                    let counted = ecn.filter(|_| datagram_len.is_some());
                    connection.receive(event, local, meta.remote, counted);
                    self.touch(index);
                    self.follow_preference(now, index);
                }
            }
            Some(DatagramEvent::Response(transmit)) => {
                // Of all that is answered without a connection only a reset has a short header.
                let is_reset = self.scratch.first().is_some_and(|first| first & 0x80 == 0);
                if is_reset && !self.resets.try_take(now) {
                    self.stats.responses_dropped += 1;
                    return true;
                }
                self.stats.stateless_resets_sent += u64::from(is_reset);
                self.respond(transmit);
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.handle_incoming(now, incoming),
        }
        true
    }
}
