//! New connections that wait until the host has looked for their sessions and tokens.
//!
//! A host may keep sessions, and what it knows of used tokens, where it cannot look from within a
//! handshake. Then a connection that shows some waits in the lobby, with its packets, until the host has
//! answered, which may be turns later: the store is on a disk, or locked by another process. Nobody
//! is kept waiting for long, though: after [`ANSWER_PATIENCE`] the handshake goes on as if nothing
//! had been found. A connection in the lobby counts as a handshake under way, and as one of its
//! address.
//!
//! Whoever sends a first packet, from whatever address, can have the host look, so those that have
//! not proved theirs may take up but a part of the room ([`UNPROVED_MAX`]); and nothing here walks
//! over all that wait. Not here: reading the tickets (`admission::first_packets`), and accepting (`accept`).

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use quinn_proto::Incoming;

use super::{ConnectionKey, Endpoint};
use crate::quic::{
    Event, Retry,
    admission::{
        Cause, Neighbour,
        first_packets::{self, FirstPackets},
    },
};
use crate::wire::{header::version_of, tls::client_hello::HELLO_BYTES_MAX};

/// Connections in waiting, by number.
#[derive(Default)]
pub(super) struct Lobby {
    waiting: HashMap<u64, Guest>,
    /// A number is never used again: an answer may be late.
    next_number: u64,
    /// Those whose ClientHello is not whole, by the connection ID that it goes to.
    unfinished: HashMap<Vec<u8>, u64>,
    deadlines: BTreeSet<(Instant, u64)>,
    /// How many have not proved their address.
    unproved: usize,
    /// Questions that the host has not been told.
    untold: VecDeque<Event>,
    /// The datagram that is being handled.
    datagram: Option<Vec<u8>>,
    /// Bytes of the ClientHellos that are not whole.
    bytes: usize,
}

struct Guest {
    incoming: Incoming,
    packets: FirstPackets,
    /// Whose share of the server it takes up.
    neighbour: Option<Neighbour>,
    /// The host was asked, with this number. Else the ClientHello is not whole.
    is_asked: bool,
    is_unproved: bool,
    /// The socket that it arrived at.
    arrival: u32,
    /// The token that the state machine has accepted.
    token: Option<u128>,
    /// Of its first packet: a token of ours is for that version.
    version: u32,
    deadline: Instant,
}

impl Lobby {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    pub fn poll_event(&mut self) -> Option<(ConnectionKey, Event)> {
        self.untold
            .pop_front()
            .map(|event| (ConnectionKey::NONE, event))
    }

    fn has_room(&self) -> bool {
        self.waiting.len() < GUESTS_MAX && self.bytes + HELLO_BYTES_MAX <= HELLO_BYTES_OF_ALL_MAX
    }

    fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    fn insert(&mut self, number: u64, guest: Guest) {
        self.deadlines.insert((guest.deadline, number));
        self.bytes += guest.packets.kept_bytes();
        self.unproved += usize::from(guest.is_unproved);
        if !guest.is_asked {
            let destination = guest.packets.destination().to_vec();
            self.unfinished.insert(destination, number);
        }
        self.waiting.insert(number, guest);
    }

    fn remove(&mut self, number: u64) -> Option<Guest> {
        let guest = self.waiting.remove(&number)?;
        self.deadlines.remove(&(guest.deadline, number));
        self.bytes -= guest.packets.kept_bytes();
        self.unproved -= usize::from(guest.is_unproved);
        if !guest.is_asked {
            self.unfinished.remove(guest.packets.destination());
        }
        Some(guest)
    }

    /// None is left. What the host still answers is about none that come after them.
    fn take_all(&mut self) -> impl Iterator<Item = Guest> + use<> {
        let empty = Self {
            next_number: self.next_number,
            ..Self::default()
        };
        std::mem::replace(self, empty).waiting.into_values()
    }

    fn is_asked(&self, question: u64) -> bool {
        let guest = self.waiting.get(&question);
        guest.is_some_and(|guest| guest.is_asked)
    }

    /// Asks about a connection whose hello is whole.
    fn ask(&mut self, now: Instant, number: u64, mut guest: Guest, tickets: Vec<Vec<u8>>) {
        guest.is_asked = true;
        guest.deadline = now + ANSWER_PATIENCE;
        guest.packets.forget();
        let token = guest.token;
        self.insert(number, guest);
        self.untold.push_back(Event::SessionsAsked {
            question: number,
            tickets,
            token,
        });
    }
}

impl Endpoint {
    /// A datagram is about to be handled. What may be kept is cut loose from the others that came
    /// with it, for it would keep all of them.
    pub(super) fn note_datagram(&mut self, datagram: BytesMut) -> BytesMut {
        let asks = self
            .server
            .as_ref()
            .is_some_and(|server| server.asks_for_sessions);
        let is_long = datagram.first().is_some_and(|first| first & 0x80 != 0);
        self.lobby.datagram = (asks && is_long).then(|| datagram.to_vec());
        self.tokens.take_accepted();
        match &self.lobby.datagram {
            Some(alone) => BytesMut::from(&alone[..]),
            None => datagram,
        }
    }

    /// The datagram was handled. If it began no connection it may belong to one that waits.
    pub(super) fn note_handled(&mut self, now: Instant) {
        let Some(datagram) = self.lobby.datagram.take() else {
            return;
        };
        let destination = first_packets::destination(&datagram);
        let number = destination.and_then(|id| self.lobby.unfinished.get(id).copied());
        let Some(guest) = number.and_then(|number| self.lobby.waiting.get_mut(&number)) else {
            return;
        };
        let before = guest.packets.kept_bytes();
        if self.lobby.bytes - before + HELLO_BYTES_MAX > HELLO_BYTES_OF_ALL_MAX {
            // As if it were lost: without it the handshake begins after a while.
            return;
        }
        guest.packets.push(&datagram);
        self.lobby.bytes += guest.packets.kept_bytes() - before;
        let (Some(tickets), Some(number)) = (guest.packets.shown_tickets(), number) else {
            return;
        };
        if tickets.is_empty() && guest.token.is_none() {
            self.go_on(now, number);
        } else if let Some(guest) = self.lobby.remove(number) {
            self.lobby.ask(now, number, guest, tickets);
        }
    }

    /// Has the connection wait if the host is to be asked for its session or token; else gives it
    /// back.
    pub(super) fn keep_waiting(&mut self, now: Instant, incoming: Incoming) -> Option<Incoming> {
        let (Some(datagram), Some(server)) = (self.lobby.datagram.take(), &self.server) else {
            return Some(incoming);
        };
        let (asks_for_tokens, retry) = (server.asks_for_tokens, server.retry);
        let token = self.tokens.take_accepted().filter(|_| asks_for_tokens);
        let packets = match self.lobby.has_room() {
            true => FirstPackets::new(&datagram),
            false => None,
        };
        let Some(packets) = packets else {
            if token.is_none() {
                return Some(incoming);
            }
            // Nobody is asked, so the token proves nothing.
            self.retry(incoming);
            return None;
        };
        let tickets = packets.shown_tickets();
        if token.is_none() && tickets.as_ref().is_some_and(Vec::is_empty) {
            return Some(incoming);
        }
        let is_unproved = !incoming.remote_address_validated();
        if is_unproved && self.lobby.unproved >= UNPROVED_MAX {
            if retry == Retry::Never || !incoming.may_retry() {
                return Some(incoming);
            }
            self.retry(incoming);
            return None;
        }
        let neighbour = self.admission.entered(now, incoming.remote_address().ip());
        let guest = Guest {
            incoming,
            packets,
            neighbour,
            is_asked: false,
            is_unproved,
            arrival: self.arrival,
            token,
            version: version_of(&datagram).unwrap_or_default(),
            deadline: now + HELLO_PATIENCE,
        };
        let number = self.lobby.next_number();
        match tickets {
            Some(tickets) => self.lobby.ask(now, number, guest, tickets),
            None => self.lobby.insert(number, guest),
        }
        None
    }

    /// The host has put what it found where the server's session store takes it from, or has found
    /// nothing: the handshake goes on, if it has not already.
    pub fn sessions_answered(&mut self, now: Instant, question: u64) {
        if self.lobby.is_asked(question) {
            self.go_on(now, question);
        }
    }

    /// The token that the host was asked about was used before: the client is asked to prove its
    /// address as if it had shown none.
    pub fn token_refused(&mut self, question: u64) {
        if self.lobby.is_asked(question) {
            self.prove(question);
        }
    }

    fn prove(&mut self, number: u64) {
        if let Some(guest) = self.lobby.remove(number) {
            let arrival = std::mem::replace(&mut self.arrival, guest.arrival);
            self.admission.gave_up(guest.neighbour);
            self.tokens.set(guest.version);
            self.retry(guest.incoming);
            self.arrival = arrival;
        }
    }

    fn go_on(&mut self, now: Instant, number: u64) {
        if let Some(guest) = self.lobby.remove(number) {
            let arrival = std::mem::replace(&mut self.arrival, guest.arrival);
            self.begin(now, guest.incoming, guest.neighbour);
            self.arrival = arrival;
        }
    }

    /// Has those begin whose ClientHello does not become whole, and those that the host does not
    /// answer about.
    pub(super) fn drop_overdue(&mut self, now: Instant) {
        while let Some(&(deadline, number)) = self.lobby.deadlines.first() {
            if deadline > now {
                return;
            }
            // Neither half a hello nor a slow host may be the way around the question.
            let has_token = |guest: &Guest| guest.token.is_some();
            match self.lobby.waiting.get(&number).is_some_and(has_token) {
                true => self.prove(number),
                false => self.go_on(now, number),
            }
        }
    }

    /// Forgets all of them, without a word.
    pub(super) fn empty_lobby(&mut self) {
        for guest in self.lobby.take_all() {
            self.admission.gave_up(guest.neighbour);
            self.quinn.ignore(guest.incoming);
        }
    }

    /// Refuses all of them: the host has closed what it had let in.
    pub(super) fn refuse_lobby(&mut self) {
        for guest in self.lobby.take_all() {
            let arrival = std::mem::replace(&mut self.arrival, guest.arrival);
            self.admission.gave_up(guest.neighbour);
            self.refuse(guest.incoming, Cause::Closing);
            self.arrival = arrival;
        }
    }
}

impl Drop for Endpoint {
    /// The state machine complains about one that is simply dropped.
    fn drop(&mut self) {
        self.empty_lobby();
    }
}

/// How long the rest of a ClientHello is waited for. Nothing is acknowledged meanwhile, so if some of
/// it was lost, going on without the session is quicker than waiting for it to be sent again.
const HELLO_PATIENCE: Duration = Duration::from_millis(100);
/// How long the host's answer is waited for. As long as a client waits before it sends its first packets
/// again (RFC 9002 section 6.2.2), and more than a store takes that is not in trouble, on a machine
/// that is: an answer that came while the host could not run must not be late.
pub const ANSWER_PATIENCE: Duration = Duration::from_secs(1);
/// More than that begin their handshakes without their sessions.
const GUESTS_MAX: usize = 1_024;
/// Of these so many whose address is not proved. More get a Retry, or begin without their sessions.
const UNPROVED_MAX: usize = 256;
/// The same as `GUESTS_MAX` when the pieces of ClientHellos could come to more than this.
const HELLO_BYTES_OF_ALL_MAX: usize = 2 << 20;
/// What the state machine keeps of the packets that follow a first one, for one connection: the rest
/// of the hello and a first flight of 0-RTT data. More is dropped, and repeated by the client.
pub(in crate::quic) const FOLLOWERS_MAX: u64 = 64 << 10;
/// The same for all of them.
pub(in crate::quic) const FOLLOWERS_OF_ALL_MAX: u64 = 4 << 20;
