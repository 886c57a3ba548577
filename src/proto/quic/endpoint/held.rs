//! New connections that wait until the host has looked for their sessions.
//!
//! A host may keep sessions where it cannot look from within a handshake. Then a connection that
//! shows tickets is held back, with its packets, until the host has answered; that is within the
//! same turn. Not here: reading the tickets (`hello`), and accepting (`endpoint`).

use std::{collections::VecDeque, time::Instant};

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
        self.waiting.front().map(|held| held.deadline)
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
                self.held.waiting[at].question = Some(question);
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
        self.held.waiting.push_back(Held {
            incoming,
            hello,
            question,
            arrival: self.arrival,
            deadline: now + self.settings.handshake_timeout,
        });
        None
    }

    /// The host has put what it found where the server's session store takes it from, or has found
    /// nothing: the handshake goes on.
    pub fn sessions_answered(&mut self, now: Instant, question: u64) {
        let waiting = &mut self.held.waiting;
        let at = waiting
            .iter()
            .position(|held| held.question == Some(question));
        if let Some(held) = at.and_then(|at| waiting.remove(at)) {
            self.accept(now, held.incoming);
        }
    }

    /// Forgets those whose ClientHello never became whole.
    pub(super) fn drop_overdue(&mut self, now: Instant) {
        while self.held.deadline().is_some_and(|at| at <= now)
            && let Some(held) = self.held.waiting.pop_front()
        {
            self.stats.incoming_ignored += 1;
            self.quinn.ignore(held.incoming);
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

/// More than that begin their handshakes without their sessions.
const HELD_MAX: usize = 1_024;
