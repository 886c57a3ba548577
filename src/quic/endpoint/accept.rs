//! Accepts, refuses, retries or ignores a new client, as `accept_policy` has decided.

use std::time::Instant;

use quinn_proto::Incoming;
use uringcore_limits::memory_budget::AddressBlock;

use super::Endpoint;
use crate::{
    accept_policy::{Applicant, Cause, Verdict},
    connection::close_reason::closed_event,
    workarounds::version_2_packets,
};

impl Endpoint {
    /// Handles a client's first packet. Each branch passes the `Incoming` to one of quinn-proto's four functions: after
    /// a plain drop, quinn-proto would never free its buffer.
    pub(crate) fn handle_incoming(&mut self, now: Instant, incoming: Incoming) {
        let Some(retry) = self.server.as_ref().map(|setup| setup.retry) else {
            self.quinn.ignore(incoming);
            return;
        };
        let applicant = Applicant {
            address: incoming.remote_address().ip(),
            is_validated: incoming.remote_address_validated(),
            may_retry: incoming.may_retry(),
            room: self.room(incoming.remote_address().ip()),
        };
        let connections = self.connections.len() + self.pending_accepts.len();
        match self
            .accept_policy
            .decide(now, applicant, retry, connections)
        {
            Verdict::Accept => {
                if let Some(incoming) = self.hold_for_lookup(now, incoming) {
                    let block = self
                        .accept_policy
                        .count_accepted(now, incoming.remote_address().ip());
                    let received = std::mem::take(&mut self.arrival_bytes);
                    self.begin(now, incoming, block, received);
                }
            }
            Verdict::Retry => self.retry(incoming),
            Verdict::HandOver => {
                self.next_id.use_next_worker(true);
                self.retry(incoming);
                self.next_id.use_next_worker(false);
            }
            Verdict::Refuse(cause) => self.refuse(incoming, cause),
            Verdict::Ignore => {
                self.stats.incoming_ignored += 1;
                self.stats.ignored_for_rate += 1;
                self.quinn.ignore(incoming);
            }
        }
    }

    pub(super) fn refuse(&mut self, incoming: Incoming, cause: Cause) {
        self.stats.incoming_refused += 1;
        *self.stats.refused(cause) += 1;
        self.scratch.clear();
        let transmit = self.quinn.refuse(incoming, &mut self.scratch);
        self.respond(transmit);
    }

    pub(super) fn retry(&mut self, incoming: Incoming) {
        self.stats.incoming_retried += 1;
        match self.quinn.retry(incoming, &mut self.scratch) {
            Ok(transmit) => {
                // The client's next packet is addressed to the connection ID in the Retry, so the connection that it
                // begins gets that ID.
                self.next_id.use_application_id();
                // A Retry packet is not sealed by a packet key, which would write the type bits of the connection's
                // version. So they are written here.
                version_2_packets::show_type(&mut self.scratch);
                self.respond(transmit);
            }
            Err(error) => self.quinn.ignore(error.into_incoming()),
        }
    }

    /// Begins the handshake of an accepted client. It is counted at the address `block`, and has sent `received` bytes.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        incoming: Incoming,
        block: Option<AddressBlock>,
        received: usize,
    ) {
        let Some(transport) = self.server.as_ref().map(|setup| setup.transport.clone()) else {
            self.accept_policy.uncount_unstarted(block);
            return self.quinn.ignore(incoming);
        };
        let is_validated = incoming.remote_address_validated();
        self.scratch.clear();
        let address = incoming.remote_address().ip();
        match self.quinn.accept(incoming, now, &mut self.scratch, None) {
            Ok((handle, conn)) => {
                self.stats.connections_accepted += 1;
                let deadline = Some(now + self.settings.handshake_timeout);
                let key = self.insert(handle, conn, &transport, (None, None), deadline);
                let entry = &mut self.connections[key.index()];
                entry.incoming_handshake = true;
                entry.block = block;
                entry
                    .connection
                    .begin_at_client(received as u64, is_validated);
                self.open_account(key, is_validated.then_some(address));
            }
            Err(error) => {
                self.accept_policy.uncount_unstarted(block);
                self.stats.incoming_ignored += 1;
                log::debug!("incoming connection refused: {}", error.cause);
                if let Some(transmit) = error.response {
                    if self.settings.max_connections == 1 {
                        self.failed = Some(closed_event(error.cause));
                    }
                    self.respond(transmit);
                }
            }
        }
    }
}
