//! Restarts a client's connection with another QUIC version.
//!
//! Not here: the decision to restart (`endpoint::version_negotiation`), and version negotiation in the first flight
//! (`tls::versions`).

use std::sync::Arc;

use quinn_proto as quinn;

use super::{Connection, session_details};
use crate::address_tokens::ConnectionTokens;

impl Connection {
    /// Replaces quinn-proto's connection by a new one. Nothing was received on the old one.
    pub(crate) fn begin_again(&mut self, quinn: quinn::Connection) {
        if self.quinn.has_0rtt() {
            // A ticket is valid only for its version, so the new connection sends no 0-RTT data.
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
