//! Updates after a change of a connection: its events and packets to send, its deadline, its entry in the state
//! machine's table.
//!
//! A connection that is idle for a second *rests*: the unused capacity of its last burst is freed. A server's
//! session has dropped its TLS connection after the handshake. Most of the remaining memory is what quinn-proto
//! keeps for each stream that the client may open: 0.4 kB for each request stream once it was used, until the
//! connection ends.

use std::time::{Duration, Instant};

use super::Endpoint;

impl Endpoint {
    /// Marks a connection as changed: it may have events and packets to send.
    pub(crate) fn touch(&mut self, index: usize) {
        self.connections[index].is_reconciled = false;
        self.mark_sending(index);
        self.mark_eventful(index);
    }

    /// Frees the unused capacity of an idle connection.
    pub(super) fn rest_if_quiet(&mut self, now: Instant, index: usize) {
        let entry = &mut self.connections[index];
        if entry.quiet_since.is_some_and(|since| since + QUIET <= now) {
            entry.connection.rest();
            // Again when the reservation of its credit ends, unless something happens before.
            let again = entry.connection.rest_credit(now);
            entry.quiet_since = again.and_then(|at| at.checked_sub(QUIET));
        }
    }

    pub(super) fn mark_sending(&mut self, index: usize) {
        if !std::mem::replace(&mut self.connections[index].is_sending, true) {
            self.sending.push_back(index);
        }
    }

    pub(super) fn mark_eventful(&mut self, index: usize) {
        if !std::mem::replace(&mut self.connections[index].is_eventful, true) {
            self.eventful.push_back(index);
        }
    }

    /// Applies all consequences of a connection's change: its events, its requests to the endpoint, its deadline,
    /// and the end of its handshake.
    pub(crate) fn reconcile(&mut self, index: usize) {
        let entry = &mut self.connections[index];
        entry.is_reconciled = true;
        entry.connection.pump();
        if entry.connection.ended_unsent() {
            self.forget_state(index);
        }
        let entry = &mut self.connections[index];
        while let Some(event) = entry.connection.quinn().poll_endpoint_events() {
            // The state machine may have given the handle to another connection by now.
            if entry.drained {
                continue;
            }
            if event.is_drained() {
                entry.drained = true;
                self.by_handle[entry.handle.0] = None;
            }
            // Some IDs are for Retry packets, for example, and have no connection.
            drop(self.next_id.take_made());
            if let Some(event) = self.quinn.handle_event(entry.handle, event) {
                entry.connection.quinn().handle_event(event);
                entry.connection.issued(self.next_id.take_made());
            }
        }
        if !entry.connection.is_handshaking() {
            entry.restart = None;
            if std::mem::take(&mut entry.incoming_handshake) {
                self.accept_policy.handshake_ended();
            }
            if let Some(keys) = entry.handshake.take() {
                self.handshakes.leave(index, keys);
            }
        }
        if let Some(block) = entry.block
            && entry.connection.is_closed()
            && !std::mem::replace(&mut entry.lingers, true)
        {
            self.accept_policy.closed(block);
        }
        if entry.drained {
            self.deadlines.remove(index, &mut entry.timer);
        } else {
            let mut deadline = entry.connection.quinn().poll_timeout();
            let path_deadline = entry.connection.path_deadline();
            let rest = entry.quiet_since.map(|since| since + QUIET);
            deadline = deadline.into_iter().chain(path_deadline).chain(rest).min();
            if entry.connection.is_handshaking() {
                deadline = deadline.into_iter().chain(entry.handshake_deadline).min();
            }
            self.deadlines.advance(index, &mut entry.timer, deadline);
        }
        self.reconcile_memory(index);
        let entry = &mut self.connections[index];
        let has_events = entry.connection.has_events();
        if entry.alias.is_some() && !entry.connection.needs_alias() {
            self.drop_alias(index);
        }
        if has_events {
            self.mark_eventful(index);
        }
        self.remove_if_over(index);
    }
}

/// The idle time after which a burst has ended. The next burst allocates again.
const QUIET: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
