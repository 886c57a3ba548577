//! A server's view of where its client is (RFC 9000 sections 8 and 9.3): when an address is validated, and how a
//! connection sends while its client is, or may be, at one that is not.
//!
//! The state machine validates addresses too, and does not say when. So the server applies the same rule to
//! the frames that packets carry (`path_observer`): a PATH_RESPONSE that comes from an address with what the last
//! PATH_CHALLENGE to that address carried; and before that an authentic Handshake packet or a token.
//!
//! A client keeps to the address that its program gave, and to others of the server's once they have answered
//! (`preferred`).
//!
//! The state machine counts the bytes of the amplification limit for the connection as a whole, sends whole
//! datagrams while any of it is left, and exempts probes of the MTU and answers to other addresses. So bytes are
//! counted here by address, around its `poll_transmit`. Of a packet that exceeds the limit only a part is sealed
//! (`seams::partial_packet`). Before the handshake has proved the first address packets cannot be made shorter;
//! then a datagram that exceeds the limit waits. A shortened PATH_CHALLENGE is sent again after a probe time-out,
//! with nothing behind it. A client at its validated address costs one branch for each datagram and batch.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use quinn_proto as quinn;

use super::{Connection, Phase, migration::Arrived, path_observer::PacketLimit};
use crate::{Event, seams::gauge};

impl Connection {
    /// The last address that the peer has proved to receive packets at (RFC 9000 sections 8.1 and 8.2). `None` at a
    /// server whose client has proved nothing yet: a token proves its first address before
    /// [`Event::Accepted`](crate::Event::Accepted), the handshake before
    /// [`Event::HandshakeCompleted`](crate::Event::HandshakeCompleted). After that it changes with
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
        // There were other packets in the first datagrams, or in those that waited with them.
        self.prove_handshake();
        self.settle_addresses();
    }

    /// How many challenges the client has sent.
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
        self.settle_addresses();
    }

    fn prove_handshake(&mut self) {
        let is_proved = self.observer.has_opened_handshake() || self.is_established();
        if self.addresses.validated().is_none() && is_proved {
            self.validated(self.quinn.remote_address());
        }
    }

    fn validated(&mut self, address: SocketAddr) {
        let has_moved = self.addresses.validated().is_some();
        if self.addresses.validate(address) && has_moved && self.phase != Phase::Closed {
            self.log_migration("migration_complete");
            self.push(Event::AddressValidated { address });
        }
    }

    /// The state machine has gone back to the address before.
    pub(super) fn gave_up_address(&mut self) {
        self.addresses.stopped_validating();
        self.settle_addresses();
    }

    fn settle_addresses(&mut self) {
        if self.addresses.settle(self.quinn.remote_address()) {
            self.observer.stop_observing_paths();
        }
    }

    /// The next datagrams, while bytes are counted. One that may not leave waits, if its client is not validated
    /// at all, and else is lost: the state machine repeats what was in it.
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
            self.settle_addresses();
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
                self.settle_addresses();
                return Some(transmit);
            }
            if self.addresses.validated().is_none() {
                self.addresses.hold(transmit, buf);
                break;
            }
        }
        // The endpoint goes on with another connection: nothing of this one may be left in there.
        buf.clear();
        None
    }

    /// How many datagrams the state machine may make now; `None`: none at all.
    fn allowed_segments(&mut self, segments: usize) -> Option<usize> {
        let room = self.addresses.room(self.quinn.remote_address());
        let mtu = u64::from(self.quinn.current_mtu());
        let of_room = room.current.map_or(segments, |room| (room / mtu) as usize);
        if self.addresses.validated().is_none() {
            // Long headers say how long their packets are, so these are not made shorter.
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

    /// What the state machine made is as long as it was sealed.
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
            // To the state machine the whole of it is lost, and says nothing about the path.
            gauge::forgive(self.quinn.congestion_state(), transmit.size as u64);
            transmit.ecn = None;
        }
        buf.truncate(buf.len() - sealed.cut);
        transmit.size = buf.len();
        if sealed.challenge.is_some() && is_current {
            // RFC 9000 section 8.2.1: no more often than an Initial packet, and so after a probe time-out.
            let pause = self.quinn.rtt() * 2 + ACK_DELAY;
            let to = transmit.destination;
            self.addresses.repeat(now, to, buf, pause);
        }
    }

    /// True if a datagram without a challenge shows that the state machine validates an address no more that was
    /// validated before. A probe of the path's MTU never has one.
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
/// After so many datagrams that may not leave the connection waits for its peer.
const LOST_MAX: usize = 4;
