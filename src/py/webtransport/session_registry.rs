//! The sessions of one connection as Python objects. Finds the session of an event.

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use rustc_hash::{FxHashMap, FxHashSet};
use uringcore_http::webtransport::{Event, EventKind, SessionCommands, SessionStats};

use super::session::SessionCore;

/// The sessions by ID, from their request until the peer has acknowledged our last message about them.
#[derive(Default)]
pub struct SessionRegistry {
    sessions: FxHashMap<u64, Py<SessionCore>>,
    /// The IDs of sessions that ended before their request was handled. One packet may request several sessions and end
    /// them.
    gone: FxHashSet<u64>,
}

impl SessionRegistry {
    pub fn add(&mut self, session_id: u64, session: Py<SessionCore>) {
        self.sessions.insert(session_id, session);
    }

    /// True if the session ended before its request was handled. The call removes the session's ID from the list of
    /// such sessions.
    pub fn take_gone(&mut self, session_id: u64) -> bool {
        self.gone.remove(&session_id)
    }

    /// Finds the session object of an event. If the event is the last one of its session, the session is removed.
    pub fn find(&mut self, py: Python<'_>, event: &Event) -> Option<Py<SessionCore>> {
        let session_id = event.session_id;
        match event.what {
            EventKind::Ended { .. } if !self.sessions.contains_key(&session_id) => {
                self.gone.insert(session_id);
                None
            }
            // No later event is for this session.
            EventKind::Refused { .. }
            | EventKind::Ended {
                is_clean: false, ..
            }
            | EventKind::Released => self.sessions.remove(&session_id),
            _ => {
                let session = self.sessions.get(&session_id)?;
                Some(session.clone_ref(py))
            }
        }
    }

    /// Delivers events to their sessions until `next` returns none. If a callback of one session raises, the other
    /// sessions still get their events.
    pub fn deliver(
        py: Python<'_>,
        next: impl Fn() -> Option<(Option<Py<SessionCore>>, EventKind)>,
    ) -> PyResult<()> {
        let mut outcome = Ok(());
        while let Some((session, what)) = next() {
            if let Some(session) = session {
                outcome = outcome.and(session.get().handle_event(py, what));
            }
        }
        outcome
    }

    /// Returns the open sessions of a connection that is about to end, with their counters.
    pub fn last_stats(&self, py: Python<'_>, handle: &SessionCommands<'_>) -> LastStats {
        let stats = |(id, session): (&u64, &Py<SessionCore>)| {
            Some((session.clone_ref(py), handle.stats(*id)?))
        };
        LastStats(self.sessions.iter().filter_map(stats).collect())
    }

    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let mut sessions = self.sessions.values();
        sessions.try_for_each(|session| visit.call(session))
    }
}

/// The counters that [`keep`](Self::keep) stores in the session objects.
#[derive(Default)]
pub struct LastStats(Vec<(Py<SessionCore>, SessionStats)>);

impl LastStats {
    pub fn keep(self, py: Python<'_>) {
        for (session, stats) in self.0 {
            session.get().keep_stats(py, stats);
        }
    }
}
