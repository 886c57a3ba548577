//! The QUIC version of a connection, and its restart with another one.
//!
//! Not here: when that happens (`endpoint::negotiation`), and version negotiation in the first flight
//! (`tls::versions`).

use std::sync::Arc;

use quinn_proto as quinn;

use super::observer::ConnectionObserver;
use super::{Connection, session_details};
use crate::{tls::Versions, tokens::ConnectionTokens};

impl Connection {
    /// The QUIC version on the wire. It may change during the handshake (RFC 9368).
    pub fn version(&self) -> u32 {
        self.versions.current()
    }

    /// Replaces the state machine's connection by another one, before anything was received on the first.
    pub(crate) fn begin_again(&mut self, quinn: quinn::Connection) {
        if self.quinn.has_0rtt() {
            // A ticket is valid only for its version, so no 0-RTT data is sent now.
            self.streams.early_rejected();
        }
        self.datagrams.begin_again();
        let details = session_details(&quinn);
        self.tickets = details.tickets;
        self.ids = details.tap.ids();
        self.packet_log = details.tap.recorder().cloned();
        if let Some(log) = &self.packet_log {
            log.begin_again();
        }
        let observes_ids = self.observer.observes_ids();
        self.observer = ConnectionObserver::new(details.tap.clone());
        if observes_ids {
            self.watch_connection_ids();
        }
        self.key_use = self.key_use.again(details.tap);
        self.versions = details.versions;
        self.later_pieces = 0;
        self.quinn = quinn;
    }

    pub(crate) fn versions(&self) -> &Versions {
        &self.versions
    }

    pub(crate) fn tokens(&self) -> Option<Arc<ConnectionTokens>> {
        self.tokens.clone()
    }

    pub(crate) fn count_piece(&mut self) {
        self.later_pieces += 1;
    }
}
