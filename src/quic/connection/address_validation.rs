//! Address validation by a server (RFC 9000 sections 8 and 9.3), and sending while the client is, or may be, at an
//! address that is not validated.
//!
//! The state machine validates addresses too, but does not report when. So the server applies the same rule to the
//! frames of packets (`path_observer`): a PATH_RESPONSE must arrive from an address with the data of the last
//! PATH_CHALLENGE to that address; before that, an authentic Handshake packet or a token validates the first
//! address.
//!
//! A client uses the address that its program gave, and other addresses of the server once they have answered
//! (`preferred_address`).
//!
//! The state machine counts the bytes of the amplification limit for the connection as a whole, sends whole
//! datagrams while any of it is left, and exempts MTU probes and answers to other addresses. So bytes are counted
//! here by address, around its `poll_transmit`. Of a packet that exceeds the limit only a part is sealed
//! (`seams::shortened_packet`). Before the handshake has validated the first address packets cannot be shortened;
//! then a datagram that exceeds the limit waits. A shortened PATH_CHALLENGE is sent again after a probe time-out,
//! alone. A client at its validated address costs one branch for each datagram and batch.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use quinn_proto as quinn;

use super::{Connection, migration::Arrived, path_observer::PacketLimit};
use crate::{Event, seams::congestion_gauge};

impl Connection {
    /// The last validated address of the peer (RFC 9000 sections 8.1 and 8.2). `None` on a server whose client has
    /// proved nothing yet. A token validates the first address before
    /// [`Event::Accepted`](crate::Event::Accepted), the handshake before
    /// [`Event::HandshakeCompleted`](crate::Event::HandshakeCompleted). Later changes are reported by
    /// [`Event::AddressValidated`](crate::Event::AddressValidated).
    pub fn validated_addr(&self) -> Option<SocketAddr> {
        match self.is_client() {
            true => Some(self.remote_addr()),
            false => self.addresses.validated(),
        }
    }

    /// A server's connection begins: `received` bytes came from the client, which may have shown a token.
    pub(crate) fn begin_at_client(&mut self, received: u64, is_validated: bool) {
        let address = self.quinn.remote_address();
        self.addresses.begin(address, received, is_validated);
        // The first datagrams, or those that waited with them, may have contained other packets.
        self.prove_handshake();
        self.relax_address_limits();
    }

    /// The number of challenges from the client.
    pub(super) fn challenges_received(&self) -> u64 {
        self.quinn.stats().frame_rx.path_challenge
    }

    /// A datagram arrived while bytes are counted, or from another address than the client's.
    pub(super) fn note_address(
        &mut self,
        arrived: Arrived,
        has_moved: bool,
        challenges_before: u64,
    ) {
        let Arrived { remote, length, .. } = arrived;
        if has_moved {
            self.addresses.moved(arrived.now);
            self.observer.observe_paths();
        }
        let current = self.quinn.remote_address();
        let is_asking = remote != current && self.challenges_received() > challenges_before;
        if is_asking {
            self.observer.observe_paths();
        }
        self.addresses
            .received(remote, length as u64, current, is_asking);
        self.prove_handshake();
        for data in self.observer.take_path_responses() {
            if self.addresses.is_answer(remote, current, data) {
                self.addresses.stopped_validating();
                self.validated(current);
            }
        }
        self.relax_address_limits();
    }

    fn prove_handshake(&mut self) {
        let is_proved = self.observer.has_opened_handshake() || self.is_established();
        if self.addresses.validated().is_none() && is_proved {
            self.validated(self.quinn.remote_address());
        }
    }

    fn validated(&mut self, address: SocketAddr) {
        let has_moved = self.addresses.validated().is_some();
        if self.addresses.validate(address) && has_moved && !self.lifecycle.is_closed() {
            self.log_migration("migration_complete");
            self.events.push(Event::AddressValidated { address });
        }
    }

    /// The state machine has returned to the previous address.
    pub(super) fn gave_up_address(&mut self) {
        self.addresses.stopped_validating();
        self.relax_address_limits();
    }

    fn relax_address_limits(&mut self) {
        if self.addresses.relax(self.quinn.remote_address()) {
            self.observer.stop_observing_paths();
        }
    }

    /// The next datagrams, while bytes are counted. A datagram above the limit waits if the client is not validated
    /// at all; otherwise it is dropped, and the state machine repeats its content.
    pub(super) fn poll_limited(
        &mut self,
        now: Instant,
        segments: usize,
        buf: &mut Vec<u8>,
    ) -> Option<quinn::Transmit> {
        if self.is_draining() {
            self.addresses.drop_waiting();
            return None;
        }
        if let Some(transmit) = self.addresses.release(buf) {
            self.relax_address_limits();
            return Some(transmit);
        }
        for _ in 0..LOST_MAX {
            let Some(segments) = self.allowed_segments(segments) else {
                break;
            };
            buf.clear();
            let transmit = self.poll_batch(now, segments, buf);
            let Some(transmit) = transmit else {
                break;
            };
            if self.addresses.send(&transmit) {
                self.relax_address_limits();
                return Some(transmit);
            }
            if self.addresses.validated().is_none() {
                self.addresses.hold(transmit, buf);
                break;
            }
        }
        // The endpoint reuses the buffer for another connection, so nothing may be left in it.
        buf.clear();
        None
    }

    /// How many datagrams the state machine may make now; `None`: none at all.
    fn allowed_segments(&mut self, segments: usize) -> Option<usize> {
        let room = self.addresses.room(self.quinn.remote_address());
        let mtu = u64::from(self.quinn.current_mtu());
        let of_room = room.current.map_or(segments, |room| (room / mtu) as usize);
        if self.addresses.validated().is_none() {
            // Long headers contain the length of their packets, so these are not shortened.
            let may_send = room.current != Some(0) && !self.addresses.holds();
            return may_send.then_some(of_room.clamp(1, segments));
        }
        let has_room = room.current.is_none_or(|room| room >= CHALLENGE_MIN);
        if !has_room && room.response.is_none() && !room.asks_old {
            return None;
        }
        let segments = match room.asks_old || room.response.is_some() {
            true => 1,
            false => of_room.clamp(1, segments),
        };
        let packet = match room.asks_old {
            true => None,
            false => room.current.filter(|_| segments == 1),
        };
        self.observer.limit_packets(PacketLimit {
            packet: packet.map(|room| room as usize),
            response: room.response.map(|room| room as usize),
        });
        Some(segments)
    }

    /// Cuts the state machine's datagram to the sealed length.
    pub(super) fn shorten(
        &mut self,
        now: Instant,
        transmit: &mut quinn::Transmit,
        buf: &mut Vec<u8>,
    ) {
        let sealed = self.observer.take_sealed();
        let is_current = transmit.destination == self.quinn.remote_address();
        if let Some(data) = sealed.challenge.filter(|_| is_current) {
            self.addresses.challenged(transmit.destination, data);
        } else if is_current && !sealed.is_response_alone && self.has_validated(transmit) {
            self.addresses.stopped_validating();
        }
        if sealed.cut == 0 {
            return;
        }
        if sealed.is_partial {
            // The state machine counts the whole packet as lost, but this loss is no sign of congestion.
            congestion_gauge::forgive(self.quinn.congestion_state(), transmit.size as u64);
            transmit.ecn = None;
        }
        buf.truncate(buf.len() - sealed.cut);
        transmit.size = buf.len();
        if sealed.challenge.is_some() && is_current {
            // RFC 9000 section 8.2.1: not more often than an Initial packet, so after a probe time-out.
            let pause = self.quinn.rtt() * 2 + ACK_DELAY;
            let to = transmit.destination;
            self.addresses.repeat(now, to, buf, pause);
        }
    }

    /// True if a datagram without a challenge shows that the state machine no longer validates an address that was
    /// validated before. An MTU probe never has a challenge.
    fn has_validated(&self, transmit: &quinn::Transmit) -> bool {
        let is_back = self.addresses.validated() == Some(transmit.destination);
        let is_probe = transmit.size > usize::from(self.quinn.current_mtu());
        is_back && self.addresses.is_validating() && !is_probe
    }
}

/// RFC 9000 section 18.2's default for `max_ack_delay`.
const ACK_DELAY: Duration = Duration::from_millis(25);
/// A PATH_CHALLENGE alone, with the longest connection ID and packet number.
const CHALLENGE_MIN: u64 = 1 + 20 + 4 + 9 + 16;
/// After this many datagrams above the limit the connection waits for its peer.
const LOST_MAX: usize = 4;
