//! New connections that wait until the host has looked up their sessions and tokens.
//!
//! A host may keep sessions, and a log of used tokens, where it cannot look them up from within a handshake. Then a
//! connection that offers one waits, with its packets, until the host has answered. That may take several turns:
//! the store is on a disk, or locked by another process. The wait is bounded: after [`ANSWER_TIMEOUT`] the
//! handshake proceeds as if nothing had been found. A waiting connection counts as a handshake in progress, and as
//! a connection of its address.
//!
//! Anybody can cause a lookup with a first packet from any address, so clients without a proved address may use only a
//! part of the room ([`UNPROVED_MAX`]); and no code here iterates over all that wait. Not here: reading the tickets
//! (`first_packets`), and the endpoint's handling of waiting connections (`endpoint::pending_accepts`).
//!
//! A waiting connection counts as a connection: a server that accepts no more still serves it, a server that closes
//! its connections refuses it. A session that is found after the time-out is lost, because single use of a ticket
//! is more important than resumption. This lookup also covers address tokens, if the store keeps those that other
//! processes have accepted: a used token is answered with a Retry.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use quinn_proto::Incoming;
use uringcore_limits::memory_budget::AddressBlock;
use uringcore_wire::tls::client_hello::HELLO_BYTES_MAX;

use super::first_packets::FirstPackets;
use crate::{Deadlines, Event};

/// Waiting connections, by number.
#[derive(Default)]
pub(crate) struct PendingAccepts {
    pub waiting: HashMap<u64, PendingAccept>,
    /// A number is never reused, because an answer may be late.
    next_number: u64,
    /// Connections with an incomplete ClientHello, by their destination connection ID.
    pub unfinished: HashMap<Vec<u8>, u64>,
    deadlines: Deadlines<u64>,
    /// The number of waiting clients without a proved address.
    pub unproved: usize,
    /// Lookups that the host has not received yet.
    unreported: VecDeque<Event>,
    /// The datagram that is being handled.
    pub datagram: Option<Vec<u8>>,
    /// Bytes of incomplete ClientHellos, together and by address.
    bytes: usize,
    bytes_by_address: HashMap<AddressBlock, usize>,
}

/// A waiting connection.
pub(crate) struct PendingAccept {
    pub incoming: Incoming,
    pub packets: FirstPackets,
    /// The client address that the connection counts for.
    pub block: Option<AddressBlock>,
    /// True if the host has been asked, with this number. Otherwise the ClientHello is incomplete.
    pub is_asked: bool,
    pub is_unproved: bool,
    /// The socket that it arrived on.
    pub arrival: u32,
    /// The token that the state machine has accepted.
    pub token: Option<u128>,
    /// Received bytes of its first packets.
    pub received: usize,
    /// The version of its first packet: a token of ours is for that version.
    pub version: u32,
    /// The time of its entry among the deadlines.
    pub deadline: Option<Instant>,
}

impl PendingAccepts {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// The next connection whose time is over, and whether it has shown a token. It still waits, without a deadline.
    pub fn next_overdue(&mut self, now: Instant) -> Option<(u64, bool)> {
        let number = self.deadlines.pop_due(now)?;
        let pending = self.waiting.get_mut(&number)?;
        pending.deadline = None;
        Some((number, pending.token.is_some()))
    }

    pub fn poll_question(&mut self) -> Option<Event> {
        self.unreported.pop_front()
    }

    pub fn has_question(&self) -> bool {
        !self.unreported.is_empty()
    }

    /// True if one more client of this address may wait.
    pub fn has_room(&self, address: IpAddr) -> bool {
        self.waiting.len() < PENDING_ACCEPTS_MAX && self.has_hello_room(address.into(), 0)
    }

    /// True if a ClientHello, of which `kept` bytes are counted already, has room up to its end.
    fn has_hello_room(&self, address: AddressBlock, kept: usize) -> bool {
        let of_address = self.bytes_by_address.get(&address).copied().unwrap_or(0);
        self.bytes - kept + HELLO_BYTES_MAX <= HELLO_BYTES_OF_ALL_MAX
            && of_address - kept + HELLO_BYTES_MAX <= HELLO_BYTES_OF_ADDRESS_MAX
    }

    /// True if the waiting connection `number` began at this address.
    pub fn is_from(&self, number: u64, remote: SocketAddr) -> bool {
        let pending = self.waiting.get(&number);
        pending.is_some_and(|pending| pending.incoming.remote_address() == remote)
    }

    /// Adds a datagram to a waiting connection. `None` if there is no room for it.
    pub fn push(&mut self, number: u64, datagram: &[u8]) -> Option<&PendingAccept> {
        let pending = self.waiting.get(&number)?;
        let (address, before) = (pending.address(), pending.packets.kept_bytes());
        if !self.has_hello_room(address, before) {
            return None;
        }
        let pending = self.waiting.get_mut(&number)?;
        pending.packets.push(datagram);
        pending.received += datagram.len();
        let added = pending.packets.kept_bytes() - before;
        self.count(address, added);
        self.waiting.get(&number)
    }

    fn count(&mut self, address: AddressBlock, bytes: usize) {
        if bytes > 0 {
            self.bytes += bytes;
            *self.bytes_by_address.entry(address).or_default() += bytes;
        }
    }

    fn uncount(&mut self, address: AddressBlock, bytes: usize) {
        self.bytes -= bytes;
        if let Entry::Occupied(mut entry) = self.bytes_by_address.entry(address) {
            *entry.get_mut() -= bytes;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }

    pub fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// Adds a connection, or one that was removed, with another deadline.
    pub fn insert(&mut self, number: u64, mut pending: PendingAccept, deadline: Instant) {
        self.deadlines
            .set(number, &mut pending.deadline, Some(deadline));
        self.count(pending.address(), pending.packets.kept_bytes());
        self.unproved += usize::from(pending.is_unproved);
        if !pending.is_asked {
            let destination = pending.packets.destination().to_vec();
            self.unfinished.insert(destination, number);
        }
        self.waiting.insert(number, pending);
    }

    pub fn remove(&mut self, number: u64) -> Option<PendingAccept> {
        let mut pending = self.waiting.remove(&number)?;
        self.deadlines.remove(number, &mut pending.deadline);
        self.uncount(pending.address(), pending.packets.kept_bytes());
        self.unproved -= usize::from(pending.is_unproved);
        if !pending.is_asked {
            self.unfinished.remove(pending.packets.destination());
        }
        Some(pending)
    }

    /// Takes all. Later answers of the host match none of the connections that wait after this.
    pub fn take_all(&mut self) -> impl Iterator<Item = PendingAccept> + use<> {
        let empty = Self {
            next_number: self.next_number,
            ..Self::default()
        };
        std::mem::replace(self, empty).waiting.into_values()
    }

    pub fn is_asked(&self, question: u64) -> bool {
        let pending = self.waiting.get(&question);
        pending.is_some_and(|pending| pending.is_asked)
    }

    /// Passes a connection with a complete ClientHello to the host, for its decision.
    pub fn ask(
        &mut self,
        now: Instant,
        number: u64,
        mut pending: PendingAccept,
        tickets: Vec<Vec<u8>>,
    ) {
        pending.is_asked = true;
        pending.packets.forget();
        let (deadline, token) = (now + ANSWER_TIMEOUT, pending.token);
        self.insert(number, pending, deadline);
        self.unreported.push_back(Event::SessionsAsked {
            question: number,
            deadline,
            tickets,
            token,
        });
    }
}

impl PendingAccept {
    fn address(&self) -> AddressBlock {
        self.incoming.remote_address().ip().into()
    }
}

/// How long to wait for the rest of a ClientHello. Nothing is acknowledged meanwhile. So if a part was lost,
/// continuing without the session is faster than waiting for the retransmission.
pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_millis(100);
/// How long to wait for the host's answer. This is a client's initial probe time-out (RFC 9002 section 6.2.2), and
/// more than a healthy store takes, even on a loaded machine: an answer that arrived while the host could not run
/// must not count as late.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Further connections begin their handshakes without their sessions.
const PENDING_ACCEPTS_MAX: usize = 1_024;
/// The bound for clients without a proved address. Further ones get a Retry, or begin without their sessions.
pub(crate) const UNPROVED_MAX: usize = 256;
/// The bound on bytes of incomplete ClientHellos. Further ones begin their handshakes without their sessions.
const HELLO_BYTES_OF_ALL_MAX: usize = 2 << 20;
/// The bound for one address (IPv6: one /64), so that others find room.
const HELLO_BYTES_OF_ADDRESS_MAX: usize = HELLO_BYTES_OF_ALL_MAX / 4;
