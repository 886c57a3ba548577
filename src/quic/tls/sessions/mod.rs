//! A server's store of the TLS sessions for which it has issued tickets (RFC 8446 section 4.6.1).
//!
//! The first handshake that offers a ticket takes its session out of the store. So a ticket can be used only once,
//! which prevents replays of 0-RTT data (section 8.1). rustls also rejects 0-RTT data of a ticket whose age is wrong
//! by more than a minute (section 8.3).
//!
//! - `client_session_ticket`: sessions of clients, as plain data.
//! - `client_session_store`: the choice of the session that a client resumes.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use aws_lc_rs::digest::{self, SHA256};

pub(super) mod client_session_store;
pub(super) mod client_session_ticket;

use super::versions::Versions;

/// A store of sessions by ticket. Handshakes call it in their thread, so it must not block.
pub trait SessionStore: fmt::Debug + Send + Sync {
    /// Stores `session`. Returns false if that has failed; then the client gets no ticket.
    fn put(&self, ticket: Vec<u8>, session: Vec<u8>) -> bool;

    /// Removes and returns the session in one step. Of two handshakes with the same ticket, even in different
    /// processes, only one may get it.
    fn take(&self, ticket: &[u8]) -> Option<Vec<u8>>;
}

/// A store in the memory of this process. When it is full, the oldest session is dropped.
pub struct MemorySessions {
    capacity: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    sessions: HashMap<Vec<u8>, Vec<u8>>,
    /// Tickets in the order of arrival. Sessions of some of them may have been taken.
    order: VecDeque<Vec<u8>>,
}

impl MemorySessions {
    /// # Panics
    /// If `capacity` is zero.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "a store has room for something");
        Self {
            capacity,
            kept: Mutex::default(),
        }
    }

    pub fn len(&self) -> usize {
        self.lock().sessions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionStore for MemorySessions {
    fn put(&self, ticket: Vec<u8>, session: Vec<u8>) -> bool {
        let mut kept = self.lock();
        // `order` still has the tickets of sessions that were taken, so its length bounds both.
        if kept.order.len() == self.capacity
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.sessions.remove(&oldest);
        }
        kept.order.push_back(ticket.clone());
        kept.sessions.insert(ticket, session);
        true
    }

    fn take(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.lock().sessions.remove(ticket)
    }
}

impl fmt::Debug for MemorySessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySessions")
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// A store as rustls sees it, for one server configuration. Servers that share a store only see the sessions of
/// servers with the same requirements, for three reasons:
///
/// - A resumed handshake requests no client certificate. So a server must not resume a session of a server that has
///   other requirements for client certificates.
/// - If a client's 0-RTT data is accepted and it then gets lower limits than before, it must close the connection
///   (RFC 9000 section 7.4.1).
/// - A session can only be resumed with the QUIC version in which it was created (RFC 9369 section 5).
pub(super) struct ScopedSessions {
    store: Arc<dyn SessionStore>,
    scope: [u8; SCOPE_BYTES],
}

impl ScopedSessions {
    /// `requirements` are the server's requirements and limits for its clients, as bytes.
    pub fn new(store: Arc<dyn SessionStore>, requirements: &[&[u8]]) -> Self {
        let scope = scope_of(requirements);
        Self { store, scope }
    }
}

/// Distinguishes the sessions of servers with other requirements for their clients.
pub(super) fn scope_of(requirements: &[&[u8]]) -> [u8; SCOPE_BYTES] {
    let mut context = digest::Context::new(&SHA256);
    for demand in requirements {
        context.update(&(demand.len() as u64).to_be_bytes());
        context.update(demand);
    }
    let mut scope = [0; SCOPE_BYTES];
    scope.copy_from_slice(&context.finish().as_ref()[..SCOPE_BYTES]);
    scope
}

/// The store for a connection with these versions. The version becomes a part of each key, because rustls passes only
/// keys.
#[derive(Debug)]
pub(super) struct ConnectionSessions {
    pub sessions: Arc<ScopedSessions>,
    pub versions: Arc<Versions>,
}

impl rustls::server::StoresServerSessions for ConnectionSessions {
    fn put(&self, key: Vec<u8>, mut value: Vec<u8>) -> bool {
        let version = self.versions.current().to_be_bytes();
        let prefix = self.sessions.scope.into_iter().chain(version);
        value.splice(..0, prefix);
        self.sessions.store.put(key, value)
    }

    /// TLS 1.3 only removes sessions.
    fn get(&self, _key: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let value = self.sessions.store.take(key)?;
        let rest = value.strip_prefix(&self.sessions.scope)?;
        let session = rest.strip_prefix(&self.versions.original().to_be_bytes())?;
        Some(session.to_vec())
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl fmt::Debug for ScopedSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedSessions")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

pub(super) const SCOPE_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use rustls::server::StoresServerSessions;
    use uringcore_wire::packet_header::{VERSION_1, VERSION_2};

    use super::*;

    #[test]
    fn the_store_is_bounded_and_returns_each_session_once() {
        let store = MemorySessions::new(3);
        for ticket in 0..5u8 {
            assert!(store.put(vec![ticket], vec![ticket, 9]));
        }
        assert_eq!(store.len(), 3);
        assert_eq!(store.take(&[1]), None, "the oldest sessions were dropped");
        assert_eq!(store.take(&[4]), Some(vec![4, 9]));
        assert_eq!(store.take(&[4]), None, "once");
        for ticket in 10..100u8 {
            store.put(vec![ticket], vec![]);
            store.take(&[ticket]);
        }
        assert!(store.lock().order.len() <= 3 && store.len() <= 3);
    }

    #[test]
    fn servers_with_other_requirements_do_not_share_sessions() {
        let store = Arc::new(MemorySessions::new(10));
        let of_server = |requirements: &[&[u8]], version| ConnectionSessions {
            sessions: Arc::new(ScopedSessions::new(store.clone(), requirements)),
            versions: Versions::only(quinn_proto::Side::Server, version),
        };
        let open = of_server(&[b"off"], VERSION_1);
        let strict = of_server(&[b"required", b"roots"], VERSION_1);
        let same = of_server(&[b"off"], VERSION_1);
        let later = of_server(&[b"off"], VERSION_2);
        assert!(open.put(b"one".to_vec(), b"session".to_vec()));
        assert_eq!(strict.take(b"one"), None);
        assert!(open.put(b"two".to_vec(), b"session".to_vec()));
        assert_eq!(same.take(b"two"), Some(b"session".to_vec()));
        assert!(open.put(b"two".to_vec(), b"session".to_vec()));
        assert_eq!(
            later.take(b"two"),
            None,
            "the session is of another version"
        );
        store.put(b"three".to_vec(), b"short".to_vec());
        assert_eq!(open.take(b"three"), None);
    }
}
