//! Restarts with another QUIC version.
//!
//! Not here: when that happens (`endpoint::version_negotiation`), and version negotiation in the first flight
//! (`tls::versions`).

use std::sync::Arc;

use quinn_proto as quinn;

use super::{Connection, session_details};
use crate::address_tokens::ConnectionTokens;

impl Connection {
    /// Replaces the state machine's connection by another one, before anything was received on the first.
    pub(crate) fn begin_again(&mut self, quinn: quinn::Connection) {
        if self.quinn.has_0rtt() {
            // A ticket is valid only for its version, so no 0-RTT data is sent now.
            self.streams.early_rejected();
        }
        self.datagrams.begin_again();
        let details = session_details(&quinn);
        self.negotiated.begin_again(&details);
        self.credentials.begin_again(details.tickets);
        self.log.begin_again(details.hook.recorder().cloned());
        let observes_ids = self.observer.observes_ids();
        self.observer.begin_again(details.hook.clone());
        if observes_ids {
            self.watch_connection_ids();
        }
        self.key_updates = self.key_updates.again(details.hook);
        self.counters.begin_again();
        self.quinn = quinn;
    }

    pub(crate) fn tokens(&self) -> Option<Arc<ConnectionTokens>> {
        self.credentials.tokens()
    }
}
