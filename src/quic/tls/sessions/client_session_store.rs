//! Chooses the session that a client resumes: one that its application has imported, or one of an earlier connection
//! with the same configuration.
//!
//! Not here: the conversion of a ticket to a session (`client_session_ticket`).

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use rustls::{
    NamedGroup,
    client::{
        ClientSessionMemoryCache, ClientSessionStore, ResolvesClientCert, Tls12ClientSessionValue,
        Tls13ClientSessionValue, danger::ServerCertVerifier,
    },
    pki_types::ServerName,
};
use uringcore_wire::packet_header::KNOWN_VERSIONS;

use super::client_session_ticket::{self, SessionTicket};
use crate::tls::{ApplicationClock, versions::Versions};

/// The sessions of one client configuration.
pub(in crate::tls) struct Sessions {
    imported: Option<SessionTicket>,
    verifier: Arc<dyn ServerCertVerifier>,
    credentials: Arc<dyn ResolvesClientCert>,
    clock: ApplicationClock,
    /// Sessions of earlier connections, by QUIC version. Empty if the configuration has an imported ticket. Such a
    /// configuration sends 0-RTT data, for which the application has not chosen later tickets.
    earlier: Vec<(u32, ClientSessionMemoryCache)>,
}

impl Sessions {
    pub fn new(
        imported: Option<SessionTicket>,
        verifier: Arc<dyn ServerCertVerifier>,
        credentials: Arc<dyn ResolvesClientCert>,
        clock: ApplicationClock,
    ) -> Self {
        Self {
            imported,
            verifier,
            credentials,
            clock,
            earlier: KNOWN_VERSIONS
                .map(|version| (version, ClientSessionMemoryCache::new(SERVERS_MAX)))
                .into(),
        }
    }

    fn earlier(&self, version: u32) -> Option<&ClientSessionMemoryCache> {
        let found = self.earlier.iter().find(|(known, _)| *known == version);
        found.map(|(_, sessions)| sessions)
    }

    /// Converts the imported ticket to a session. Each connection needs a new one, because rustls uses it only once and
    /// counts its age from now.
    fn import(&self, name: &ServerName<'static>, version: u32) -> Option<Tls13ClientSessionValue> {
        let ticket = self.imported.as_ref()?;
        if ServerName::try_from(ticket.server_name.as_str())
            .ok()
            .as_ref()
            != Some(name)
        {
            return None;
        }
        if ticket.version.is_some_and(|it| it != version) {
            return None;
        }
        let verifiers = (&self.verifier, &self.credentials);
        client_session_ticket::import(ticket, name, verifiers, &self.clock)
    }
}

/// The sessions for a connection with these versions. A session is stored under the version that was negotiated, and
/// used by connections that begin with that version (RFC 9369 section 5). rustls looks sessions up by the server's
/// name alone.
#[derive(Debug)]
pub(in crate::tls) struct ConnectionSessions {
    pub sessions: Arc<Sessions>,
    pub versions: Arc<Versions>,
}

impl ClientSessionStore for ConnectionSessions {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        if let Some((_, sessions)) = self.sessions.earlier.first() {
            sessions.set_kx_hint(name, group);
        }
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.sessions.earlier.first()?.1.kx_hint(name)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, name: ServerName<'static>, value: Tls13ClientSessionValue) {
        let earlier = self.sessions.earlier(self.versions.current());
        if let (None, Some(sessions)) = (&self.sessions.imported, earlier) {
            sessions.insert_tls13_ticket(name, value);
        }
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let begun = self.versions.original();
        let imported = self.sessions.import(name, begun);
        imported.or_else(|| self.sessions.earlier(begun)?.take_tls13_ticket(name))
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("imported", &self.imported)
            .finish_non_exhaustive()
    }
}

/// Tickets that a connection has received and that were not reported to the application yet.
#[derive(Default)]
pub(crate) struct TicketInbox(Mutex<Vec<SessionTicket>>);

impl TicketInbox {
    /// Adds a ticket. Above [`INBOX_MAX`], which no server needs to exceed, the oldest is dropped.
    pub(in crate::tls) fn push(&self, ticket: SessionTicket) {
        let mut tickets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tickets.len() == INBOX_MAX {
            tickets.remove(0);
        }
        tickets.push(ticket);
    }

    pub fn take(&self) -> Vec<SessionTicket> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The number of servers whose sessions are kept, which is rustls' default.
const SERVERS_MAX: usize = 256;
const INBOX_MAX: usize = 16;
