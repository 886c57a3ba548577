//! New connections that wait until the host has looked for their sessions and tokens.
//!
//! A host may keep sessions, and what it knows of used tokens, where it cannot look from within a
//! handshake. Then a connection that shows some waits, with its packets, until the host has
//! answered, which may be turns later: the store is on a disk, or locked by another process. Nobody
//! is kept waiting for long, though: after [`ANSWER_TIMEOUT`] the handshake goes on as if nothing
//! had been found. A connection that waits counts as a handshake under way, and as one of its
//! address.
//!
//! Whoever sends a first packet, from whatever address, can have the host look, so those that have
//! not proved theirs may take up but a part of the room ([`UNPROVED_MAX`]); and nothing here walks
//! over all that wait. Not here: reading the tickets (`first_packets`), and what the endpoint does
//! with those who wait (`endpoint::pending_accepts`).
//!
//! While it waits, a new connection counts as a connection: a server that takes no more still serves it, a server
//! that closes what it has refuses it. A session that is found after the time-out is lost, because single use of a
//! ticket is more important than resumption. The same question covers address tokens, if the store keeps those that
//! other processes have accepted: a used token is answered with a Retry.

use std::{
    collections::{BTreeSet, HashMap, VecDeque, hash_map::Entry},
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use quinn_proto::Incoming;
use uringcore_limits::budget::AddressBlock;
use uringcore_wire::tls::client_hello::HELLO_BYTES_MAX;

use super::{Neighbour, first_packets::FirstPackets};
use crate::Event;

/// Connections in waiting, by number.
#[derive(Default)]
pub(crate) struct PendingAccepts {
    pub waiting: HashMap<u64, PendingAccept>,
    /// A number is never used again: an answer may be late.
    next_number: u64,
    /// Those whose ClientHello is not whole, by the connection ID that it goes to.
    pub unfinished: HashMap<Vec<u8>, u64>,
    pub deadlines: BTreeSet<(Instant, u64)>,
    /// How many have not proved their address.
    pub unproved: usize,
    /// Questions that the host has not been told.
    unreported: VecDeque<Event>,
    /// The datagram that is being handled.
    pub datagram: Option<Vec<u8>>,
    /// Bytes of the ClientHellos that are not whole, together and by address.
    bytes: usize,
    bytes_by_address: HashMap<AddressBlock, usize>,
}

/// A connection that waits.
pub(crate) struct PendingAccept {
    pub incoming: Incoming,
    pub packets: FirstPackets,
    /// Whose share of the server it takes up.
    pub neighbour: Option<Neighbour>,
    /// The host was asked, with this number. Else the ClientHello is not whole.
    pub is_asked: bool,
    pub is_unproved: bool,
    /// The socket that it arrived at.
    pub arrival: u32,
    /// The token that the state machine has accepted.
    pub token: Option<u128>,
    /// How many bytes of its first packets have come.
    pub received: usize,
    /// Of its first packet: a token of ours is for that version.
    pub version: u32,
    pub deadline: Instant,
}

impl PendingAccepts {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    pub fn poll_question(&mut self) -> Option<Event> {
        self.unreported.pop_front()
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

    /// True if one that waits began its connection at this address.
    pub fn is_from(&self, number: u64, remote: SocketAddr) -> bool {
        let pending = self.waiting.get(&number);
        pending.is_some_and(|pending| pending.incoming.remote_address() == remote)
    }

    /// A further datagram of one that waits. `None` if there is no room for it.
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

    pub fn insert(&mut self, number: u64, pending: PendingAccept) {
        self.deadlines.insert((pending.deadline, number));
        self.count(pending.address(), pending.packets.kept_bytes());
        self.unproved += usize::from(pending.is_unproved);
        if !pending.is_asked {
            let destination = pending.packets.destination().to_vec();
            self.unfinished.insert(destination, number);
        }
        self.waiting.insert(number, pending);
    }

    pub fn remove(&mut self, number: u64) -> Option<PendingAccept> {
        let pending = self.waiting.remove(&number)?;
        self.deadlines.remove(&(pending.deadline, number));
        self.uncount(pending.address(), pending.packets.kept_bytes());
        self.unproved -= usize::from(pending.is_unproved);
        if !pending.is_asked {
            self.unfinished.remove(pending.packets.destination());
        }
        Some(pending)
    }

    /// None is left. What the host still answers is about none that come after them.
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

    /// Asks about a connection whose hello is whole.
    pub fn ask(
        &mut self,
        now: Instant,
        number: u64,
        mut pending: PendingAccept,
        tickets: Vec<Vec<u8>>,
    ) {
        pending.is_asked = true;
        pending.deadline = now + ANSWER_TIMEOUT;
        pending.packets.forget();
        let (deadline, token) = (pending.deadline, pending.token);
        self.insert(number, pending);
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

/// How long the rest of a ClientHello is waited for. Nothing is acknowledged meanwhile, so if some of
/// it was lost, going on without the session is quicker than waiting for it to be sent again.
pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_millis(100);
/// How long the host's answer is waited for. As long as a client waits before it sends its first packets
/// again (RFC 9002 section 6.2.2), and more than a store takes that is not in trouble, on a machine
/// that is: an answer that came while the host could not run must not be late.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// More than that begin their handshakes without their sessions.
const PENDING_ACCEPTS_MAX: usize = 1_024;
/// Of these so many whose address is not proved. More get a Retry, or begin without their sessions.
pub(crate) const UNPROVED_MAX: usize = 256;
/// ClientHellos that are not whole hold no more bytes than this. More begin their handshakes without their sessions.
const HELLO_BYTES_OF_ALL_MAX: usize = 2 << 20;
/// Those of one address (IPv6: one /64) hold no more than this, so that others find room.
const HELLO_BYTES_OF_ADDRESS_MAX: usize = HELLO_BYTES_OF_ALL_MAX / 4;
