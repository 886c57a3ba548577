//! The QUIC version of a connection, and its second beginning with another one.
//!
//! Not here: when that happens (`endpoint::negotiation`), and how a version is agreed on in the first flight
//! (`tls::versions`).

use std::sync::Arc;

use quinn_proto as quinn;

use super::observer::ConnectionObserver;
use super::{Connection, session_details};
use crate::{tls::Versions, tokens::ConnectionTokens};

impl Connection {
    /// The QUIC version on the wire. While the handshake is under way it may change (RFC 9368).
    pub fn version(&self) -> u32 {
        self.versions.current()
    }

    /// Goes on with another connection of the state machine's, before anything was heard on the
    /// first one.
    pub(crate) fn begin_again(&mut self, quinn: quinn::Connection) {
        if self.quinn.has_0rtt() {
            // A ticket is for the version that it came with: nothing goes out early now.
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
