//! New connections that wait until the host has looked up their sessions and tokens: the beginning and the end of
//! the wait.
//!
//! Not here: the table and its bounds (`accept_policy::pending_accepts`).

use std::{net::SocketAddr, time::Instant};

use bytes::BytesMut;
use quinn_proto::Incoming;
use uringcore_wire::header::version_of;

use super::Endpoint;
use crate::{
    Retry,
    accept_policy::{
        Cause,
        first_packets::{self, FirstPackets},
        pending_accepts::{HELLO_TIMEOUT, PendingAccept, UNPROVED_MAX},
    },
};

impl Endpoint {
    /// Called before a datagram is handled. A datagram that may be stored is copied out of its receive buffer,
    /// which holds others as well.
    pub(super) fn note_datagram(&mut self, datagram: BytesMut) -> BytesMut {
        let asks = self
            .server
            .as_ref()
            .is_some_and(|server| server.asks_for_sessions);
        let is_long = datagram.first().is_some_and(|first| first & 0x80 != 0);
        self.pending_accepts.datagram = (asks && is_long).then(|| datagram.to_vec());
        self.tokens.take_accepted();
        match &self.pending_accepts.datagram {
            Some(alone) => BytesMut::from(&alone[..]),
            None => datagram,
        }
    }

    /// Called after a datagram was handled. If it began no connection it may belong to a waiting one, provided it
    /// comes from the same address: the state machine drops datagrams from other addresses during a handshake, and
    /// they must not raise the amplification limit of the waiting address (RFC 9000 section 8.1).
    pub(super) fn note_handled(&mut self, now: Instant, remote: SocketAddr) {
        let Some(datagram) = self.pending_accepts.datagram.take() else {
            return;
        };
        let destination = first_packets::destination(&datagram);
        let number = destination.and_then(|id| self.pending_accepts.unfinished.get(id).copied());
        let Some(number) = number.filter(|number| self.pending_accepts.is_from(*number, remote))
        else {
            return;
        };
        // A datagram that does not fit counts as lost: the wait for the ClientHello then ends by its time-out.
        let Some(pending) = self.pending_accepts.push(number, &datagram) else {
            return;
        };
        let Some(tickets) = pending.packets.shown_tickets() else {
            return;
        };
        if tickets.is_empty() && pending.token.is_none() {
            self.go_on(now, number);
        } else if let Some(pending) = self.pending_accepts.remove(number) {
            self.pending_accepts.ask(now, number, pending, tickets);
        }
    }

    /// Stores the connection if the host must look up its session or token; otherwise returns it.
    pub(super) fn keep_waiting(&mut self, now: Instant, incoming: Incoming) -> Option<Incoming> {
        let (Some(datagram), Some(server)) = (self.pending_accepts.datagram.take(), &self.server)
        else {
            return Some(incoming);
        };
        let (asks_for_tokens, retry) = (server.asks_for_tokens, server.retry);
        let token = self.tokens.take_accepted().filter(|_| asks_for_tokens);
        let packets = match self
            .pending_accepts
            .has_room(incoming.remote_address().ip())
        {
            true => FirstPackets::new(&datagram),
            false => None,
        };
        let Some(packets) = packets else {
            if token.is_none() {
                return Some(incoming);
            }
            // The host is not asked, so the token proves nothing.
            self.retry(incoming);
            return None;
        };
        let tickets = packets.shown_tickets();
        if token.is_none() && tickets.as_ref().is_some_and(Vec::is_empty) {
            return Some(incoming);
        }
        let is_unproved = !incoming.remote_address_validated();
        if is_unproved && self.pending_accepts.unproved >= UNPROVED_MAX {
            if retry == Retry::Never || !incoming.may_retry() {
                return Some(incoming);
            }
            self.retry(incoming);
            return None;
        }
        let block = self
            .accept_policy
            .entered(now, incoming.remote_address().ip());
        let pending = PendingAccept {
            incoming,
            packets,
            block,
            is_asked: false,
            is_unproved,
            arrival: self.arrival,
            token,
            received: std::mem::take(&mut self.arrival_bytes),
            version: version_of(&datagram).unwrap_or_default(),
            deadline: None,
        };
        let number = self.pending_accepts.next_number();
        match tickets {
            Some(tickets) => self.pending_accepts.ask(now, number, pending, tickets),
            None => {
                let deadline = now + HELLO_TIMEOUT;
                self.pending_accepts.insert(number, pending, deadline);
            }
        }
        None
    }

    /// The host has put the session where the server's session store finds it, or has found none: the handshake
    /// proceeds, if it has not already.
    pub fn sessions_answered(&mut self, now: Instant, question: u64) {
        if self.pending_accepts.is_asked(question) {
            self.go_on(now, question);
        }
    }

    /// The token that the host looked up was used before: the client has to prove its address as if it had no
    /// token.
    pub fn token_refused(&mut self, question: u64) {
        if self.pending_accepts.is_asked(question) {
            self.prove(question);
        }
    }

    fn prove(&mut self, number: u64) {
        if let Some(pending) = self.pending_accepts.remove(number) {
            let arrival = std::mem::replace(&mut self.arrival, pending.arrival);
            self.accept_policy.gave_up(pending.block);
            self.tokens.set(pending.version);
            self.retry(pending.incoming);
            self.arrival = arrival;
        }
    }

    fn go_on(&mut self, now: Instant, number: u64) {
        if let Some(pending) = self.pending_accepts.remove(number) {
            let arrival = std::mem::replace(&mut self.arrival, pending.arrival);
            self.begin(now, pending.incoming, pending.block, pending.received);
            self.arrival = arrival;
        }
    }

    /// Begins handshakes whose ClientHello stays incomplete, and those that the host does not answer.
    pub(super) fn drop_overdue(&mut self, now: Instant) {
        while let Some((number, has_token)) = self.pending_accepts.next_overdue(now) {
            // Neither an incomplete hello nor a slow host may bypass the lookup of a token.
            match has_token {
                true => self.prove(number),
                false => self.go_on(now, number),
            }
        }
    }

    /// Drops all waiting connections without an answer.
    pub(super) fn drop_pending_accepts(&mut self) {
        for pending in self.pending_accepts.take_all() {
            self.accept_policy.gave_up(pending.block);
            self.quinn.ignore(pending.incoming);
        }
    }

    /// Refuses all waiting connections: the host has closed the connections that it had accepted.
    pub(super) fn refuse_pending_accepts(&mut self) {
        for pending in self.pending_accepts.take_all() {
            let arrival = std::mem::replace(&mut self.arrival, pending.arrival);
            self.accept_policy.gave_up(pending.block);
            self.refuse(pending.incoming, Cause::Closing);
            self.arrival = arrival;
        }
    }
}

impl Drop for Endpoint {
    /// The state machine logs a warning if an `Incoming` is simply dropped.
    fn drop(&mut self) {
        self.drop_pending_accepts();
    }
}
