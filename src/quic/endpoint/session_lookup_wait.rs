//! New connections that wait until the application has looked up their sessions and tokens: how a wait begins and
//! ends.
//!
//! Not here: the table of waiting connections and its bounds (`accept_policy::pending_session_lookups`).

use std::{net::SocketAddr, time::Instant};

use bytes::BytesMut;
use quinn_proto::Incoming;
use uringcore_wire::packet_header::version_of;

use super::Endpoint;
use crate::{
    Retry,
    accept_policy::{
        Cause,
        initial_client_hello::{self, FirstPackets},
        pending_session_lookups::{HELLO_TIMEOUT, PendingSessionLookup, UNPROVED_MAX},
    },
};

impl Endpoint {
    /// Called before a datagram is handled. Copies a datagram that may have to be stored, because its receive buffer
    /// contains other datagrams.
    pub(super) fn copy_for_lookup(&mut self, datagram: BytesMut) -> BytesMut {
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

    /// Called after a datagram was handled. If it began no connection, it may belong to one that waits, and is stored
    /// with that. It must come from the same address. quinn-proto drops datagrams from other addresses during a
    /// handshake, and they must not raise the amplification limit of the waiting address (RFC 9000 section 8.1).
    pub(super) fn store_for_lookup(&mut self, now: Instant, remote: SocketAddr) {
        let Some(datagram) = self.pending_accepts.datagram.take() else {
            return;
        };
        let destination = initial_client_hello::destination(&datagram);
        let number = destination.and_then(|id| self.pending_accepts.unfinished.get(id).copied());
        let Some(number) = number.filter(|number| self.pending_accepts.is_from(*number, remote))
        else {
            return;
        };
        // The datagram is dropped, because there is no room for it. If the client does not send the rest of the
        // ClientHello again, the wait times out.
        let Some(pending) = self.pending_accepts.push(number, &datagram) else {
            return;
        };
        let Some(tickets) = pending.packets.shown_tickets() else {
            return;
        };
        if tickets.is_empty() && pending.token.is_none() {
            self.continue_handshake(now, number);
        } else if let Some(pending) = self.pending_accepts.remove(number) {
            self.pending_accepts.ask(now, number, pending, tickets);
        }
    }

    /// Holds a new connection back if the application must look up its session or token first. Otherwise returns the
    /// connection.
    pub(super) fn hold_for_lookup(&mut self, now: Instant, incoming: Incoming) -> Option<Incoming> {
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
            // There is no room to wait for the application, so the token cannot be checked and the client gets a Retry.
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
            .count_accepted(now, incoming.remote_address().ip());
        let pending = PendingSessionLookup {
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

    /// Continues the handshake for which the application was asked with the number `question`. The application has
    /// either put the session into the server's session store, or found none. Does nothing if the wait has timed out.
    pub fn sessions_answered(&mut self, now: Instant, question: u64) {
        if self.pending_accepts.is_asked(question) {
            self.continue_handshake(now, question);
        }
    }

    /// Answers the client with a Retry, because its token was used before. `question` is the number with which the
    /// application was asked.
    pub fn token_refused(&mut self, question: u64) {
        if self.pending_accepts.is_asked(question) {
            self.answer_with_retry(question);
        }
    }

    fn answer_with_retry(&mut self, number: u64) {
        if let Some(pending) = self.pending_accepts.remove(number) {
            let arrival = std::mem::replace(&mut self.arrival, pending.arrival);
            self.accept_policy.uncount_unstarted(pending.block);
            self.tokens.set(pending.version);
            self.retry(pending.incoming);
            self.arrival = arrival;
        }
    }

    fn continue_handshake(&mut self, now: Instant, number: u64) {
        if let Some(pending) = self.pending_accepts.remove(number) {
            let arrival = std::mem::replace(&mut self.arrival, pending.arrival);
            self.begin(now, pending.incoming, pending.block, pending.received);
            self.arrival = arrival;
        }
    }

    /// Ends the waits that have timed out: for the rest of a ClientHello, and for the application's look-up.
    pub(super) fn drop_overdue(&mut self, now: Instant) {
        while let Some((number, has_token)) = self.pending_accepts.next_overdue(now) {
            // A token that the application has not checked must not be accepted, so the client gets a Retry.
            match has_token {
                true => self.answer_with_retry(number),
                false => self.continue_handshake(now, number),
            }
        }
    }

    /// Drops all waiting connections without answering their clients.
    pub(super) fn drop_pending_accepts(&mut self) {
        for pending in self.pending_accepts.take_all() {
            self.accept_policy.uncount_unstarted(pending.block);
            self.quinn.ignore(pending.incoming);
        }
    }

    /// Refuses all waiting connections, because the application has closed all connections.
    pub(super) fn refuse_pending_accepts(&mut self) {
        for pending in self.pending_accepts.take_all() {
            let arrival = std::mem::replace(&mut self.arrival, pending.arrival);
            self.accept_policy.uncount_unstarted(pending.block);
            self.refuse(pending.incoming, Cause::Closing);
            self.arrival = arrival;
        }
    }
}

impl Drop for Endpoint {
    /// quinn-proto logs a warning if an `Incoming` is dropped without `ignore`.
    fn drop(&mut self) {
        self.drop_pending_accepts();
    }
}
