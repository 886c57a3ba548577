//! New connections that wait until the host has looked for their sessions and tokens.
//!
//! A host may keep sessions, and what it knows of used tokens, where it cannot look from within a
//! handshake. Then a connection that shows some is held back, with its packets, until the host has answered; that is within the
//! same turn. It counts as a handshake under way, and as a connection of its address, from the
//! moment it is held. Not here: reading the tickets (`hello`), and accepting (`accept`).

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use quinn_proto::Incoming;

use super::{ConnectionKey, Endpoint};
use crate::quic::{
    Event,
    admission::Neighbour,
    hello::{self, HelloReader},
    tokens,
};
use crate::tls::{HELLO_BYTES_MAX, TicketScope, version_of};

/// Connections in waiting, oldest first.
#[derive(Default)]
pub(super) struct HeldBack {
    waiting: VecDeque<Held>,
    next_question: u64,
    /// Questions that the host has not been told.
    untold: VecDeque<Event>,
    /// The datagram that is being handled.
    datagram: Option<Vec<u8>>,
    /// Bytes of the ClientHellos that are not whole.
    bytes: usize,
}

struct Held {
    incoming: Incoming,
    hello: HelloReader,
    /// Whose share of the server it takes up.
    neighbour: Option<Neighbour>,
    /// `None` while the ClientHello is not whole.
    question: Option<u64>,
    /// The socket that it arrived at.
    arrival: u32,
    /// The token that the state machine has accepted.
    token: Option<u128>,
    /// Of its first packet: a token of ours is for that version.
    version: Option<u32>,
    deadline: Instant,
}

impl HeldBack {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|held| held.deadline).min()
    }

    pub fn poll_event(&mut self) -> Option<(ConnectionKey, Event)> {
        self.untold
            .pop_front()
            .map(|event| (ConnectionKey::NONE, event))
    }

    fn remove(&mut self, at: usize) -> Option<Held> {
        let held = self.waiting.remove(at)?;
        self.bytes -= held.hello.kept_bytes();
        Some(held)
    }

    /// Asks about a hello that has become whole.
    fn ask(&mut self, tickets: Vec<Vec<u8>>, token: Option<u128>) -> u64 {
        let question = self.next_question;
        self.next_question += 1;
        self.untold.push_back(Event::SessionsAsked {
            question,
            tickets,
            token,
        });
        question
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
        self.held.datagram = (asks && is_long).then(|| datagram.to_vec());
        tokens::take_accepted();
        match &self.held.datagram {
            Some(alone) => BytesMut::from(&alone[..]),
            None => datagram,
        }
    }

    /// The datagram was handled. If it began no connection it may belong to one that waits.
    pub(super) fn note_handled(&mut self, now: Instant) {
        let Some(datagram) = self.held.datagram.take() else {
            return;
        };
        let Some(destination) = hello::destination(&datagram) else {
            return;
        };
        let waiting = &mut self.held.waiting;
        let found = waiting
            .iter_mut()
            .position(|held| held.question.is_none() && held.hello.is_for(destination));
        let Some(at) = found else {
            return;
        };
        let before = waiting[at].hello.kept_bytes();
        if self.held.bytes - before + HELLO_BYTES_MAX > HELD_BYTES_MAX {
            // As if it were lost: without it the handshake begins after a while.
            return;
        }
        waiting[at].hello.push(&datagram);
        self.held.bytes += waiting[at].hello.kept_bytes() - before;
        match waiting[at].hello.shown_tickets() {
            None => {}
            Some(tickets) if tickets.is_empty() && waiting[at].token.is_none() => {
                self.go_on(now, at);
            }
            Some(tickets) => {
                let token = waiting[at].token;
                let question = self.held.ask(tickets, token);
                let held = &mut self.held.waiting[at];
                held.question = Some(question);
                held.deadline = now + self.settings.handshake_timeout;
                self.held.bytes -= held.hello.forget();
            }
        }
    }

    /// Holds the connection back if the host is to be asked for its session or token; else gives it
    /// back.
    pub(super) fn hold_back(&mut self, now: Instant, incoming: Incoming) -> Option<Incoming> {
        let Some(datagram) = self.held.datagram.take() else {
            return Some(incoming);
        };
        let asks_for_tokens = self
            .server
            .as_ref()
            .is_some_and(|server| server.asks_for_tokens);
        let token = tokens::take_accepted().filter(|_| asks_for_tokens);
        let is_full = self.held.waiting.len() >= HELD_MAX
            || self.held.bytes + HELLO_BYTES_MAX > HELD_BYTES_MAX;
        let hello = match is_full {
            true => None,
            false => HelloReader::new(&datagram),
        };
        let Some(mut hello) = hello else {
            if token.is_none() {
                return Some(incoming);
            }
            // Nobody is asked, so the token proves nothing.
            self.retry(incoming);
            return None;
        };
        let question = match hello.shown_tickets() {
            Some(tickets) if tickets.is_empty() && token.is_none() => return Some(incoming),
            Some(tickets) => {
                hello.forget();
                Some(self.held.ask(tickets, token))
            }
            None => None,
        };
        let patience = match question {
            Some(_) => self.settings.handshake_timeout,
            None => HELLO_PATIENCE,
        };
        self.held.bytes += hello.kept_bytes();
        let neighbour = self.admission.entered(now, incoming.remote_address().ip());
        self.held.waiting.push_back(Held {
            incoming,
            hello,
            neighbour,
            question,
            arrival: self.arrival,
            token,
            version: version_of(&datagram),
            deadline: now + patience,
        });
        None
    }

    /// The host has put what it found where the server's session store takes it from, or has found
    /// nothing: the handshake goes on.
    pub fn sessions_answered(&mut self, now: Instant, question: u64) {
        let is_asked = |held: &Held| held.question == Some(question);
        if let Some(at) = self.held.waiting.iter().position(is_asked) {
            self.go_on(now, at);
        }
    }

    /// The token that the host was asked about was used before: the client is asked to prove its
    /// address as if it had shown none.
    pub fn token_refused(&mut self, question: u64) {
        let is_asked = |held: &Held| held.question == Some(question);
        if let Some(at) = self.held.waiting.iter().position(is_asked) {
            self.prove(at);
        }
    }

    fn prove(&mut self, at: usize) {
        if let Some(held) = self.held.remove(at) {
            let arrival = std::mem::replace(&mut self.arrival, held.arrival);
            self.admission.gave_up(held.neighbour);
            let _tokens = held.version.map(TicketScope::of);
            self.retry(held.incoming);
            self.arrival = arrival;
        }
    }

    fn go_on(&mut self, now: Instant, at: usize) {
        if let Some(held) = self.held.remove(at) {
            let arrival = std::mem::replace(&mut self.arrival, held.arrival);
            self.begin(now, held.incoming, held.neighbour);
            self.arrival = arrival;
        }
    }

    /// Has those begin whose ClientHello does not become whole, and forgets those that the host does
    /// not answer about.
    pub(super) fn drop_overdue(&mut self, now: Instant) {
        let is_overdue = |held: &Held| held.deadline <= now;
        while let Some(at) = self.held.waiting.iter().position(is_overdue) {
            let held = &self.held.waiting[at];
            if held.question.is_none() && held.token.is_some() {
                // Half a hello must not be the way around the question.
                self.prove(at);
            } else if held.question.is_none() {
                self.go_on(now, at);
            } else if let Some(held) = self.held.remove(at) {
                self.stats.incoming_ignored += 1;
                self.forget_held(held);
            }
        }
    }

    /// Forgets all of them.
    pub(super) fn drop_held(&mut self) {
        for held in std::mem::take(&mut self.held).waiting {
            self.forget_held(held);
        }
    }

    fn forget_held(&mut self, held: Held) {
        self.admission.gave_up(held.neighbour);
        self.quinn.ignore(held.incoming);
    }
}

impl Drop for Endpoint {
    /// The state machine complains about one that is simply dropped.
    fn drop(&mut self) {
        self.drop_held();
    }
}

/// How long the rest of a ClientHello is waited for. Nothing is acknowledged meanwhile, so if some of
/// it was lost, going on without the session is quicker than waiting for it to be sent again.
const HELLO_PATIENCE: Duration = Duration::from_millis(100);
/// More than that begin their handshakes without their sessions.
const HELD_MAX: usize = 1_024;
/// The same when the pieces of ClientHellos could come to more than this.
const HELD_BYTES_MAX: usize = 2 << 20;
/// What the state machine keeps of the packets that follow a first one, for one connection: the rest
/// of the hello and a first flight of 0-RTT data. More is dropped, and repeated by the client.
pub(in crate::quic) const FOLLOWERS_MAX: u64 = 64 << 10;
/// The same for all of them.
pub(in crate::quic) const FOLLOWERS_OF_ALL_MAX: u64 = 4 << 20;
