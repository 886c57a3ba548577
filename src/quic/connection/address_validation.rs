//! Address validation by a server (RFC 9000 sections 8 and 9.3), and sending while the client may be at an address
//! that is not validated.
//!
//! quinn-proto validates addresses but does not report when. So the server applies the same rule to the frames that
//! it sees (`path_observer`): the first address is validated by a token or by an authentic Handshake packet, a later
//! address by a PATH_RESPONSE that comes from there with the data of the last PATH_CHALLENGE to it. A client takes
//! the address that its application gave as valid, and other addresses of the server once they have answered
//! (`preferred_address`).
//!
//! quinn-proto does not keep the amplification limit exactly: it counts bytes for the whole connection instead of
//! each address, sends whole datagrams while any of the limit is left, and exempts MTU probes and responses to other
//! addresses. So bytes are counted here, by address, around quinn-proto's `poll_transmit`. If a packet exceeds the
//! limit only a part of it is sealed (`workarounds::amplification_limited_packet`). Packets with long headers cannot be shortened,
//! so before the first address is validated a datagram above the limit waits. A shortened PATH_CHALLENGE is repeated
//! alone, after a probe time-out. While a client is at its validated address, the cost is one branch for each datagram
//! and each batch.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use quinn_proto as quinn;

use super::{Connection, path_observer::PacketLimit, receive::Arrived};
use crate::{Event, workarounds::congestion_controller_wrapper};

impl Connection {
    /// The last validated address of the peer (RFC 9000 sections 8.1 and 8.2). `None` on a server whose client has not
    /// proved any address. A token validates the first address before [`Event::Accepted`](crate::Event::Accepted), a
    /// handshake before [`Event::HandshakeCompleted`](crate::Event::HandshakeCompleted). Later changes are reported by
    /// [`Event::AddressValidated`](crate::Event::AddressValidated).
    pub fn validated_addr(&self) -> Option<SocketAddr> {
        match self.is_client() {
            true => Some(self.remote_addr()),
            false => self.addresses.validated(),
        }
    }

    /// Starts counting at a server's new connection: `received` bytes came from the client, and `is_validated` is true
    /// if a token has proved its address.
    pub(crate) fn begin_at_client(&mut self, received: u64, is_validated: bool) {
        let address = self.quinn.remote_address();
        self.addresses.begin(address, received, is_validated);
        // The first datagrams may also have contained a Handshake packet.
        self.prove_handshake();
        self.end_address_limits();
    }

    /// The number of PATH_CHALLENGE frames from the client.
    pub(super) fn challenges_received(&self) -> u64 {
        self.quinn.stats().frame_rx.path_challenge
    }

    /// Handles a datagram that arrived while bytes are counted, or from another address than the client's.
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
        self.end_address_limits();
    }

    fn prove_handshake(&mut self) {
        let is_proved = self.observer.has_opened_handshake() || self.is_established();
        if self.addresses.validated().is_none() && is_proved {
            self.validated(self.quinn.remote_address());
        }
    }

    fn validated(&mut self, address: SocketAddr) {
        let has_moved = self.addresses.validated().is_some();
        if self.addresses.validate(address) && has_moved && !self.phase.is_closed() {
            self.log_migration("migration_complete");
            self.events.push(Event::AddressValidated { address });
        }
    }

    /// Called when quinn-proto has abandoned the client's new address and returned to the previous one.
    pub(super) fn address_abandoned(&mut self) {
        self.addresses.stopped_validating();
        self.end_address_limits();
    }

    fn end_address_limits(&mut self) {
        if self.addresses.relax(self.quinn.remote_address()) {
            self.observer.stop_observing_paths();
        }
    }

    /// Returns the next datagrams while bytes are counted. A datagram above the limit waits if no address of the client
    /// is validated. Otherwise it is dropped, and quinn-proto sends its content again.
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
            self.end_address_limits();
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
                self.end_address_limits();
                return Some(transmit);
            }
            if self.addresses.validated().is_none() {
                self.addresses.hold(transmit, buf);
                break;
            }
        }
        // The endpoint reuses the buffer for another connection, so it must be empty.
        buf.clear();
        None
    }

    /// How many datagrams quinn-proto may make now. `None` if it must not make any.
    fn allowed_segments(&mut self, segments: usize) -> Option<usize> {
        let room = self.addresses.room(self.quinn.remote_address());
        let mtu = u64::from(self.quinn.current_mtu());
        let of_room = room.current.map_or(segments, |room| (room / mtu) as usize);
        if self.addresses.validated().is_none() {
            // A packet with a long header contains its own length, so it cannot be shortened to the bytes that may be
            // sent.
            let may_send = room.current != Some(0) && !self.addresses.holds();
            return may_send.then_some(of_room.clamp(1, segments));
        }
        let has_room = room.current.is_none_or(|room| room >= CHALLENGE_MIN);
        if !has_room && room.response.is_none() && !room.probes_old {
            return None;
        }
        let segments = match room.probes_old || room.response.is_some() {
            true => 1,
            false => of_room.clamp(1, segments),
        };
        let packet = match room.probes_old {
            true => None,
            false => room.current.filter(|_| segments == 1),
        };
        self.observer.limit_packets(PacketLimit {
            packet: packet.map(|room| room as usize),
            response: room.response.map(|room| room as usize),
        });
        Some(segments)
    }

    /// Notes the PATH_CHALLENGE in quinn-proto's datagram, and cuts off the bytes that the amplification limit left
    /// unsealed.
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
            // quinn-proto will count the whole packet as lost, but that loss is no sign of congestion.
            congestion_controller_wrapper::ignore_loss(
                self.quinn.congestion_state(),
                transmit.size as u64,
            );
            transmit.ecn = None;
        }
        buf.truncate(buf.len() - sealed.cut);
        transmit.size = buf.len();
        if sealed.challenge.is_some() && is_current {
            // RFC 9000 section 8.2.1: challenges are repeated no more often than Initial packets, so after a probe
            // time-out.
            let pause = self.quinn.rtt() * 2 + ACK_DELAY;
            let to = transmit.destination;
            self.addresses.repeat(now, to, buf, pause);
        }
    }

    /// True if the client is back at its validated address and quinn-proto sends a datagram without a challenge: then
    /// quinn-proto has stopped validating the other address. MTU probes are ignored, because they never have a
    /// challenge.
    fn has_validated(&self, transmit: &quinn::Transmit) -> bool {
        let is_back = self.addresses.validated() == Some(transmit.destination);
        let is_probe = transmit.size > usize::from(self.quinn.current_mtu());
        is_back && self.addresses.is_validating() && !is_probe
    }
}

/// The default of `max_ack_delay` (RFC 9000 section 18.2).
const ACK_DELAY: Duration = Duration::from_millis(25);
/// The bytes of a packet with nothing but a PATH_CHALLENGE: header, longest connection ID, packet number, frame, tag.
const CHALLENGE_MIN: u64 = 1 + 20 + 4 + 9 + 16;
/// After this many datagrams above the limit, the connection sends nothing until more bytes arrive from the client.
const LOST_MAX: usize = 4;
