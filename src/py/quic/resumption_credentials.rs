//! Credentials between Python and the protocol: session tickets in both directions, address validation tokens,
//! `MemorySessionStore`, and session stores of the program.
//!
//! `endpoint/event_delivery` delivers tickets and tokens. `uringcore.tls` has their Python classes.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_quic::tls::{CipherSuite, MemorySessions, SessionStore, SessionTicket};

use crate::capi::bounded_arguments::{self, BytesLike, List, OwnedBytes};

/// The fields of a `SessionTicket` of `uringcore.tls`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct TicketFields {
    age_add: u32,
    cipher_suite: u16,
    early_data: bool,
    issued: f64,
    lifetime: f64,
    peer_certificates: List<OwnedBytes>,
    resumption_secret: OwnedBytes,
    server_name: String,
    ticket: OwnedBytes,
    transport_parameters: OwnedBytes,
    version: Option<u32>,
}

impl TicketFields {
    /// Converts the fields. The error is a sentence about the setting `session_ticket`.
    pub fn into_ticket(self) -> Result<SessionTicket, String> {
        let issued = Duration::try_from_secs_f64(self.issued)
            .ok()
            .filter(|since| *since < 10 * bounded_arguments::SPAN_MAX)
            .and_then(|since| UNIX_EPOCH.checked_add(since));
        Ok(SessionTicket {
            server_name: self.server_name,
            cipher_suite: CipherSuite::from_u16(self.cipher_suite)
                .ok_or("its cipher suite is not one of TLS 1.3")?,
            ticket: self.ticket.0,
            secret: self.resumption_secret.0,
            age_add: self.age_add,
            issued: issued.ok_or("not_valid_before is out of range")?,
            // A negative or absurd lifetime counts as expired.
            lifetime: bounded_arguments::span(self.lifetime).unwrap_or_default(),
            early_data: self.early_data,
            transport_params: self.transport_parameters.0,
            peer_certificates: self.peer_certificates.into_vecs(),
            version: self.version,
        })
    }
}

/// Makes Python's `SessionTicket` for a ticket that a client has received.
pub fn ticket_to_python<'py>(
    py: Python<'py>,
    ticket: &SessionTicket,
) -> PyResult<Bound<'py, PyAny>> {
    let since = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let certificates: Vec<_> = ticket
        .peer_certificates
        .iter()
        .map(|der| PyBytes::new(py, der))
        .collect();
    let fields = (
        ticket.age_add,
        ticket.cipher_suite.as_u16(),
        ticket.early_data,
        since(ticket.issued).as_secs_f64(),
        ticket.lifetime.as_secs_f64(),
        certificates,
        PyBytes::new(py, &ticket.secret),
        &ticket.server_name,
        PyBytes::new(py, &ticket.ticket),
        PyBytes::new(py, &ticket.transport_params),
        ticket.version,
    );
    py.import(intern!(py, "uringcore.tls"))?
        .getattr(intern!(py, "_session_ticket"))?
        .call1(fields)
}

/// Makes Python's `AddressToken` for a token that a client has received.
pub fn token_to_python<'py>(
    py: Python<'py>,
    token: &[u8],
    version: u32,
) -> PyResult<Bound<'py, PyAny>> {
    py.import(intern!(py, "uringcore.tls"))?
        .getattr(intern!(py, "AddressToken"))?
        .call1((PyBytes::new(py, token), version))
}

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
