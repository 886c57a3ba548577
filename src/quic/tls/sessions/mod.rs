//! A server's store of the sessions that it has issued tickets for (RFC 8446 section 4.6.1).
//!
//! The first handshake that offers a ticket takes its session out of the store. So a ticket can be used once, which
//! is the replay guard of 0-RTT data (section 8.1). The TLS library has a second guard: early data of a ticket
//! whose age is off by more than a minute is not read (section 8.3).
//!
//! - `session_ticket`: sessions of clients, as plain data.
//! - `resumption`: the choice of the session that a client resumes.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use aws_lc_rs::digest::{self, SHA256};

pub(super) mod resumption;
pub(super) mod session_ticket;

use super::versions::Versions;

/// A store of sessions by ticket. Called during handshakes, from the thread that runs them: it must not block.
pub trait SessionStore: fmt::Debug + Send + Sync {
    /// Stores `session`. False if it could not; then no ticket is sent.
    fn put(&self, ticket: Vec<u8>, session: Vec<u8>) -> bool;

    /// Returns and removes the session, in one step: of two handshakes with the same ticket, in any process, only
    /// one gets it.
    fn take(&self, ticket: &[u8]) -> Option<Vec<u8>>;
}

/// A store in this process's memory. When it is full the oldest session is dropped.
pub struct MemorySessions {
    capacity: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    sessions: HashMap<Vec<u8>, Vec<u8>>,
    /// Tickets in the order of arrival; some may be gone.
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
        // Taken sessions are still in `order`, so its length bounds both.
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

/// A store as rustls sees it, for one server configuration.
///
/// A resumed handshake requests no client certificate, so a session must not be resumed by a server that would have
/// requested another one than the server that made it. Servers that share a store therefore see only the sessions
/// of servers with the same requirements. Limits are part of these: a client whose 0-RTT data is accepted, and that
/// then gets a limit lower than before, has to close the connection (RFC 9000 section 7.4.1). And a session is
/// resumed with the QUIC version that it was made with (RFC 9369 section 5).
pub(super) struct ScopedSessions {
    store: Arc<dyn SessionStore>,
    scope: [u8; SCOPE_BYTES],
}

impl ScopedSessions {
    /// `demands` identifies the server's requirements and limits for its clients.
    pub fn new(store: Arc<dyn SessionStore>, demands: &[&[u8]]) -> Self {
        let mut context = digest::Context::new(&SHA256);
        for demand in demands {
            context.update(&(demand.len() as u64).to_be_bytes());
            context.update(demand);
        }
        let mut scope = [0; SCOPE_BYTES];
        scope.copy_from_slice(&context.finish().as_ref()[..SCOPE_BYTES]);
        Self { store, scope }
    }
}

/// The store for a connection of these versions. rustls looks sessions up by their keys alone.
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

    /// Only TLS 1.2 reads without removing.
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

const SCOPE_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use rustls::server::StoresServerSessions;
    use uringcore_wire::header::{VERSION_1, VERSION_2};

    use super::*;

    #[test]
    fn memory_is_bounded_and_gives_each_session_out_once() {
        let store = MemorySessions::new(3);
        for ticket in 0..5u8 {
            assert!(store.put(vec![ticket], vec![ticket, 9]));
        }
        assert_eq!(store.len(), 3);
        assert_eq!(store.take(&[1]), None, "the oldest were forgotten");
        assert_eq!(store.take(&[4]), Some(vec![4, 9]));
        assert_eq!(store.take(&[4]), None, "once");
        for ticket in 10..100u8 {
            store.put(vec![ticket], vec![]);
            store.take(&[ticket]);
        }
        assert!(store.lock().order.len() <= 3 && store.len() <= 3);
    }

    #[test]
    fn servers_with_other_demands_do_not_see_each_others_sessions() {
        let store = Arc::new(MemorySessions::new(10));
        let of_server = |demands: &[&[u8]], version| ConnectionSessions {
            sessions: Arc::new(ScopedSessions::new(store.clone(), demands)),
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
        assert_eq!(later.take(b"two"), None, "of another version");
        store.put(b"three".to_vec(), b"short".to_vec());
        assert_eq!(open.take(b"three"), None);
    }
}
