//! The sessions of one connection as Python's objects, and whom an event is for.

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use rustc_hash::FxHashMap;
use uringcore_proto::webtransport::{Event, Handle, SessionStats, What};

use super::session::SessionCore;

/// Sessions by number, from their request until the peer has our last word on them.
#[derive(Default)]
pub struct Registry(FxHashMap<u64, Py<SessionCore>>);

impl Registry {
    pub fn add(&mut self, session_id: u64, session: Py<SessionCore>) {
        self.0.insert(session_id, session);
    }

    /// Whose this is.
    pub fn find(&mut self, py: Python<'_>, event: &Event) -> Option<Py<SessionCore>> {
        match event.what {
            // Nothing more comes of it that somebody waits for.
            What::Refused { .. }
            | What::Ended {
                is_clean: false, ..
            }
            | What::Released => self.0.remove(&event.session_id),
            _ => {
                let session = self.0.get(&event.session_id)?;
                Some(session.clone_ref(py))
            }
        }
    }

    /// Tells sessions what has happened to them, as long as there is something. What one raises does not keep
    /// the others from their events.
    pub fn tell(
        py: Python<'_>,
        next: impl Fn() -> Option<(Option<Py<SessionCore>>, What)>,
    ) -> PyResult<()> {
        let mut outcome = Ok(());
        while let Some((session, what)) = next() {
            if let Some(session) = session {
                outcome = outcome.and(session.get().told(py, what));
            }
        }
        outcome
    }

    /// The connection is about to be over: the sessions that are open, and their counters.
    pub fn last_stats(&self, py: Python<'_>, handle: &Handle<'_>) -> LastStats {
        let stats = |(id, session): (&u64, &Py<SessionCore>)| {
            Some((session.clone_ref(py), handle.stats(*id)?))
        };
        LastStats(self.0.iter().filter_map(stats).collect())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.0.values().try_for_each(|session| visit.call(session))
    }
}

/// Counters of sessions that are to be kept by them.
#[derive(Default)]
pub struct LastStats(Vec<(Py<SessionCore>, SessionStats)>);

impl LastStats {
    pub fn keep(self, py: Python<'_>) {
        for (session, stats) in self.0 {
            session.get().keep_stats(py, stats);
        }
    }
}
