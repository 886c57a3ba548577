//! The events of an HTTP/3 connection as Python classes, with aioquic's names and attributes.
//!
//! Events are values: their fields are immutable, and `==` and `repr` use the fields. Programs can set attributes of
//! their own, as on aioquic's events.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::capi::class_with_dict;

/// The base class of all events of an HTTP/3 connection.
#[pyclass(module = "uringcore.h3.events", subclass, frozen)]
pub struct H3Event;

#[pymethods]
impl H3Event {
    // The constructor accepts any arguments, because subclasses have arguments of their own.
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self
    }
}

/// Defines an event class: constructor by position or keyword, `==`, `repr`, `match`. A flag that aioquic's class
/// does not have is shown by `repr` only if it is set, and is no part of `match` by position.
macro_rules! event_class {
    (
        $(#[$doc:meta])*
        $name:ident($signature:tt) {
            $($(#[$field_doc:meta])* $field:ident : $kind:ty),+ $(,)?
        }
        $(flag { $(#[$flag_doc:meta])* $flag:ident })?
    ) => {
        $(#[$doc])*
        #[pyclass(module = "uringcore.h3.events", extends = H3Event, subclass, frozen, get_all)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $kind),+
            $(, $(#[$flag_doc])* pub $flag: bool)?
        }

        #[pymethods]
        impl $name {
            #[new]
            #[pyo3(signature = $signature)]
            fn new($($field: $kind),+ $(, $flag: bool)?) -> PyClassInitializer<Self> {
                PyClassInitializer::from(H3Event).add_subclass(Self { $($field),+ $(, $flag)? })
            }

            fn __getnewargs_ex__<'py>(
                &self,
                py: Python<'py>,
            ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
                let fields = [$(self.$field.value(py)?),+];
                let keywords = PyDict::new(py);
                $(keywords.set_item(stringify!($flag), self.$flag)?;)?
                Ok((PyTuple::new(py, fields)?, keywords))
            }

            #[classattr]
            fn __match_args__<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
                PyTuple::new(py, [$(stringify!($field)),+])
            }

            fn __eq__(&self, py: Python<'_>, other: &Self) -> PyResult<bool> {
                $(if !self.$field.same(&other.$field, py)? {
                    return Ok(false);
                })+
                Ok(true $(&& self.$flag == other.$flag)?)
            }

            fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
                let fields = [$(format!("{}={}", stringify!($field), self.$field.show(py)?)),+];
                let flag = "" $(; let flag = match self.$flag {
                    true => concat!(", ", stringify!($flag), "=True"),
                    false => flag,
                })?;
                Ok(format!("{}({}{flag})", stringify!($name), fields.join(", ")))
            }
        }

        impl class_with_dict::ClassWithDict for $name {
            fn subclass() -> &'static PyOnceLock<Py<PyType>> {
                static SUBCLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
                &SUBCLASS
            }
        }

        impl $name {
            pub fn object(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
                let event = PyClassInitializer::from(H3Event).add_subclass(self);
                Ok(class_with_dict::instance(py, event)?.into_bound(py).into_any())
            }
        }
    };
}

event_class! {
    /// The peer has sent a part of a message's content.
    DataReceived((data, stream_id, stream_ended, push_id = None)) {
        /// The content. Empty if only the end of the message has arrived.
        data: Py<PyAny>,
        /// The ID of the request's stream.
        stream_id: u64,
        /// True if this is the end of the message.
        stream_ended: bool,
        /// The push ID. None in the response to a request.
        push_id: Option<u64>,
    }
}

event_class! {
    /// An HTTP datagram has arrived (RFC 9297).
    DatagramReceived((data, stream_id)) {
        /// The payload of the datagram.
        data: Py<PyAny>,
        /// The ID of the request's stream.
        stream_id: u64,
    }
}

event_class! {
    /// A field section has arrived: the header section of a request or response, or trailers.
    HeadersReceived((headers, stream_id, stream_ended, push_id = None, *, early_data = false)) {
        /// The field lines in order: a list of pairs (name, value) of bytes.
        headers: Py<PyAny>,
        /// The ID of the request's stream.
        stream_id: u64,
        /// True if this is the end of the message.
        stream_ended: bool,
        /// The push ID. None in the response to a request.
        push_id: Option<u64>,
    }
    flag {
        /// True if any of the section came as 0-RTT data, which an attacker can repeat (RFC 8470).
        early_data
    }
}

event_class! {
    /// The server promises the response to a request that the client has not made.
    PushPromiseReceived((headers, push_id, stream_id)) {
        /// The field lines of the promised request.
        headers: Py<PyAny>,
        /// The push ID.
        push_id: u64,
        /// The ID of the stream with the request to which the push belongs.
        stream_id: u64,
    }
}

event_class! {
    /// Data has arrived on a WebTransport stream.
    WebTransportStreamDataReceived((data, stream_id, stream_ended, session_id)) {
        /// The data. Empty if only the end of the stream has arrived.
        data: Py<PyAny>,
        /// The ID of the stream.
        stream_id: u64,
        /// True if the peer has ended its sending side of the stream.
        stream_ended: bool,
        /// The ID of the session, which is the ID of the stream with its CONNECT request.
        session_id: u64,
    }
}

event_class! {
    /// A message has ended before it was complete: it was malformed, and only its stream was reset. Occurs only with
    /// `close_on_malformed=False`. aioquic has no such event.
    MessageAborted((stream_id, error_code)) {
        /// The ID of the request's stream, which is already reset.
        stream_id: u64,
        /// The error code that was sent, such as H3_MESSAGE_ERROR.
        error_code: u64,
    }
}

event_class! {
    /// The server accepts no more requests (RFC 9114 section 5.2). It may come again with a lower ID. Only clients get
    /// it, because the ID in a client's GOAWAY is a push ID. aioquic has no such event.
    GoAwayReceived((stream_id)) {
        /// Requests on streams with this ID or a higher one are not processed. They may be repeated on another
        /// connection.
        stream_id: u64,
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    m.add_class::<H3Event>()?;
    m.add("DataReceived", class_with_dict::class::<DataReceived>(py)?)?;
    m.add(
        "DatagramReceived",
        class_with_dict::class::<DatagramReceived>(py)?,
    )?;
    m.add(
        "HeadersReceived",
        class_with_dict::class::<HeadersReceived>(py)?,
    )?;
    m.add(
        "PushPromiseReceived",
        class_with_dict::class::<PushPromiseReceived>(py)?,
    )?;
    m.add(
        "WebTransportStreamDataReceived",
        class_with_dict::class::<WebTransportStreamDataReceived>(py)?,
    )?;
    m.add(
        "MessageAborted",
        class_with_dict::class::<MessageAborted>(py)?,
    )?;
    m.add(
        "GoAwayReceived",
        class_with_dict::class::<GoAwayReceived>(py)?,
    )?;
    Ok(())
}

/// `==` and `repr` of a field, as in Python.
trait FieldValue {
    fn same(&self, other: &Self, py: Python<'_>) -> PyResult<bool>;
    fn show(&self, py: Python<'_>) -> PyResult<String>;
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>>;
}

impl FieldValue for Py<PyAny> {
    fn same(&self, other: &Self, py: Python<'_>) -> PyResult<bool> {
        self.bind(py).eq(other.bind(py))
    }

    fn show(&self, py: Python<'_>) -> PyResult<String> {
        self.bind(py).repr()?.extract()
    }

    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.bind(py).clone())
    }
}

impl FieldValue for u64 {
    fn same(&self, other: &Self, _py: Python<'_>) -> PyResult<bool> {
        Ok(self == other)
    }

    fn show(&self, _py: Python<'_>) -> PyResult<String> {
        Ok(self.to_string())
    }

    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.into_pyobject(py)?.into_any())
    }
}

impl FieldValue for Option<u64> {
    fn same(&self, other: &Self, _py: Python<'_>) -> PyResult<bool> {
        Ok(self == other)
    }

    fn show(&self, _py: Python<'_>) -> PyResult<String> {
        Ok(self.map_or_else(|| "None".to_owned(), |value| value.to_string()))
    }

    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.into_pyobject(py)?.into_any())
    }
}

impl FieldValue for bool {
    fn same(&self, other: &Self, _py: Python<'_>) -> PyResult<bool> {
        Ok(self == other)
    }

    fn show(&self, _py: Python<'_>) -> PyResult<String> {
        Ok(if *self { "True" } else { "False" }.to_owned())
    }

    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.into_pyobject(py)?.to_owned().into_any())
    }
}
