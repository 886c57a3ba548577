//! Chooses the session that a client resumes: one that its host imported, or one of earlier connections with the
//! same configuration.
//!
//! Not here: the conversion of a ticket to a session (`session_ticket`).

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
use uringcore_wire::header::KNOWN_VERSIONS;

use super::session_ticket::{self, SessionTicket};
use crate::tls::{HostClock, versions::Versions};

/// The sessions of one client configuration.
pub(in crate::tls) struct Sessions {
    imported: Option<SessionTicket>,
    verifier: Arc<dyn ServerCertVerifier>,
    credentials: Arc<dyn ResolvesClientCert>,
    clock: HostClock,
    /// Keyed by version. A configuration with an imported ticket sends 0-RTT data, and tickets that it
    /// receives later were not chosen for that: they are not stored.
    earlier: Vec<(u32, ClientSessionMemoryCache)>,
}

impl Sessions {
    pub fn new(
        imported: Option<SessionTicket>,
        verifier: Arc<dyn ServerCertVerifier>,
        credentials: Arc<dyn ResolvesClientCert>,
        clock: HostClock,
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

    /// A new session for every connection: rustls uses each only once, and its age counts from now.
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
        let judges = (&self.verifier, &self.credentials);
        session_ticket::import(ticket, name, judges, &self.clock)
    }
}

/// The sessions for a connection of these versions: a session is valid for the version that its connection was
/// negotiated to, and for connections that begin with that version (RFC 9369 section 5). rustls looks sessions up
/// by names alone.
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

/// Tickets that a connection received and that were not reported to its host.
#[derive(Default)]
pub(crate) struct TicketInbox(Mutex<Vec<SessionTicket>>);

impl TicketInbox {
    /// If a server sends more at once than anybody can use, the first are dropped.
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

/// rustls's default number of servers.
const SERVERS_MAX: usize = 256;
const INBOX_MAX: usize = 16;
