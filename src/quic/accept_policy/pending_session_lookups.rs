//! New connections that wait until the application has looked up their sessions and tokens.
//!
//! An application may keep TLS sessions and used address tokens in a store that it cannot read from within a
//! handshake, because the store is on a disk or locked by another process. Then a connection that offers a ticket or
//! a token waits, with its packets, until the application has answered. After [`ANSWER_TIMEOUT`] the handshake
//! proceeds without the session. A session that is found later is lost, because single use of a ticket is more
//! important than resumption. A token that the store has seen before is answered with a Retry.
//!
//! Anybody can cause a lookup with one packet from a spoofed address. So clients without a proved address may use
//! only a part of the waiting room ([`UNPROVED_MAX`]), and no code here iterates over all waiting connections.
//!
//! A waiting connection counts as a connection of its address and as a handshake in progress. A server that accepts
//! no more connections still serves it; a server that closes its connections refuses it.
//!
//! Not here: reading the tickets (`initial_client_hello`), and the endpoint's handling of waiting connections
//! (`endpoint::session_lookup_wait`).

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use quinn_proto::Incoming;
use uringcore_limits::memory_budget::AddressBlock;
use uringcore_wire::tls::client_hello_extensions::HELLO_BYTES_MAX;

use super::initial_client_hello::FirstPackets;
use crate::{Deadlines, Event};

/// The waiting connections of an endpoint, by number.
#[derive(Default)]
pub(crate) struct PendingSessionLookups {
    pub waiting: HashMap<u64, PendingSessionLookup>,
    /// The number of the next connection. Numbers are never reused, because a late answer must not match another
    /// connection.
    next_number: u64,
    /// The numbers of connections with an incomplete ClientHello, by destination connection ID.
    pub unfinished: HashMap<Vec<u8>, u64>,
    deadlines: Deadlines<u64>,
    /// The number of waiting clients without a proved address.
    pub unproved: usize,
    /// Events that ask the application for a lookup, and that it has not polled yet.
    unreported: VecDeque<Event>,
    /// A copy of the datagram that the endpoint is handling.
    pub datagram: Option<Vec<u8>>,
    /// Bytes of incomplete ClientHellos: the sum of all, and the sum of each address.
    bytes: usize,
    bytes_by_address: HashMap<AddressBlock, usize>,
}

/// A new connection that waits.
pub(crate) struct PendingSessionLookup {
    pub incoming: Incoming,
    pub packets: FirstPackets,
    /// The client address at which the connection is counted. `None` if addresses have no limit.
    pub block: Option<AddressBlock>,
    /// True after the application was asked for a lookup. False while the ClientHello is incomplete.
    pub is_asked: bool,
    pub is_unproved: bool,
    /// The number of the socket on which the first packet arrived.
    pub arrival: u32,
    /// The nonce of the address token that quinn-proto has accepted.
    pub token: Option<u128>,
    /// Bytes of the UDP payloads that have arrived for the connection.
    pub received: usize,
    /// The QUIC version of the first packet. A token for the client is sealed for that version.
    pub version: u32,
    /// The connection's entry in [`PendingSessionLookups`]' deadlines.
    pub deadline: Option<Instant>,
}

impl PendingSessionLookups {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Removes the earliest deadline that has passed. Returns the number of its connection, and true if the client has
    /// shown an address token. The connection still waits, but has no deadline any more.
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

    /// True if the longest ClientHello fits into the memory bound. `kept` bytes of the ClientHello are counted already.
    fn has_hello_room(&self, address: AddressBlock, kept: usize) -> bool {
        let of_address = self.bytes_by_address.get(&address).copied().unwrap_or(0);
        self.bytes - kept + HELLO_BYTES_MAX <= HELLO_BYTES_OF_ALL_MAX
            && of_address - kept + HELLO_BYTES_MAX <= HELLO_BYTES_OF_ADDRESS_MAX
    }

    /// True if the first packet of the waiting connection `number` came from `remote`.
    pub fn is_from(&self, number: u64, remote: SocketAddr) -> bool {
        let pending = self.waiting.get(&number);
        pending.is_some_and(|pending| pending.incoming.remote_address() == remote)
    }

    /// Adds a datagram to the waiting connection `number`. `None` if its ClientHello would exceed the memory bound.
    pub fn push(&mut self, number: u64, datagram: &[u8]) -> Option<&PendingSessionLookup> {
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

    /// Adds a connection, or puts one back with another deadline.
    pub fn insert(&mut self, number: u64, mut pending: PendingSessionLookup, deadline: Instant) {
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

    pub fn remove(&mut self, number: u64) -> Option<PendingSessionLookup> {
        let mut pending = self.waiting.remove(&number)?;
        self.deadlines.remove(number, &mut pending.deadline);
        self.uncount(pending.address(), pending.packets.kept_bytes());
        self.unproved -= usize::from(pending.is_unproved);
        if !pending.is_asked {
            self.unfinished.remove(pending.packets.destination());
        }
        Some(pending)
    }

    /// Removes and returns all waiting connections. Later answers of the application match none of the next ones.
    pub fn take_all(&mut self) -> impl Iterator<Item = PendingSessionLookup> + use<> {
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

    /// Queues the event that asks the application for a lookup, for a connection with a complete ClientHello.
    pub fn ask(
        &mut self,
        now: Instant,
        number: u64,
        mut pending: PendingSessionLookup,
        tickets: Vec<Vec<u8>>,
    ) {
        pending.is_asked = true;
        pending.packets.forget();
        let deadline = now + ANSWER_TIMEOUT;
        let token = pending.token.map(Box::new);
        self.insert(number, pending, deadline);
        self.unreported.push_back(Event::SessionsAsked {
            question: number,
            deadline,
            tickets,
            token,
        });
    }
}

impl PendingSessionLookup {
    fn address(&self) -> AddressBlock {
        self.incoming.remote_address().ip().into()
    }
}

/// How long a connection waits for the end of its ClientHello. Its packets are not acknowledged meanwhile. So if one
/// was lost, a handshake without resumption is faster than the retransmission.
pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_millis(100);
/// How long a connection waits for the application's answer: a client's initial probe time-out (RFC 9002 section
/// 6.2.2). That is more than a healthy store takes, even on a loaded machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// At most this many connections wait. Further ones begin their handshakes at once, without resumption.
const PENDING_ACCEPTS_MAX: usize = 1_024;
/// At most this many clients without a proved address wait. Further ones get a Retry, or begin without resumption.
pub(crate) const UNPROVED_MAX: usize = 256;
/// The bound on bytes of incomplete ClientHellos. Further connections begin their handshakes without resumption.
const HELLO_BYTES_OF_ALL_MAX: usize = 2 << 20;
/// The bound on bytes of one address (IPv6: one /64 prefix), so that one client cannot exclude the others.
const HELLO_BYTES_OF_ADDRESS_MAX: usize = HELLO_BYTES_OF_ALL_MAX / 4;
