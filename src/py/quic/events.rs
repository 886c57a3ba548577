//! The events of a QUIC connection as Python classes, with aioquic's names and attributes.
//!
//! Events are values: their fields are immutable, and `==` and `repr` use the fields. Programs can set attributes of
//! their own, as on aioquic's events. `endpoint/event_delivery` makes and delivers the events.

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyString, PyTuple, PyType};
use uringcore_quic::{CloseKind, Event};

use crate::capi::bytes_like_objects::bytes_of;
use crate::capi::class_with_dict;

/// The base class of all events of a QUIC connection.
#[pyclass(module = "uringcore.quic.events", subclass, frozen)]
pub struct QuicEvent;

#[pymethods]
impl QuicEvent {
    // The constructor accepts any arguments, because subclasses have arguments of their own.
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self
    }
}

/// Defines the Python class of an event, and its constructor.
macro_rules! open_event {
    ($name:ident) => {
        impl class_with_dict::ClassWithDict for $name {
            fn subclass() -> &'static PyOnceLock<Py<PyType>> {
                static SUBCLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
                &SUBCLASS
            }
        }

        impl $name {
            pub fn object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
                let event = PyClassInitializer::from(QuicEvent).add_subclass(self);
                Ok(class_with_dict::instance(py, event)?.into_any())
            }
        }
    };
}

/// Defines an event class: constructor by position or keyword, `==`, `repr`, `match`.
macro_rules! event_class {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident : $kind:ty),+ $(,)? }) => {
        $(#[$doc])*
        #[pyclass(module = "uringcore.quic.events", extends = QuicEvent, subclass, frozen, get_all)]
        pub struct $name { $($(#[$field_doc])* pub $field: $kind),+ }

        #[pymethods]
        impl $name {
            #[new]
            fn new($($field: $kind),+) -> PyClassInitializer<Self> {
                PyClassInitializer::from(QuicEvent).add_subclass(Self { $($field),+ })
            }

            fn __getnewargs_ex__<'py>(
                &self,
                py: Python<'py>,
            ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
                let fields = [$(self.$field.value(py)?),+];
                Ok((PyTuple::new(py, fields)?, PyDict::new(py)))
            }

            #[classattr]
            fn __match_args__() -> Vec<&'static str> {
                vec![$(stringify!($field)),+]
            }

            fn __eq__(&self, py: Python<'_>, other: &Self) -> bool {
                $(self.$field.same(&other.$field, py))&&+
            }

            fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
                let fields = [$(format!("{}={}", stringify!($field), self.$field.show(py)?)),+];
                Ok(format!("{}({})", stringify!($name), fields.join(", ")))
            }
        }

        open_event!($name);
    };
}

event_class! {
    /// This side has issued a connection ID to the peer.
    ConnectionIdIssued {
        /// The connection ID.
        connection_id: Py<PyBytes>,
    }
}

event_class! {
    /// The peer has retired a connection ID of this side.
    ConnectionIdRetired {
        /// The connection ID.
        connection_id: Py<PyBytes>,
    }
}

/// A DATAGRAM frame has arrived (RFC 9221).
#[pyclass(module = "uringcore.quic.events", extends = QuicEvent, subclass, frozen, get_all)]
pub struct DatagramFrameReceived {
    /// The contents of the frame.
    pub data: Py<PyBytes>,
    /// True if the data may be 0-RTT data. An attacker may have recorded and repeated it, so it must not cause anything
    /// that must not happen twice (RFC 9001 section 9.2). aioquic has no such attribute.
    pub early_data: bool,
}

#[pymethods]
impl DatagramFrameReceived {
    #[new]
    #[pyo3(signature = (data, *, early_data = false))]
    fn new(data: Py<PyBytes>, early_data: bool) -> PyClassInitializer<Self> {
        PyClassInitializer::from(QuicEvent).add_subclass(Self { data, early_data })
    }

    #[classattr]
    fn __match_args__() -> (&'static str,) {
        ("data",)
    }

    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let args = PyTuple::new(py, [self.data.bind(py)])?;
        Ok((args, early_keyword(py, self.early_data)?))
    }

    fn __eq__(&self, py: Python<'_>, other: &Self) -> bool {
        self.data.same(&other.data, py) && self.early_data == other.early_data
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let early = shown_if_early(self.early_data);
        let data = self.data.show(py)?;
        Ok(format!("DatagramFrameReceived(data={data}{early})"))
    }
}

open_event!(DatagramFrameReceived);

fn early_keyword(py: Python<'_>, early_data: bool) -> PyResult<Bound<'_, PyDict>> {
    let keywords = PyDict::new(py);
    keywords.set_item(intern!(py, "early_data"), early_data)?;
    Ok(keywords)
}

fn shown_if_early(early_data: bool) -> &'static str {
    match early_data {
        true => ", early_data=True",
        false => "",
    }
}

event_class! {
    /// The TLS handshake is complete: the peer is authenticated and streams may be used.
    HandshakeCompleted {
        /// The application protocol that was negotiated by ALPN, or `None`.
        alpn_protocol: Option<Py<PyString>>,
        /// True if the peer has accepted 0-RTT data.
        early_data_accepted: bool,
        /// True if an earlier session was resumed.
        session_resumed: bool,
    }
}

event_class! {
    /// The migration of a client's connection to another socket has ended. aioquic has no such event.
    MigrationFinished {
        /// True if the peer has answered on the new path. If it has not, the connection uses the old path.
        succeeded: bool,
    }
}

event_class! {
    /// The peer has acknowledged a PING frame.
    PingAcknowledged {
        /// The number that was passed to `send_ping`.
        uid: u64,
    }
}

event_class! {
    /// The application protocol has been negotiated.
    ProtocolNegotiated {
        /// The application protocol that was negotiated by ALPN, or `None`.
        alpn_protocol: Option<Py<PyString>>,
    }
}

event_class! {
    /// The peer has requested that this side stops sending on a stream (STOP_SENDING, RFC 9000 section 19.5). The
    /// sending side is already reset.
    StopSendingReceived {
        /// The application's error code.
        error_code: u64,
        /// The ID of the stream.
        stream_id: u64,
    }
}

event_class! {
    /// The sending side of a stream was reset, by this side or by the peer's STOP_SENDING, while the program waited for
    /// ``StreamWritable``. That event does not come any more.
    StreamAbandoned {
        /// The ID of the stream.
        stream_id: u64,
    }
}

event_class! {
    /// The peer has reset its sending side of a stream (RFC 9000 section 19.4).
    StreamReset {
        /// The application's error code.
        error_code: u64,
        /// The ID of the stream.
        stream_id: u64,
    }
}

event_class! {
    /// The peer has acknowledged the end of a stream (FIN) and all data before it. Only delivered to programs that use
    /// readers and writers. aioquic has no such event.
    StreamFinished {
        /// The ID of the stream.
        stream_id: u64,
    }
}

event_class! {
    /// The send queue of a stream has fallen to `send_buffer_low` after it had reached `send_buffer_high`. aioquic has
    /// no such event.
    StreamWritable {
        /// The ID of the stream.
        stream_id: u64,
    }
}

event_class! {
    /// The bytes queued on all streams of the connection have fallen to `send_buffer_low`, after they had reached
    /// `send_buffer_high` or DATAGRAM frames had filled half of their queue. aioquic has no such event.
    ConnectionWritable {
        /// The number of bytes that are still queued on streams.
        queued_bytes: u64,
    }
}

/// Data has arrived on a stream, in order.
#[pyclass(module = "uringcore.quic.events", extends = QuicEvent, subclass, frozen, get_all)]
pub struct StreamDataReceived {
    /// The data. Empty if only the end of the stream has arrived.
    pub data: Py<PyBytes>,
    /// True if the peer has ended its sending side of the stream.
    pub end_stream: bool,
    /// The ID of the stream.
    pub stream_id: u64,
    /// True if some of the data came as 0-RTT data. An attacker may have recorded and repeated it, so it must not cause
    /// anything that must not happen twice (RFC 9001 section 9.2). aioquic has no such attribute.
    pub early_data: bool,
}

#[pymethods]
impl StreamDataReceived {
    #[new]
    #[pyo3(signature = (data, end_stream, stream_id, *, early_data = false))]
    fn new(
        data: Py<PyBytes>,
        end_stream: bool,
        stream_id: u64,
        early_data: bool,
    ) -> PyClassInitializer<Self> {
        PyClassInitializer::from(QuicEvent).add_subclass(Self {
            data,
            end_stream,
            stream_id,
            early_data,
        })
    }

    #[classattr]
    fn __match_args__() -> (&'static str, &'static str, &'static str) {
        ("data", "end_stream", "stream_id")
    }

    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let args = (self.data.bind(py), self.end_stream, self.stream_id);
        Ok((args.into_pyobject(py)?, early_keyword(py, self.early_data)?))
    }

    fn __eq__(&self, py: Python<'_>, other: &Self) -> bool {
        self.data.same(&other.data, py)
            && self.end_stream == other.end_stream
            && self.stream_id == other.stream_id
            && self.early_data == other.early_data
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let early = shown_if_early(self.early_data);
        Ok(format!(
            "StreamDataReceived(data={}, end_stream={}, stream_id={}{early})",
            self.data.show(py)?,
            self.end_stream.show(py)?,
            self.stream_id,
        ))
    }
}

open_event!(StreamDataReceived);

/// The connection has ended. No event follows this one.
#[pyclass(module = "uringcore.quic.events", extends = QuicEvent, subclass, frozen, get_all)]
pub struct ConnectionTerminated {
    /// The error code: the application's if `frame_type` is `None`, otherwise a transport error (RFC 9000 section
    /// 20.1).
    pub error_code: u64,
    /// The type of the frame that has caused the error. `None` if an application has closed the connection.
    pub frame_type: Option<u64>,
    /// The text that came with the code.
    pub reason_phrase: String,
    /// The cause of the end: `"local"`, `"peer_application"`, `"peer_transport"`, `"tls"`,
    /// `"idle_timeout"`, `"stateless_reset"`, `"version_negotiation"` or `"unreachable"`.
    pub kind: &'static str,
    /// The TLS alert (RFC 8446 section 6), if the handshake has failed.
    pub alert: Option<u8>,
    /// The system's error number, if the network has reported the peer as unreachable.
    pub errno: Option<i32>,
}

#[pymethods]
impl ConnectionTerminated {
    /// Without `kind`, the kind is derived from the error code and the frame type.
    #[new]
    #[pyo3(signature = (error_code, frame_type, reason_phrase, *, kind = None, alert = None, errno = None))]
    fn new(
        error_code: u64,
        frame_type: Option<u64>,
        reason_phrase: String,
        kind: Option<&str>,
        alert: Option<u8>,
        errno: Option<i32>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let guessed = frame_type.and_then(|_| u8::try_from(error_code.checked_sub(0x100)?).ok());
        let (kind, alert) = match (kind, frame_type, guessed) {
            (Some(name), ..) => (known_kind(name)?, alert),
            (None, None, _) => ("peer_application", guessed),
            (None, Some(_), Some(_)) => ("tls", guessed),
            (None, Some(_), None) => ("peer_transport", guessed),
        };
        let event = Self {
            error_code,
            frame_type,
            reason_phrase,
            kind,
            alert,
            errno,
        };
        Ok(PyClassInitializer::from(QuicEvent).add_subclass(event))
    }

    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let keywords = PyDict::new(py);
        keywords.set_item(intern!(py, "kind"), self.kind)?;
        keywords.set_item(intern!(py, "alert"), self.alert)?;
        keywords.set_item(intern!(py, "errno"), self.errno)?;
        let args = (self.error_code, self.frame_type, &self.reason_phrase);
        Ok((args.into_pyobject(py)?, keywords))
    }

    #[classattr]
    fn __match_args__() -> (&'static str, &'static str, &'static str) {
        ("error_code", "frame_type", "reason_phrase")
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.error_code == other.error_code
            && self.frame_type == other.frame_type
            && self.reason_phrase == other.reason_phrase
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "ConnectionTerminated(error_code={}, frame_type={}, reason_phrase={})",
            self.error_code,
            self.frame_type.show(py)?,
            PyString::new(py, &self.reason_phrase).repr()?,
        ))
    }
}

open_event!(ConnectionTerminated);

/// Checks a value of `ConnectionTerminated.kind`.
fn known_kind(name: &str) -> PyResult<&'static str> {
    let known = KINDS.iter().find(|&&kind| kind == name);
    known
        .copied()
        .ok_or_else(|| PyValueError::new_err(format!("kind: {name:?} is not one of {KINDS:?}")))
}

const KINDS: [&str; 8] = [
    "local",
    "peer_application",
    "peer_transport",
    "tls",
    "idle_timeout",
    "stateless_reset",
    "version_negotiation",
    "unreachable",
];

impl ConnectionTerminated {
    pub fn from_close(
        error_code: u64,
        frame_type: Option<u64>,
        reason_phrase: String,
        kind: CloseKind,
    ) -> Self {
        let (name, alert, errno) = match kind {
            CloseKind::Local => ("local", None, None),
            CloseKind::PeerApplication => ("peer_application", None, None),
            CloseKind::PeerTransport => ("peer_transport", None, None),
            CloseKind::Tls { alert } => ("tls", Some(alert), None),
            CloseKind::IdleTimeout => ("idle_timeout", None, None),
            CloseKind::StatelessReset => ("stateless_reset", None, None),
            CloseKind::VersionNegotiation => ("version_negotiation", None, None),
            CloseKind::Unreachable { errno } => ("unreachable", None, Some(errno)),
        };
        Self {
            error_code,
            frame_type,
            reason_phrase,
            kind: name,
            alert,
            errno,
        }
    }
}

/// Makes the Python object of an event. `None` for events that are only used inside Rust.
pub fn from_protocol(py: Python<'_>, event: Event) -> PyResult<Option<Py<PyAny>>> {
    let object = match event {
        Event::StreamData {
            stream_id,
            data,
            fin,
        } => StreamDataReceived {
            data: bytes_of(py, data.pieces().iter(), data.len())?.unbind(),
            end_stream: fin,
            stream_id,
            early_data: data.is_early(),
        }
        .object(py)?,
        Event::Datagram { data, early } => DatagramFrameReceived {
            data: PyBytes::new(py, &data).unbind(),
            early_data: early,
        }
        .object(py)?,
        Event::StreamReset {
            stream_id,
            error_code,
        } => StreamReset {
            error_code,
            stream_id,
        }
        .object(py)?,
        Event::StopSending {
            stream_id,
            error_code,
            ..
        } => StopSendingReceived {
            error_code,
            stream_id,
        }
        .object(py)?,
        Event::StreamWritable { stream_id } => StreamWritable { stream_id }.object(py)?,
        Event::ConnectionWritable { queued_bytes } => {
            let queued_bytes = queued_bytes as u64;
            ConnectionWritable { queued_bytes }.object(py)?
        }
        Event::MigrationFinished { succeeded } => MigrationFinished { succeeded }.object(py)?,
        Event::StreamAbandoned { stream_id } => StreamAbandoned { stream_id }.object(py)?,
        Event::ConnectionIdIssued { id } => ConnectionIdIssued {
            connection_id: PyBytes::new(py, &id).unbind(),
        }
        .object(py)?,
        Event::ConnectionIdRetired { id } => ConnectionIdRetired {
            connection_id: PyBytes::new(py, &id).unbind(),
        }
        .object(py)?,
        Event::PingAcknowledged { uid } => PingAcknowledged { uid }.object(py)?,
        Event::ProtocolNegotiated { alpn } => ProtocolNegotiated {
            alpn_protocol: alpn_name(py, alpn),
        }
        .object(py)?,
        Event::HandshakeCompleted {
            alpn,
            early_data_accepted,
            session_resumed,
        } => {
            let alpn_protocol = alpn_name(py, alpn);
            HandshakeCompleted {
                alpn_protocol,
                early_data_accepted,
                session_resumed,
            }
            .object(py)?
        }
        Event::Closed {
            error_code,
            frame_type,
            reason,
            kind,
        } => ConnectionTerminated::from_close(error_code, frame_type, reason, kind).object(py)?,
        Event::StreamFinished { stream_id } => StreamFinished { stream_id }.object(py)?,
        Event::Accepted
        | Event::StreamReadable { .. }
        | Event::StreamsAvailable { .. }
        | Event::BatchHandled
        | Event::AddressValidated { .. }
        | Event::SessionTicket(_)
        | Event::NewToken { .. }
        | Event::SessionsAsked { .. } => return Ok(None),
    };
    Ok(Some(object))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    m.add_class::<QuicEvent>()?;
    m.add(
        "ConnectionIdIssued",
        class_with_dict::class::<ConnectionIdIssued>(py)?,
    )?;
    m.add(
        "ConnectionIdRetired",
        class_with_dict::class::<ConnectionIdRetired>(py)?,
    )?;
    m.add(
        "ConnectionTerminated",
        class_with_dict::class::<ConnectionTerminated>(py)?,
    )?;
    m.add(
        "ConnectionWritable",
        class_with_dict::class::<ConnectionWritable>(py)?,
    )?;
    m.add(
        "DatagramFrameReceived",
        class_with_dict::class::<DatagramFrameReceived>(py)?,
    )?;
    m.add(
        "HandshakeCompleted",
        class_with_dict::class::<HandshakeCompleted>(py)?,
    )?;
    m.add(
        "MigrationFinished",
        class_with_dict::class::<MigrationFinished>(py)?,
    )?;
    m.add(
        "PingAcknowledged",
        class_with_dict::class::<PingAcknowledged>(py)?,
    )?;
    m.add(
        "ProtocolNegotiated",
        class_with_dict::class::<ProtocolNegotiated>(py)?,
    )?;
    m.add(
        "StopSendingReceived",
        class_with_dict::class::<StopSendingReceived>(py)?,
    )?;
    m.add(
        "StreamAbandoned",
        class_with_dict::class::<StreamAbandoned>(py)?,
    )?;
    m.add(
        "StreamDataReceived",
        class_with_dict::class::<StreamDataReceived>(py)?,
    )?;
    m.add(
        "StreamFinished",
        class_with_dict::class::<StreamFinished>(py)?,
    )?;
    m.add("StreamReset", class_with_dict::class::<StreamReset>(py)?)?;
    m.add(
        "StreamWritable",
        class_with_dict::class::<StreamWritable>(py)?,
    )?;
    Ok(())
}

/// ALPN names are bytes on the wire, and text in Python, as in aioquic.
fn alpn_name(py: Python<'_>, alpn: Option<Vec<u8>>) -> Option<Py<PyString>> {
    alpn.map(|raw| PyString::new(py, &String::from_utf8_lossy(&raw)).unbind())
}

/// The operations that an event class needs of a field.
trait Field {
    fn same(&self, other: &Self, py: Python<'_>) -> bool;
    fn show(&self, py: Python<'_>) -> PyResult<String>;
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>>;
}

impl Field for u64 {
    fn same(&self, other: &Self, _py: Python<'_>) -> bool {
        self == other
    }
    fn show(&self, _py: Python<'_>) -> PyResult<String> {
        Ok(self.to_string())
    }
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.into_pyobject(py)?.into_any())
    }
}

impl Field for bool {
    fn same(&self, other: &Self, _py: Python<'_>) -> bool {
        self == other
    }
    fn show(&self, _py: Python<'_>) -> PyResult<String> {
        Ok(if *self { "True" } else { "False" }.to_owned())
    }
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyBool::new(py, *self).to_owned().into_any())
    }
}

impl Field for Py<PyBytes> {
    fn same(&self, other: &Self, py: Python<'_>) -> bool {
        self.as_bytes(py) == other.as_bytes(py)
    }
    fn show(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.bind(py).repr()?.to_string())
    }
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.bind(py).clone().into_any())
    }
}

impl Field for Py<PyString> {
    fn same(&self, other: &Self, py: Python<'_>) -> bool {
        self.bind(py).to_string_lossy() == other.bind(py).to_string_lossy()
    }
    fn show(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.bind(py).repr()?.to_string())
    }
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.bind(py).clone().into_any())
    }
}

impl<T: Field> Field for Option<T> {
    fn same(&self, other: &Self, py: Python<'_>) -> bool {
        match (self, other) {
            (Some(one), Some(two)) => one.same(two, py),
            (None, None) => true,
            _ => false,
        }
    }
    fn show(&self, py: Python<'_>) -> PyResult<String> {
        self.as_ref()
            .map_or_else(|| Ok("None".to_owned()), |value| value.show(py))
    }
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.as_ref()
            .map_or_else(|| Ok(py.None().into_bound(py)), |value| value.value(py))
    }
}
