//! The WebTransport sessions of a connection, and session requests that wait to be reported.
//!
//! Not here: the rules of sessions (`webtransport`).

use crate::request_head::Head;
use crate::webtransport::Sessions;

/// The sessions of a connection, and session requests that wait to be reported.
pub(super) struct WebTransportSessions {
    pub sessions: Sessions,
    /// Session requests by stream identifier, which wait until the client's draft is known and the handshake is
    /// complete. The limit of sessions bounds their number.
    pub pending_requests: Vec<(u64, Head)>,
}

impl WebTransportSessions {
    pub fn new(sessions: Sessions) -> Self {
        Self {
            sessions,
            pending_requests: Vec::new(),
        }
    }

    pub fn is_drained(&self) -> bool {
        self.sessions.is_drained()
    }

    pub fn is_due(&self) -> bool {
        self.sessions.is_due()
    }

    /// Frees unused capacity.
    pub fn free_capacity(&mut self) {
        self.sessions.free_capacity();
        self.pending_requests = Vec::new();
    }
}
