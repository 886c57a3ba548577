//! Updates the endpoint after a change of a connection: the connection's events, packets, deadline, and its entry in
//! quinn-proto's table.
//!
//! After one second without traffic, a connection frees the unused capacity of its last burst. A server's session has
//! dropped its TLS connection after the handshake. Most of the remaining memory is quinn-proto's: 0.4 kB for each
//! request stream that was used, until the connection ends.

use std::time::{Duration, Instant};

use super::{Endpoint, earliest};

impl Endpoint {
    /// Marks a connection as changed, so that its events and packets are polled.
    #[inline]
    pub(crate) fn touch(&mut self, index: usize) {
        let entry = &mut self.connections[index];
        entry.is_reconciled = false;
        entry.is_spent = false;
        if !std::mem::replace(&mut entry.is_sending, true) {
            self.sending.push_back(index);
        }
        if !std::mem::replace(&mut entry.is_eventful, true) {
            self.eventful.push_back(index);
        }
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

    /// Lists a connection that may have packets to send.
    pub(super) fn mark_sending(&mut self, index: usize) {
        let entry = &mut self.connections[index];
        entry.is_spent = false;
        if !std::mem::replace(&mut entry.is_sending, true) {
            self.sending.push_back(index);
        }
    }

    /// The connection has nothing to send. Its capacity that is not used now is freed later.
    pub(super) fn note_quiet(&mut self, now: Instant, index: usize) {
        let entry = &mut self.connections[index];
        entry.is_sending = false;
        entry.quiet_since = Some(now);
        entry.connection.end_reservation(now);
    }

    /// Called in place of [`reconcile`](Self::reconcile) after [`note_quiet`](Self::note_quiet), if nothing has happened
    /// since the last `reconcile`. So the other deadlines have not changed.
    pub(super) fn enter_rest(&mut self, now: Instant, index: usize) {
        let entry = &mut self.connections[index];
        self.deadlines
            .advance(index, &mut entry.timer, Some(now + QUIET));
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
        if entry.connection.pump() {
            entry.is_spent = false;
        }
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
                entry.is_spent = false;
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
            deadline = earliest(deadline, entry.connection.path_deadline());
            deadline = earliest(deadline, entry.quiet_since.map(|since| since + QUIET));
            if entry.connection.is_handshaking() {
                deadline = earliest(deadline, entry.handshake_deadline);
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
