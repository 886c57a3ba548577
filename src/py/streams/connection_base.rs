//! `ConnectionBase`: the streams and datagrams of a connection or a session. Python's `Connection` is a subclass that
//! opens and closes the connection.

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use uringcore_quic::DatagramError;
use uringcore_quic::read_on_demand::Key;

use super::errors;
use super::stream;
use super::stream_awaitables::{Polled, StreamAwaitable, StreamOperation};
use super::stream_manager::StreamManager;
use crate::capi::bytes_like_objects;
use crate::capi::gil_cell::GilCell;

/// The streams and datagrams of a connection or a session.
#[pyclass(frozen, subclass, weakref, module = "uringcore._uringcore")]
pub struct ConnectionBase {
    pub(super) manager: Py<StreamManager>,
}

/// A stream that is not open yet. An `await` or an `async with` opens it.
#[pyclass(frozen, name = "Opening", module = "uringcore._uringcore")]
pub struct Opening {
    pub(super) connection: Py<ConnectionBase>,
    unidirectional: bool,
    /// The stream that `async with` has opened.
    stream: GilCell<Option<Py<PyAny>>>,
}

/// An asynchronous iterator over the streams that the peer opens.
#[pyclass(frozen, name = "Streams", module = "uringcore._uringcore")]
struct Streams {
    connection: Py<ConnectionBase>,
    unidirectional: bool,
}

/// An asynchronous iterator over received datagrams.
#[pyclass(frozen, name = "Datagrams", module = "uringcore._uringcore")]
struct Datagrams {
    connection: Py<ConnectionBase>,
}

#[pymethods]
impl ConnectionBase {
    #[new]
    #[pyo3(signature = (manager, *_args, **_kwargs))]
    fn new(
        manager: Py<StreamManager>,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> Self {
        Self { manager }
    }

    /// Opens a bidirectional stream. Waits while the peer's limit of streams is reached. The peer sees the stream with
    /// its first data::
    ///
    ///     async with connection.open_stream() as stream:
    ///
    /// or ``stream = await connection.open_stream()``.
    fn open_stream(slf: Py<Self>) -> Opening {
        Opening::new(slf, false)
    }

    /// Opens a stream on which only this side sends. Otherwise this method is like :meth:`open_stream`.
    fn open_uni_stream(slf: Py<Self>) -> Opening {
        Opening::new(slf, true)
    }

    /// Waits for the next bidirectional stream that the peer opens.
    fn accept_stream(slf: Py<Self>) -> StreamAwaitable {
        StreamAwaitable::new(StreamOperation::Accept(slf, false))
    }

    /// Waits for the next stream on which only the peer sends.
    fn accept_uni_stream(slf: Py<Self>) -> StreamAwaitable {
        StreamAwaitable::new(StreamOperation::Accept(slf, true))
    }

    /// Iterates over the bidirectional streams that the peer opens. Ends when an application closes the connection with
    /// code 0; any other end of the connection is raised.
    fn streams(slf: Py<Self>) -> Streams {
        Streams {
            connection: slf,
            unidirectional: false,
        }
    }

    /// Iterates over the streams on which only the peer sends. Ends as :meth:`streams` does.
    fn uni_streams(slf: Py<Self>) -> Streams {
        Streams {
            connection: slf,
            unidirectional: true,
        }
    }

    /// Queues one datagram (RFC 9221), which may be lost. Never waits: when 1 MiB is queued, the oldest datagrams are
    /// dropped, and ``stats()["datagram_frames_dropped"]`` counts them.
    ///
    /// Raises :class:`DatagramSendError` if the datagram is longer than :attr:`max_datagram_size`, which depends on the
    /// peer and the network, or if one side does not support datagrams. Raises the connection's error after its end.
    fn send_datagram(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let data = bytes_like_objects::contiguous(data, "data")?;
        let sent = self
            .manager
            .get()
            .require_transport(py, |stream_transport| stream_transport.send_datagram(data))?;
        self.manager.get().written(py);
        sent.map_err(|error| self.not_sent(py, error))
    }

    /// Queues several datagrams: all of them or none. Otherwise this method is like :meth:`send_datagram`.
    fn send_datagrams(&self, py: Python<'_>, datagrams: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut all = Vec::new();
        for data in datagrams.try_iter()? {
            all.push(bytes_like_objects::contiguous(&data?, "datagrams")?);
        }
        let sent = self
            .manager
            .get()
            .require_transport(py, |stream_transport| {
                let max = stream_transport.max_datagram_size();
                let longest = all.iter().map(bytes::Bytes::len).max().unwrap_or(0);
                match max {
                    Some(max) if longest > max => return Err(DatagramError::TooLarge { max }),
                    _ => {}
                }
                all.into_iter()
                    .try_for_each(|data| stream_transport.send_datagram(data))
            })?;
        self.manager.get().written(py);
        sent.map_err(|error| self.not_sent(py, error))
    }

    /// The size in bytes of the largest datagram that can be sent now. ``None`` if one side does not support datagrams.
    #[getter]
    fn max_datagram_size(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        let size = self
            .manager
            .get()
            .with_transport(py, |stream_transport| stream_transport.max_datagram_size())?;
        Ok(size.flatten())
    }

    /// Waits for the next datagram. Received datagrams wait for the program, the newest ``datagram_buffer`` bytes of
    /// them.
    fn receive_datagram(slf: Py<Self>) -> StreamAwaitable {
        StreamAwaitable::new(StreamOperation::Datagram(slf))
    }

    /// Returns all datagrams that have arrived. Waits for one if there is none.
    fn receive_datagrams(slf: Py<Self>) -> StreamAwaitable {
        StreamAwaitable::new(StreamOperation::Datagrams(slf))
    }

    /// Iterates over the datagrams. Ends as :meth:`streams` does.
    fn datagrams(slf: Py<Self>) -> Datagrams {
        Datagrams { connection: slf }
    }

    /// The number of received datagrams that were dropped for want of space.
    #[getter]
    fn datagrams_dropped(&self, py: Python<'_>) -> u64 {
        self.manager
            .get()
            .inbox(py, |inbox| inbox.datagrams_dropped())
    }

    /// Waits until the peer has acknowledged all streams that this side has finished, or the connection has ended.
    fn wait_delivered(slf: Py<Self>) -> StreamAwaitable {
        StreamAwaitable::new(StreamOperation::WaitAllFinished(slf))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.manager)
    }
}

impl ConnectionBase {
    pub fn open(slf: &Bound<'_, Self>, unidirectional: bool) -> PyResult<Polled> {
        let opened = slf
            .get()
            .manager
            .get()
            .require_transport(slf.py(), |stream_transport| {
                stream_transport.open_stream(unidirectional)
            })?;
        Ok(match opened {
            Some(id) => {
                slf.get()
                    .manager
                    .get()
                    .inbox(slf.py(), |inbox| inbox.opened(id));
                Polled::Ready(stream::opened(slf, id, unidirectional)?)
            }
            None => Polled::Wait(Key::Open { unidirectional }),
        })
    }

    /// Accepts the next stream of the peer. With `iterates`, an orderly end of the connection ends the iteration and is
    /// not an error.
    pub fn accept(slf: &Bound<'_, Self>, unidirectional: bool, iterates: bool) -> PyResult<Polled> {
        let this = slf.get();
        let next = |py| {
            this.manager
                .get()
                .inbox(py, |inbox| inbox.accept(unidirectional))
        };
        match next(slf.py()) {
            Some(id) => Ok(Polled::Ready(stream::accepted(slf, id, unidirectional)?)),
            None => this.none_arrived(slf.py(), Key::Accept { unidirectional }, iterates),
        }
    }

    pub fn datagram(&self, py: Python<'_>, iterates: bool) -> PyResult<Polled> {
        let next = self.manager.get().inbox(py, |inbox| inbox.pop_datagram());
        match next {
            Some(data) => Ok(Polled::Ready(PyBytes::new(py, &data).into_any().unbind())),
            None => self.none_arrived(py, Key::Datagram, iterates),
        }
    }

    pub fn datagrams_waiting(&self, py: Python<'_>) -> PyResult<Polled> {
        let all: Vec<_> = self.manager.get().inbox(py, |inbox| {
            std::iter::from_fn(|| inbox.pop_datagram()).collect()
        });
        if all.is_empty() {
            return self.none_arrived(py, Key::Datagram, false);
        }
        let objects = all.iter().map(|data| PyBytes::new(py, data));
        Ok(Polled::Ready(PyList::new(py, objects)?.into_any().unbind()))
    }

    pub fn wait_all_finished(&self, py: Python<'_>) -> PyResult<Polled> {
        let manager = self.manager.get();
        Ok(
            match manager.read_transport(py, |stream_transport| stream_transport.is_finishing())? {
                Some(true) if !manager.is_over(py) => Polled::Wait(Key::AllFinished),
                _ => Polled::Ready(py.None()),
            },
        )
    }

    fn none_arrived(&self, py: Python<'_>, key: Key, iterates: bool) -> PyResult<Polled> {
        let manager = self.manager.get();
        if !manager.is_over(py) {
            Ok(Polled::Wait(key))
        } else if iterates && manager.is_over_orderly(py) {
            Ok(Polled::Exhausted)
        } else {
            Err(manager.ended(py))
        }
    }

    fn not_sent(&self, py: Python<'_>, error: DatagramError) -> PyErr {
        match error {
            DatagramError::Closed => match self.manager.get().is_over(py) {
                true => self.manager.get().ended(py),
                false => errors::connection_closed(py),
            },
            error => errors::datagram(py, error),
        }
    }
}

#[pymethods]
impl Opening {
    fn __await__(&self, py: Python<'_>) -> StreamAwaitable {
        let connection = self.connection.clone_ref(py);
        StreamAwaitable::new(StreamOperation::Open(connection, self.unidirectional))
    }

    fn __aenter__(slf: Py<Self>) -> StreamAwaitable {
        StreamAwaitable::new(StreamOperation::Enter(slf))
    }

    #[pyo3(signature = (exc_type, exc_value, traceback))]
    fn __aexit__<'py>(
        &self,
        exc_type: &Bound<'py, PyAny>,
        exc_value: &Bound<'py, PyAny>,
        traceback: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = exc_type.py();
        let stream = self.stream.take(py);
        let stream = stream.unwrap_or_else(|| py.None()).into_bound(py);
        stream.call_method1(intern!(py, "__aexit__"), (exc_type, exc_value, traceback))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.connection)?;
        self.stream
            .traverse(|stream| visit.call(stream))
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        drop(self.stream.take(py));
    }
}

impl Opening {
    fn new(connection: Py<ConnectionBase>, unidirectional: bool) -> Self {
        Self {
            connection,
            unidirectional,
            stream: GilCell::new(None),
        }
    }

    pub fn enter(&self, py: Python<'_>) -> PyResult<Polled> {
        if self.stream.with(py, |stream| stream.is_some()) {
            let what = "it is entered already; another block needs another stream";
            return Err(PyRuntimeError::new_err(what));
        }
        let polled = ConnectionBase::open(self.connection.bind(py), self.unidirectional)?;
        if let Polled::Ready(stream) = &polled {
            let stream = stream.clone_ref(py);
            let old = self.stream.with(py, |entered| entered.replace(stream));
            drop(old);
        }
        Ok(polled)
    }
}

#[pymethods]
impl Streams {
    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__(&self, py: Python<'_>) -> StreamAwaitable {
        let connection = self.connection.clone_ref(py);
        StreamAwaitable::new(StreamOperation::NextStream(connection, self.unidirectional))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.connection)
    }
}

#[pymethods]
impl Datagrams {
    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__(&self, py: Python<'_>) -> StreamAwaitable {
        StreamAwaitable::new(StreamOperation::NextDatagram(self.connection.clone_ref(py)))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.connection)
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<ConnectionBase>()?;
    m.add_class::<Opening>()?;
    m.add_class::<Streams>()?;
    m.add_class::<Datagrams>()
}
