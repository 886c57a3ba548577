//! `QuicStreams`: passes the events of a connection, or of a WebTransport session, to the futures that wait for them.
//!
//! A connection refers to futures and not to streams; streams refer to their connection. So waiting keeps no object
//! alive. A stream that the garbage collector frees is ended; its sending side is reset, because incomplete data must
//! not look complete. A connection that is freed with its streams is closed. A listener that is freed is closed too,
//! because its endpoint has connections that wait to be accepted. The collector runs on any thread, so all this
//! happens on the loop (`on_loop`, `StreamManager::forgotten`). In debug mode a warning names the line that has made
//! the object.

use std::sync::Arc;
use std::time::Instant;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use rustc_hash::FxHashMap;
use uringcore_limits::memory_budget::Charge;
use uringcore_quic::read_on_demand::{Inbox, Key, Overflow, StreamTransport};
use uringcore_quic::{Command, Connection, Event, Received};

use super::transport_access::TransportAccess;
use crate::capi::future_wakeup::{Waiters, wake};
use crate::capi::gil_cell::GilCell;
use crate::quic::{QuicConnectionCore, StreamProtocol};

/// Handles the stream events of a connection or session, which keeps this object alive. The program's stream objects
/// reference this object; it does not reference them, so that they can be garbage-collected.
#[pyclass(frozen, name = "QuicStreams", module = "uringcore._uringcore")]
pub struct StreamManager {
    transport: Box<dyn TransportAccess>,
    /// The loop's method `create_future`.
    new_future: Py<PyAny>,
    /// A function that returns the line of the program that runs now. Present in debug mode only.
    made_at: Option<Py<PyAny>>,
    state: GilCell<ManagerState>,
}

struct ManagerState {
    inbox: Inbox,
    waiting: FxHashMap<Key, EventWaiters>,
    /// The keys whose events have happened, so that their futures have to be set.
    due: Vec<Key>,
    /// Called after commands if the connection runs on another loop than ours, because only our loop sends at the end of
    /// a loop iteration. `None` on our loop.
    transmit: Option<Py<PyAny>>,
    end: Option<End>,
    /// The IDs of streams that were freed while the transport could not be used.
    forgotten: Vec<u64>,
}

/// The futures that wait for one event. Some of them may be cancelled, because a program with time limits waits again
/// and again.
#[derive(Default)]
struct EventWaiters {
    futures: Waiters,
    /// If there are this many futures, those that are done are removed.
    max: usize,
}

/// The reason for which the connection or the session has ended.
struct End {
    /// Called for each raise, to make a new exception.
    make_error: Py<PyAny>,
    /// True if an application has closed the connection or session without an error.
    is_orderly: bool,
}

#[pymethods]
impl StreamManager {
    /// Handles the connection's stream events from now on. `transmit` is called after commands, on a loop that does not
    /// send by itself. At most `datagram_bytes` of received datagrams wait for the program; above that the oldest are
    /// dropped, or with `drops_newest` the new ones. `made_at()` returns the line of the program that makes a stream,
    /// for warnings about streams that were dropped.
    #[new]
    #[pyo3(signature = (quic, new_future, *, is_client, datagram_bytes, drops_newest = false, transmit = None, made_at = None))]
    fn new(
        quic: &Bound<'_, QuicConnectionCore>,
        new_future: Py<PyAny>,
        is_client: bool,
        datagram_bytes: usize,
        drops_newest: bool,
        transmit: Option<Py<PyAny>>,
        made_at: Option<Py<PyAny>>,
    ) -> PyResult<Py<Self>> {
        let py = quic.py();
        let mut inbox = Inbox::new(is_client, datagram_bytes);
        inbox.set_overflow(overflow(drops_newest));
        if let Some(queued) = quic.get().running(py, |quic| quic.queued())? {
            inbox.set_charge(Charge::new(queued));
        }
        let manager = Self::for_transport(
            Box::new(quic.clone().unbind()),
            new_future,
            made_at,
            inbox,
            transmit,
        );
        let manager = Py::new(py, manager)?;
        let streams = Streams(manager.clone_ref(py));
        quic.get().attach(py, Arc::new(streams));
        quic.get().command(py, Command::ReadOnDemand)?;
        Ok(manager)
    }

    /// Wakes all futures, because the connection or session has ended. `make_error()` makes an exception with the
    /// reason. `is_orderly` is true if an application has closed it without an error.
    pub fn end(&self, py: Python<'_>, make_error: Py<PyAny>, is_orderly: bool) -> PyResult<()> {
        let end = End {
            make_error,
            is_orderly,
        };
        let (old, waiting) = self.state.with(py, |state| {
            if !is_orderly {
                // Received datagrams are dropped now. Otherwise a program that does not receive for a while would keep
                // their memory.
                state.inbox.drop_datagrams();
            }
            let old = (state.transmit.take(), state.end.replace(end));
            (old, std::mem::take(&mut state.waiting))
        });
        drop(old);
        self.transport.detach(py);
        let waiting = waiting.into_values();
        wake(py, waiting.flat_map(|mut waiters| waiters.futures.take()))
    }

    /// The number of received datagrams that were dropped for want of space.
    #[getter]
    fn datagrams_dropped(&self, py: Python<'_>) -> u64 {
        self.state.with(py, |state| state.inbox.datagrams_dropped())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.transport.traverse(&visit)?;
        visit.call(&self.new_future)?;
        visit.call(&self.made_at)?;
        self.state
            .traverse(|state| {
                visit.call(&state.transmit)?;
                visit.call(state.end.as_ref().map(|end| &end.make_error))?;
                let waiters = state.waiting.values();
                let mut futures = waiters.flat_map(|waiters| waiters.futures.iter());
                futures.try_for_each(|future| visit.call(future))
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        let old = self.state.with(py, |state| {
            let waiting = std::mem::take(&mut state.waiting);
            (waiting, state.transmit.take(), state.end.take())
        });
        drop(old);
    }
}

impl StreamManager {
    pub fn for_transport(
        transport: Box<dyn TransportAccess>,
        new_future: Py<PyAny>,
        made_at: Option<Py<PyAny>>,
        inbox: Inbox,
        transmit: Option<Py<PyAny>>,
    ) -> Self {
        let state = ManagerState {
            inbox,
            waiting: FxHashMap::default(),
            due: Vec::new(),
            transmit,
            end: None,
            forgotten: Vec::new(),
        };
        Self {
            transport,
            new_future,
            made_at,
            state: GilCell::new(state),
        }
    }

    /// Calls `run` with the stream's transport. `None` if the transport has not started, or if the transport or its
    /// loop has ended.
    pub fn with_transport<R>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut dyn StreamTransport) -> R,
    ) -> PyResult<Option<R>> {
        let (mut run, mut result) = (Some(run), None);
        self.transport.with_transport(py, &mut |stream_transport| {
            result = run.take().map(|run| run(stream_transport));
        })?;
        let transmit = self.state.with(py, |state| {
            state.transmit.as_ref().map(|call| call.clone_ref(py))
        });
        if let Some(transmit) = transmit {
            transmit.bind(py).call0()?;
        }
        Ok(result)
    }

    /// Lets the loop send the written data. Called when the program has written all that it has at present.
    pub fn written(&self, py: Python<'_>) {
        self.transport.written(py);
    }

    /// Calls `run` with the transport. Fails if the transport has ended.
    pub fn require_transport<R>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut dyn StreamTransport) -> R,
    ) -> PyResult<R> {
        match self.with_transport(py, run)? {
            Some(result) => Ok(result),
            None => Err(self.ended(py)),
        }
    }

    /// Calls `run` with the transport, to read its state.
    pub fn read_transport<R>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&dyn StreamTransport) -> R,
    ) -> PyResult<Option<R>> {
        let (mut run, mut result) = (Some(run), None);
        self.transport.read_transport(py, &mut |stream_transport| {
            result = run.take().map(|run| run(stream_transport));
        })?;
        Ok(result)
    }

    pub fn inbox<R>(&self, py: Python<'_>, run: impl FnOnce(&mut Inbox) -> R) -> R {
        self.state.with(py, |state| run(&mut state.inbox))
    }

    /// The line of the program that makes a stream. `None` without debug mode.
    pub fn origin(&self, py: Python<'_>) -> PyResult<Option<String>> {
        match &self.made_at {
            Some(made_at) => made_at.bind(py).call0()?.extract(),
            None => Ok(None),
        }
    }

    /// Takes at most `max` bytes from a stream.
    pub fn pull(&self, py: Python<'_>, stream_id: u64, max: usize) -> PyResult<Received> {
        let rest = self.inbox(py, |inbox| inbox.take_rest(stream_id, max));
        match rest {
            Some(rest) => Ok(rest),
            None => Ok(self
                .with_transport(py, |stream_transport| {
                    stream_transport.read_stream(stream_id, max)
                })?
                .unwrap_or_default()),
        }
    }

    pub fn is_over(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.end.is_some())
    }

    /// True if the connection has ended without an error.
    pub fn is_over_orderly(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| {
            state.end.as_ref().is_some_and(|end| end.is_orderly)
        })
    }

    /// The exception for a connection that has ended.
    pub fn ended(&self, py: Python<'_>) -> PyErr {
        let make_error = self.state.with(py, |state| {
            let end = state.end.as_ref()?;
            Some(end.make_error.clone_ref(py))
        });
        match make_error.map(|make| make.bind(py).call0()) {
            Some(Ok(error)) => PyErr::from_value(error),
            Some(Err(error)) => error,
            None => PyRuntimeError::new_err("the connection is not open, or its loop is closed"),
        }
    }

    /// Makes a future that is set at the next event of `key`. The caller then tries its operation again.
    pub fn waiter<'py>(&self, py: Python<'py>, key: Key) -> PyResult<Bound<'py, PyAny>> {
        let future = self.new_future.bind(py).call0()?;
        let full = self.state.with(py, |state| {
            let waiters = state.waiting.entry(key).or_default();
            waiters.futures.push(future.clone().unbind());
            (waiters.futures.len() > waiters.max.max(WAITERS_FEW))
                .then(|| std::mem::take(&mut waiters.futures))
        });
        if let Some(futures) = full {
            self.remove_done(py, key, futures)?;
        }
        Ok(future)
    }

    /// Removes futures that are done. The next removal comes when the number of futures has doubled, so that the cost
    /// for each future does not depend on their number.
    fn remove_done(&self, py: Python<'_>, key: Key, futures: Waiters) -> PyResult<()> {
        let mut live = futures.without_done(py)?;
        self.state.with(py, |state| {
            let waiters = state.waiting.entry(key).or_default();
            waiters.max = live.len() * 2;
            live.take().for_each(|future| waiters.futures.push(future));
        });
        Ok(())
    }

    /// Wakes the futures that wait for one of `keys`.
    pub fn wake(&self, py: Python<'_>, keys: impl IntoIterator<Item = Key>) -> PyResult<()> {
        let mut waiting: Waiters = self.state.with(py, |state| {
            if state.waiting.is_empty() {
                return Waiters::default();
            }
            let found = keys
                .into_iter()
                .filter_map(|key| state.waiting.remove(&key));
            found
                .flat_map(|mut waiters| waiters.futures.take())
                .collect()
        });
        wake(py, waiting.take())
    }

    /// Called when the program has dropped its stream object: ends the directions that are still open (`abandoned`),
    /// and removes the stream's state here.
    pub fn forget(&self, py: Python<'_>, stream_id: u64, abandoned: Abandoned) {
        // Only cancelled calls have left these futures: the awaitable of a call that still waits references the stream,
        // so the stream would not be dropped.
        let left = self.state.with(py, |state| {
            state.inbox.forget(stream_id);
            if state.waiting.is_empty() {
                return [None, None, None];
            }
            Key::of_stream(stream_id).map(|key| state.waiting.remove(&key))
        });
        drop(left);
        let is_of_interest = !abandoned.is_nothing() || self.transport.keeps_streams();
        if is_of_interest
            && self
                .with_transport(py, |stream_transport| {
                    abandoned.forget(stream_transport, stream_id)
                })
                .is_err()
        {
            // The transport cannot be used now, because this is not the loop's thread. The next events end the stream.
            self.state.with(py, |state| state.forgotten.push(stream_id));
        }
    }

    /// Calls `take`, which adds events to the inbox, and then wakes the futures that wait for those events.
    pub fn receive_events(
        &self,
        py: Python<'_>,
        take: impl FnOnce(&mut Inbox, &mut Vec<Key>),
    ) -> PyResult<()> {
        let (mut keys, forgotten) = self.state.with(py, |state| {
            take(&mut state.inbox, &mut state.due);
            let due = std::mem::take(&mut state.due);
            (due, std::mem::take(&mut state.forgotten))
        });
        for stream_id in forgotten {
            self.with_transport(py, |stream_transport| {
                Abandoned::BOTH.forget(stream_transport, stream_id)
            })?;
        }
        let woken = self.wake(py, keys.drain(..));
        // The list keeps its memory for the next loop iteration, unless it was long.
        if (1..=KEYS_KEPT).contains(&keys.capacity()) {
            self.state.with(py, |state| {
                // No key was added meanwhile, in most cases.
                keys.append(&mut state.due);
                state.due = keys;
            });
        }
        woken
    }
}

/// Makes a manager the protocol that is attached to a connection's streams.
struct Streams(Py<StreamManager>);

impl StreamProtocol for Streams {
    fn handle(&self, py: Python<'_>, _: &mut Connection, event: Event, _: Instant) {
        self.0.get().state.with(py, |state| {
            let due = &mut state.due;
            state.inbox.handle(event, |key| due.push(key));
        });
    }

    fn deliver(&self, py: Python<'_>) -> PyResult<()> {
        self.0.get().receive_events(py, |_, _| {})
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.0)
    }
}

/// A list of keys with space for up to this number is kept for the next loop iteration.
const KEYS_KEPT: usize = 128;
/// If fewer futures wait than this, none of them is checked for being done.
const WAITERS_FEW: usize = 8;

/// Returns the rule for received datagrams that exceed the queue's space.
pub fn overflow(drops_newest: bool) -> Overflow {
    match drops_newest {
        true => Overflow::Newest,
        false => Overflow::Oldest,
    }
}

/// The open directions of a stream that the program has dropped.
#[derive(Clone, Copy)]
pub struct Abandoned {
    pub sending: bool,
    pub receiving: bool,
}

impl Abandoned {
    pub const BOTH: Self = Self {
        sending: true,
        receiving: true,
    };

    pub fn is_nothing(self) -> bool {
        !self.sending && !self.receiving
    }

    fn forget(self, stream_transport: &mut dyn StreamTransport, stream_id: u64) {
        self.end_directions(stream_transport, stream_id);
        stream_transport.forget_stream(stream_id);
    }

    /// Ends the stream's open directions. The sending direction is reset, because the peer must not take incomplete
    /// data for complete data.
    pub fn end_directions(self, stream_transport: &mut dyn StreamTransport, stream_id: u64) {
        // A failure is ignored: the direction does not exist or has ended meanwhile.
        if self.sending {
            let _ = stream_transport.reset_stream(stream_id, 0);
        }
        if self.receiving {
            let _ = stream_transport.stop_stream(stream_id, 0);
        }
    }
}
