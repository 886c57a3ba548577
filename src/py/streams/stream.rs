//! `SendStream`, `ReceiveStream` and `BidirectionalStream`: a stream as Python sees it.
//!
//! `BidirectionalStream` is a subclass of the other two. These have no fields of their own, so that all instances
//! have the same layout and CPython accepts both as bases. Their common base `Stream` has all fields.
//!
//! Not here: the work of the methods (`reading`, `sending`).

use pyo3::exceptions::{PyResourceWarning, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use pyo3::{PyClass, PyTraverseError, PyVisit};

use super::connection_base::ConnectionBase;
use super::reading::ReadRequest;
use super::sending::Unsent;
use super::stream_awaitables::{StreamAwaitable, StreamOperation};
use super::stream_manager::{Abandoned, StreamManager};
use crate::capi::bytes_like_objects;
use crate::capi::class_with_dict;
use crate::capi::exception_conversion::{warn_of_a_dying_object, with_pending_set_aside};
use crate::capi::gil_cell::GilCell;
use crate::capi::integer_arguments;
use uringcore_quic::read_on_demand::StreamReader;

/// A stream of a connection: the base class of all kinds.
#[pyclass(frozen, subclass, weakref, name = "Stream", module = "uringcore.quic")]
pub struct Stream {
    /// The stream's connection. This reference keeps the connection open while the program uses a stream of it.
    connection: Py<ConnectionBase>,
    pub(super) manager: Py<StreamManager>,
    pub(super) id: u64,
    /// The line of the program that has made the stream. Recorded in debug mode only.
    origin: Option<String>,
    pub(super) sides: GilCell<Sides>,
}

/// The states of both directions of a stream.
pub(super) struct Sides {
    sends: bool,
    receives: bool,
    pub stream_reader: StreamReader,
    /// The program has stopped reading.
    pub is_stopped: bool,
    pub is_finished: bool,
    pub is_reset: bool,
    /// The peer has acknowledged everything, and `wait_finished` has returned.
    pub is_delivered: bool,
}

/// A stream that this side sends on.
#[pyclass(frozen, subclass, extends = Stream, module = "uringcore.quic")]
pub struct SendStream;

/// A stream on which the peer sends.
#[pyclass(frozen, subclass, extends = Stream, module = "uringcore.quic")]
pub struct ReceiveStream;

#[pymethods]
impl Stream {
    /// The stream's ID (RFC 9000 section 2.1).
    #[getter]
    fn id(&self) -> u64 {
        self.id
    }

    /// The stream's connection.
    #[getter]
    fn connection(&self, py: Python<'_>) -> Py<ConnectionBase> {
        self.connection.clone_ref(py)
    }

    fn __aenter__(slf: Py<Self>) -> StreamAwaitable {
        StreamAwaitable::new(StreamOperation::Itself(slf))
    }

    /// Ends the stream at the end of ``async with``, as the class describes.
    #[pyo3(signature = (exc_type, exc_value, traceback))]
    fn __aexit__(
        slf: Py<Self>,
        exc_type: &Bound<'_, PyAny>,
        exc_value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> StreamAwaitable {
        let _ = (exc_value, traceback);
        StreamAwaitable::new(StreamOperation::Leave(slf, !exc_type.is_none()))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let class = slf.get_type().name()?;
        Ok(format!("<{class} {}>", slf.get().id))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.connection)?;
        visit.call(&self.manager)
    }
}

#[pymethods]
impl SendStream {
    /// Sends ``data``, a bytes-like object, as a whole. With ``finish`` it is the last data of the stream, as if
    /// :meth:`finish` followed.
    ///
    /// Returns at once while less than ``send_buffer`` bytes are queued, and otherwise waits until that is so. If it is
    /// cancelled while it waits, it has sent nothing. A mutable object is copied at the call.
    ///
    /// Raises :class:`StreamStoppedError` if the peer accepts no more data, :class:`StreamClosedError` after
    /// :meth:`finish` and :meth:`reset`, and the connection's error after its end.
    #[pyo3(signature = (data, *, finish = false))]
    fn send(
        slf: &Bound<'_, Self>,
        data: &Bound<'_, PyAny>,
        finish: bool,
    ) -> PyResult<StreamAwaitable> {
        let data = bytes_like_objects::contiguous(data, "data")?;
        let unsent = match finish {
            true => Unsent::Last(data),
            false => Unsent::Whole(data),
        };
        Ok(StreamAwaitable::new(StreamOperation::Send(
            base(slf),
            unsent,
        )))
    }

    /// Sends ``data`` of any length in pieces, each when there is space for it. Returns when the last piece is queued;
    /// the object must not change before that. If it is cancelled, a part has been sent.
    ///
    /// Raises the errors of :meth:`send`.
    fn send_all(slf: &Bound<'_, Self>, data: &Bound<'_, PyAny>) -> PyResult<StreamAwaitable> {
        let unsent = Unsent::in_pieces(data)?;
        Ok(StreamAwaitable::new(StreamOperation::Send(
            base(slf),
            unsent,
        )))
    }

    /// Sends all objects of ``lines`` in order. Otherwise as :meth:`send`.
    fn writelines(slf: &Bound<'_, Self>, lines: &Bound<'_, PyAny>) -> PyResult<StreamAwaitable> {
        let mut pieces = Vec::new();
        for line in lines.try_iter()? {
            let piece = bytes_like_objects::contiguous(&line?, "lines")?;
            if !piece.is_empty() {
                pieces.push(piece);
            }
        }
        Ok(StreamAwaitable::new(StreamOperation::Send(
            base(slf),
            Unsent::Together(pieces),
        )))
    }

    /// Sends ``file``, a regular file that is open for reading in binary mode, from ``offset`` on: ``count`` bytes, or
    /// up to its end. Returns the number of sent bytes. Sets the file's position to the byte after the last sent one;
    /// leaves it unchanged if no byte was sent. If it is cancelled, a part has been sent.
    ///
    /// Raises the errors of :meth:`send`, the errors of reading, and ``ValueError`` for a file in text mode.
    #[pyo3(signature = (file, offset = 0, count = None))]
    fn sendfile<'py>(
        slf: &Bound<'py, Self>,
        file: &Bound<'py, PyAny>,
        offset: i64,
        count: Option<i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        py.import(intern!(py, "uringcore.quic._typed_api.sendfile"))?
            .call_method1(intern!(py, "sendfile"), (slf, file, offset, count))
    }

    /// Ends the sending side. The end is sent after the queued data; this does not wait for it. A second call does
    /// nothing.
    ///
    /// Raises the errors of :meth:`send`.
    fn finish(slf: &Bound<'_, Self>) -> StreamAwaitable {
        StreamAwaitable::new(StreamOperation::Finish(base(slf)))
    }

    /// Waits until the stream is finished and the peer has acknowledged all of it. The data has arrived then, but the
    /// peer's program may not have read it.
    ///
    /// Raises the errors of :meth:`send`.
    fn wait_finished(slf: &Bound<'_, Self>) -> StreamAwaitable {
        StreamAwaitable::new(StreamOperation::WaitFinished(base(slf)))
    }

    /// Resets the sending side with an error code of the application (RFC 9000 section 19.4). Queued data is dropped,
    /// and the peer may not get data that it has not read yet. Does nothing after the end of the stream.
    ///
    /// Raises ``ValueError`` for a code that does not fit in 62 bits.
    #[pyo3(signature = (code = 0))]
    fn reset(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = integer_arguments::code)] code: u64,
    ) -> PyResult<()> {
        slf.as_super().get().reset(slf.py(), code)
    }

    /// Sets the priority (RFC 9218): ``urgency`` is from 0 (sent first) to 7. Streams with equal urgency are sent in
    /// the order of their IDs, or alternately if they are ``incremental``. The default is urgency 3, incremental.
    ///
    /// Raises ``ValueError`` for another urgency.
    #[pyo3(signature = (urgency, incremental = false))]
    fn priority(slf: &Bound<'_, Self>, urgency: i64, incremental: bool) -> PyResult<()> {
        let stream = slf.as_super().get();
        stream.prioritise(slf.py(), urgency, incremental)
    }
}

#[pymethods]
impl ReceiveStream {
    /// Reads at most ``n`` bytes: those that have arrived, at least one, or ``b""`` at the end of the stream. Without
    /// ``n`` or with -1, reads everything up to the end into memory.
    ///
    /// Returns at once if bytes have arrived. The peer gets flow control credit for the bytes that were read. If it is
    /// cancelled, it has taken no bytes.
    ///
    /// Raises :class:`StreamResetError` if the peer has reset its side, :class:`StreamClosedError` after :meth:`stop`,
    /// and the connection's error if the connection ends before the stream.
    #[pyo3(signature = (n = -1), text_signature = "($self, n=-1)")]
    fn read(slf: &Bound<'_, Self>, n: isize) -> StreamAwaitable {
        let asked = usize::try_from(n).map_or(ReadRequest::All, ReadRequest::UpTo);
        StreamAwaitable::new(StreamOperation::Read(base(slf), asked))
    }

    /// Reads exactly ``n`` bytes.
    ///
    /// Raises ``asyncio.IncompleteReadError`` with the bytes that have arrived if the stream ends before, and the
    /// errors of :meth:`read`.
    fn readexactly(slf: &Bound<'_, Self>, n: isize) -> PyResult<StreamAwaitable> {
        let count = usize::try_from(n)
            .map_err(|_| PyValueError::new_err("readexactly size can not be less than zero"))?;
        Ok(StreamAwaitable::new(StreamOperation::Read(
            base(slf),
            ReadRequest::Exactly(count),
        )))
    }

    /// Reads up to the first ``separator`` and including it, with at most ``limit`` bytes before it.
    ///
    /// Raises ``asyncio.LimitOverrunError`` if there are more bytes before it, which stay unread,
    /// ``asyncio.IncompleteReadError`` if the stream ends before the separator, and the errors of :meth:`read`.
    #[pyo3(signature = (separator = None, *, limit = 65536))]
    fn readuntil(
        slf: &Bound<'_, Self>,
        separator: Option<&Bound<'_, PyAny>>,
        limit: usize,
    ) -> PyResult<StreamAwaitable> {
        let separator = match separator {
            Some(separator) => bytes_like_objects::contiguous(separator, "separator")?.to_vec(),
            None => b"\n".to_vec(),
        };
        if separator.is_empty() {
            return Err(PyValueError::new_err(
                "Separator should be at least one-byte string",
            ));
        }
        let asked = ReadRequest::Until {
            separator,
            max: limit,
        };
        Ok(StreamAwaitable::new(StreamOperation::Read(
            base(slf),
            asked,
        )))
    }

    /// Reads the bytes that have arrived, at least one, into ``bytes_like_objects``, a writable bytes-like object. Returns their
    /// number; 0 at the end of the stream.
    ///
    /// Raises the errors of :meth:`read`.
    fn readinto(slf: &Bound<'_, Self>, buffer: Py<PyAny>) -> PyResult<StreamAwaitable> {
        if bytes_like_objects::with_writable(buffer.bind(slf.py()), |_| ()).is_none() {
            return Err(PyTypeError::new_err(
                "buffer must be a writable bytes-like object",
            ));
        }
        Ok(StreamAwaitable::new(StreamOperation::ReadInto(
            base(slf),
            buffer,
        )))
    }

    /// True if the program has read everything that the peer has sent and the end of the stream has arrived, so that
    /// :meth:`read` returns ``b""``. If the end has arrived with the last data, this is True as soon as that data was
    /// read.
    fn at_eof(slf: &Bound<'_, Self>) -> bool {
        let stream = slf.as_super().get();
        stream
            .sides
            .with(slf.py(), |sides| sides.stream_reader.is_at_eof())
    }

    /// Requests that the peer stops sending, with an error code of the application (RFC 9000 section 19.5). Nothing
    /// more is read. Does nothing after the peer has ended the stream.
    ///
    /// Raises ``ValueError`` for a code that does not fit in 62 bits.
    #[pyo3(signature = (code = 0))]
    fn stop(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = integer_arguments::code)] code: u64,
    ) -> PyResult<()> {
        slf.as_super().get().stop(slf.py(), code)
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__(slf: &Bound<'_, Self>) -> StreamAwaitable {
        StreamAwaitable::new(StreamOperation::Next(base(slf)))
    }
}

impl Stream {
    fn new(
        connection: &Bound<'_, ConnectionBase>,
        id: u64,
        sends: bool,
        receives: bool,
    ) -> PyResult<Self> {
        let py = connection.py();
        let manager = connection.get().manager.clone_ref(py);
        let sides = Sides {
            sends,
            receives,
            stream_reader: StreamReader::default(),
            is_stopped: false,
            is_finished: false,
            is_reset: false,
            is_delivered: false,
        };
        Ok(Self {
            connection: connection.clone().unbind(),
            origin: manager.get().origin(py)?,
            manager,
            id,
            sides: GilCell::new(sides),
        })
    }

    /// The directions of the stream that have not ended yet.
    pub(super) fn open_sides(&self, py: Python<'_>) -> Abandoned {
        self.sides.with(py, |sides| Abandoned {
            sending: sides.sends && !sides.is_finished && !sides.is_reset,
            receiving: sides.receives && !sides.is_stopped && !sides.stream_reader.is_ended(),
        })
    }
}

/// Ends a stream that the program no longer references, because nothing else could end it.
impl Drop for Stream {
    fn drop(&mut self) {
        Python::try_attach(|py| {
            with_pending_set_aside(py, || {
                let open = self.open_sides(py);
                let manager = self.manager.get();
                if let Some(origin) = &self.origin
                    && !open.is_nothing()
                    && !manager.is_over(py)
                {
                    let text = format!("unclosed stream {}, made at {origin}", self.id);
                    warn_of_a_dying_object(&py.get_type::<PyResourceWarning>(), text);
                }
                manager.forget(py, self.id, open);
            });
        });
    }
}

/// Makes the object of a stream that this side has opened.
pub fn opened(
    connection: &Bound<'_, ConnectionBase>,
    id: u64,
    unidirectional: bool,
) -> PyResult<Py<PyAny>> {
    match unidirectional {
        true => {
            let py = connection.py();
            let stream = Stream::new(connection, id, true, false)?;
            let class = py.get_type::<SendStream>();
            Ok(class_with_dict::instance_of(&class, sending(stream))?.into_any())
        }
        false => bidirectional(connection, id),
    }
}

/// Makes the object of a stream that the peer has opened.
pub fn accepted(
    connection: &Bound<'_, ConnectionBase>,
    id: u64,
    unidirectional: bool,
) -> PyResult<Py<PyAny>> {
    match unidirectional {
        true => {
            let py = connection.py();
            let stream = Stream::new(connection, id, false, true)?;
            let class = py.get_type::<ReceiveStream>();
            let value = PyClassInitializer::from(stream).add_subclass(ReceiveStream);
            Ok(class_with_dict::instance_of(&class, value)?.into_any())
        }
        false => bidirectional(connection, id),
    }
}

fn bidirectional(connection: &Bound<'_, ConnectionBase>, id: u64) -> PyResult<Py<PyAny>> {
    let py = connection.py();
    let class = BIDIRECTIONAL.get_or_try_init(py, || make_bidirectional(py))?;
    let stream = Stream::new(connection, id, true, true)?;
    Ok(class_with_dict::instance_of::<SendStream>(class.bind(py), sending(stream))?.into_any())
}

fn sending(stream: Stream) -> PyClassInitializer<SendStream> {
    PyClassInitializer::from(stream).add_subclass(SendStream)
}

/// Makes the class `BidirectionalStream(SendStream, ReceiveStream)`, whose instances have no `__dict__`.
fn make_bidirectional(py: Python<'_>) -> PyResult<Py<PyType>> {
    let bases = (py.get_type::<SendStream>(), py.get_type::<ReceiveStream>());
    let names = PyDict::new(py);
    names.set_item("__module__", "uringcore.quic")?;
    names.set_item("__doc__", BIDIRECTIONAL_DOC)?;
    names.set_item("__slots__", PyTuple::empty(py))?;
    let class =
        py.get_type::<PyType>()
            .call1((intern!(py, "BidirectionalStream"), bases, names))?;
    Ok(class.cast_into::<PyType>()?.unbind())
}

fn base<T>(stream: &Bound<'_, T>) -> Py<Stream>
where
    T: PyClass<BaseType = Stream>,
{
    stream.as_super().clone().unbind()
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    m.add_class::<Stream>()?;
    m.add_class::<SendStream>()?;
    m.add_class::<ReceiveStream>()?;
    let class = BIDIRECTIONAL.get_or_try_init(py, || make_bidirectional(py))?;
    m.add("BidirectionalStream", class)
}

static BIDIRECTIONAL: PyOnceLock<Py<PyType>> = PyOnceLock::new();
const BIDIRECTIONAL_DOC: &str = "A stream in both directions.";
