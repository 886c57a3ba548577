//! The session stores of servers: `MemorySessionStore`, and objects of the program.
//!
//! Not here: tickets and tokens that a client receives (`ticket_and_token_conversion`).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_quic::tls::{MemorySessions, SessionStore};

use crate::capi::bounded_arguments::{BytesLike, OwnedBytes};

/// A session store of the program: any object with the methods `put` and `take`, and `spend` if it records used
/// tokens.
///
/// The protocol cannot call Python during a handshake. So a session to be stored waits here until the loop iteration's
/// events are delivered, and a session to be taken is fetched from the program before the handshake begins
/// (`Event::SessionsAsked`). `endpoint/session_store_queries` calls the program.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct ForeignStore {
    object: Py<PyAny>,
    pub keeps_tokens: bool,
    /// The `StoreThread` on which a store is called that may block. `None` for a store that returns at once.
    thread: Option<Py<PyAny>>,
    sessions: Arc<ForeignSessions>,
}

#[derive(Debug, Default)]
struct ForeignSessions {
    put: Mutex<VecDeque<(Vec<u8>, Vec<u8>)>>,
    found: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
}

impl SessionStore for ForeignSessions {
    fn put(&self, ticket: Vec<u8>, session: Vec<u8>) -> bool {
        let mut put = lock(&self.put);
        let has_room = put.len() < PUT_MAX;
        if has_room {
            put.push_back((ticket, session));
        }
        has_room
    }

    fn take(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        lock(&self.found).remove(ticket)
    }
}

// Each setup and endpoint has a reference to the store, which the garbage collector visits. So a store that refers
// back to them is freed together with them.
#[pymethods]
impl ForeignStore {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.object)?;
        visit.call(&self.thread)
    }
}

impl ForeignStore {
    fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let may_block = match object.getattr_opt(intern!(py, "may_block"))? {
            Some(says) => says.is_truthy()?,
            None => false,
        };
        let thread = match may_block {
            true => {
                let module = py.import(intern!(py, "uringcore.quic._session_store_thread"))?;
                let class = module.getattr(intern!(py, "StoreThread"))?;
                Some(class.call_method1(intern!(py, "of"), (object,))?.unbind())
            }
            false => None,
        };
        Ok(Self {
            object: object.clone().unbind(),
            keeps_tokens: object.hasattr(intern!(py, "spend"))?,
            thread,
            sessions: Arc::default(),
        })
    }

    pub fn may_block(&self) -> bool {
        self.thread.is_some()
    }

    /// Takes the session of `ticket` from a store that returns at once.
    pub fn take(&self, py: Python<'_>, ticket: &[u8]) -> PyResult<Option<Vec<u8>>> {
        self.object
            .bind(py)
            .call_method1(intern!(py, "take"), (PyBytes::new(py, ticket),))?
            .extract::<Option<OwnedBytes>>()
            .map(|session| session.map(|session| session.0))
    }

    /// Marks a token as used. Returns true if it was not used before.
    pub fn spend(&self, py: Python<'_>, token: u128) -> PyResult<bool> {
        self.object
            .bind(py)
            .call_method1(intern!(py, "spend"), (token_bytes(py, token),))?
            .is_truthy()
    }

    pub fn keep(&self, py: Python<'_>, ticket: &[u8], session: &[u8]) -> PyResult<()> {
        let args = (PyBytes::new(py, ticket), PyBytes::new(py, session));
        self.object
            .bind(py)
            .call_method1(intern!(py, "put"), args)
            .map(drop)
    }

    /// Queues a question for the store's thread, which calls `answer` with the store's result. A question whose
    /// `deadline`, a value of `time.monotonic()`, has passed is dropped. Returns false if the queue is full.
    pub fn ask_thread<'py>(
        &self,
        py: Python<'py>,
        tickets: &[Vec<u8>],
        token: Option<u128>,
        deadline: f64,
        answer: impl IntoPyObject<'py>,
    ) -> PyResult<bool> {
        let Some(thread) = &self.thread else {
            return Ok(false);
        };
        let tickets: Vec<_> = tickets
            .iter()
            .map(|ticket| PyBytes::new(py, ticket))
            .collect();
        let token = token.map(|token| token_bytes(py, token));
        let args = (tickets, token, deadline, answer);
        thread
            .bind(py)
            .call_method1(intern!(py, "ask"), args)?
            .is_truthy()
    }

    /// Queues a session that the store's thread passes to the store. If the queue is full, the session is dropped, and
    /// the client's next handshake is a full one.
    pub fn keep_on_thread<'py>(
        &self,
        py: Python<'py>,
        ticket: &[u8],
        session: &[u8],
        answer: impl IntoPyObject<'py>,
    ) -> PyResult<()> {
        let Some(thread) = &self.thread else {
            return Ok(());
        };
        let (ticket, session) = (PyBytes::new(py, ticket), PyBytes::new(py, session));
        thread
            .bind(py)
            .call_method1(intern!(py, "keep"), (ticket, session, answer))
            .map(drop)
    }

    /// Makes sessions available to the handshake that is about to begin.
    pub fn offer(&self, found: Vec<(Vec<u8>, Vec<u8>)>) {
        lock(&self.sessions.found).extend(found);
    }

    /// Drops the sessions that the handshake has not taken.
    pub fn forget_offered(&self) {
        lock(&self.sessions.found).clear();
    }

    /// Takes the next session that the program's store should keep.
    pub fn next_put(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        lock(&self.sessions.put).pop_front()
    }
}

fn token_bytes(py: Python<'_>, token: u128) -> Bound<'_, PyBytes> {
    PyBytes::new(py, &token.to_le_bytes())
}

/// The session store that the protocol uses, and, if the program has its own store, the object that calls it.
type Store = (Arc<dyn SessionStore>, Option<Py<ForeignStore>>);

/// Returns the session store for a Python object.
pub fn session_store(object: &Bound<'_, PyAny>) -> PyResult<Store> {
    if let Ok(store) = object.cast::<MemorySessionStore>() {
        return Ok((store.get().sessions.clone(), None));
    }
    let foreign = Py::new(object.py(), ForeignStore::new(object)?)?;
    Ok((foreign.get().sessions.clone(), Some(foreign)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The largest number of sessions of one loop iteration. A handshake produces two.
const PUT_MAX: usize = 65_536;

/// Sessions that a server's clients may resume, in the memory of this process.
///
/// Servers of this process with the same store can resume each other's sessions. If there are more than `capacity`
/// sessions, the oldest is dropped. Thread-safe.
#[pyclass(frozen, module = "uringcore.tls")]
pub struct MemorySessionStore {
    sessions: Arc<MemorySessions>,
}

#[pymethods]
impl MemorySessionStore {
    #[new]
    #[pyo3(signature = (capacity = 4096))]
    fn new(capacity: usize) -> PyResult<Self> {
        match capacity {
            0 => Err(PyValueError::new_err("capacity: must be at least 1")),
            _ => Ok(Self {
                sessions: Arc::new(MemorySessions::new(capacity)),
            }),
        }
    }

    fn __len__(&self) -> usize {
        self.sessions.len()
    }

    /// Stores `session` under the key `ticket`.
    fn put(&self, ticket: OwnedBytes, session: OwnedBytes) -> bool {
        self.sessions.put(ticket.0, session.0)
    }

    /// Removes and returns the session of `ticket`. None if there is none.
    #[expect(clippy::needless_pass_by_value)] // PyO3 passes the argument by value.
    fn take<'py>(&self, py: Python<'py>, ticket: BytesLike<'_>) -> Option<Bound<'py, PyBytes>> {
        self.sessions
            .take(&ticket)
            .map(|session| PyBytes::new(py, &session))
    }
}
