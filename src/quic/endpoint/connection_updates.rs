//! Updates the endpoint after a change of a connection: the connection's events, packets, deadline, and its entry in
//! quinn-proto's table.
//!
//! After one second without traffic, a connection frees the unused capacity of its last burst. A server's session has
//! dropped its TLS connection after the handshake. Most of the remaining memory is quinn-proto's: 0.4 kB for each
//! request stream that was used, until the connection ends.

use std::time::{Duration, Instant};

use super::Endpoint;

impl Endpoint {
    /// Marks a connection as changed, so that its events and packets are polled.
    pub(crate) fn touch(&mut self, index: usize) {
        self.connections[index].is_reconciled = false;
        self.mark_sending(index);
        self.mark_eventful(index);
    }

    /// Frees the unused capacity of a connection that has been idle for a second.
    pub(super) fn rest_if_quiet(&mut self, now: Instant, index: usize) {
        let entry = &mut self.connections[index];
        if entry.quiet_since.is_some_and(|since| since + QUIET <= now) {
            entry.connection.rest();
            // Memory stays reserved for credit that was announced. When that reservation ends, this method has to be
            // called again.
            let again = entry.connection.take_back_credit(now);
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

    /// Applies all consequences of a connection's change: its events, its messages to quinn-proto's endpoint, its
    /// deadline, and the end of its handshake.
    pub(crate) fn reconcile(&mut self, index: usize) {
        let entry = &mut self.connections[index];
        entry.is_reconciled = true;
        entry.connection.pump();
        if entry.connection.ended_unsent() {
            self.forget_state(index);
        }
        let entry = &mut self.connections[index];
        while let Some(event) = entry.connection.quinn().poll_endpoint_events() {
            // The connection is removed, and quinn-proto may have given its handle to another one.
            if entry.drained {
                continue;
            }
            if event.is_drained() {
                entry.drained = true;
                self.by_handle[entry.handle.0] = None;
            }
            // IDs that were generated before belong to no connection, for example those of Retry packets.
            drop(self.next_id.take_generated());
            if let Some(event) = self.quinn.handle_event(entry.handle, event) {
                entry.connection.quinn().handle_event(event);
                entry.connection.issued(self.next_id.take_generated());
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

/// A burst has ended after this time without traffic. The next burst allocates again.
const QUIET: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
