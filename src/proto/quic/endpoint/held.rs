//! New connections that wait until the host has looked for their sessions.
//!
//! A host may keep sessions where it cannot look from within a handshake. Then a connection that
//! shows tickets is held back, with its packets, until the host has answered; that is within the
//! same turn. Not here: reading the tickets (`hello`), and accepting (`endpoint`).

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use quinn_proto::Incoming;

use super::{ConnectionKey, Endpoint};
use crate::quic::{Event, hello::HelloReader};

/// Connections in waiting, oldest first.
#[derive(Default)]
pub(super) struct HeldBack {
    waiting: VecDeque<Held>,
    next_question: u64,
    /// Questions that the host has not been told.
    untold: VecDeque<Event>,
    /// The datagram that is being handled.
    datagram: Option<Vec<u8>>,
}

struct Held {
    incoming: Incoming,
    hello: HelloReader,
    /// `None` while the ClientHello is not whole.
    question: Option<u64>,
    /// The socket that it arrived at.
    arrival: u32,
    deadline: Instant,
}

impl HeldBack {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|held| held.deadline).min()
    }

    pub fn poll_event(&mut self) -> Option<(ConnectionKey, Event)> {
        self.untold
            .pop_front()
            .map(|event| (ConnectionKey::NONE, event))
    }

    /// Asks for the session of a hello that has become whole.
    fn ask(&mut self, tickets: Vec<Vec<u8>>) -> u64 {
        let question = self.next_question;
        self.next_question += 1;
        self.untold
            .push_back(Event::SessionsAsked { question, tickets });
        question
    }
}

impl Endpoint {
    /// A datagram is about to be handled.
    pub(super) fn note_datagram(&mut self, datagram: &[u8]) {
        let asks = self
            .server
            .as_ref()
            .is_some_and(|server| server.asks_for_sessions);
        let is_long = datagram.first().is_some_and(|first| first & 0x80 != 0);
        self.held.datagram = (asks && is_long).then(|| datagram.to_vec());
    }

    /// The datagram was handled. If it began no connection it may belong to one that waits.
    pub(super) fn note_handled(&mut self, now: Instant) {
        let Some(datagram) = self.held.datagram.take() else {
            return;
        };
        let waiting = &mut self.held.waiting;
        let found = waiting
            .iter_mut()
            .position(|held| held.question.is_none() && held.hello.is_for(&datagram));
        let Some(at) = found else {
            return;
        };
        waiting[at].hello.push(&datagram);
        match waiting[at].hello.shown_tickets() {
            None => {}
            Some(tickets) if tickets.is_empty() => self.go_on(now, at),
            Some(tickets) => {
                let question = self.held.ask(tickets);
                let held = &mut self.held.waiting[at];
                held.question = Some(question);
                held.deadline = now + self.settings.handshake_timeout;
            }
        }
    }

    /// Holds the connection back if the host is to be asked for its session; else gives it back.
    pub(super) fn hold_back(&mut self, now: Instant, incoming: Incoming) -> Option<Incoming> {
        let Some(datagram) = self.held.datagram.take() else {
            return Some(incoming);
        };
        let Some(hello) = HelloReader::new(&datagram) else {
            return Some(incoming);
        };
        let tickets = hello.shown_tickets();
        if self.held.waiting.len() >= HELD_MAX || tickets.as_ref().is_some_and(Vec::is_empty) {
            return Some(incoming);
        }
        let question = tickets.map(|tickets| self.held.ask(tickets));
        let patience = match question {
            Some(_) => self.settings.handshake_timeout,
            None => HELLO_PATIENCE,
        };
        self.held.waiting.push_back(Held {
            incoming,
            hello,
            question,
            arrival: self.arrival,
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

    fn go_on(&mut self, now: Instant, at: usize) {
        if let Some(held) = self.held.waiting.remove(at) {
            let arrival = std::mem::replace(&mut self.arrival, held.arrival);
            self.accept(now, held.incoming);
            self.arrival = arrival;
        }
    }

    /// Has those begin whose ClientHello does not become whole, and forgets those that the host does
    /// not answer about.
    pub(super) fn drop_overdue(&mut self, now: Instant) {
        let is_overdue = |held: &Held| held.deadline <= now;
        while let Some(at) = self.held.waiting.iter().position(is_overdue) {
            if self.held.waiting[at].question.is_none() {
                self.go_on(now, at);
            } else if let Some(held) = self.held.waiting.remove(at) {
                self.stats.incoming_ignored += 1;
                self.quinn.ignore(held.incoming);
            }
        }
    }

    /// Forgets all of them.
    pub(super) fn drop_held(&mut self) {
        for held in std::mem::take(&mut self.held).waiting {
            self.quinn.ignore(held.incoming);
        }
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
