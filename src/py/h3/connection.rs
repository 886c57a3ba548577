//! `H3Connection`: `uringcore_h3::Connection` between a QUIC connection object and a Python program.
//!
//! The methods of the QUIC object have aioquic's names, so any object with these methods works. No borrow of
//! `uringcore_h3` is held while one of them runs, because it may call this object again.
//!
//! | file | content |
//! | --- | --- |
//! | `quic_bridge` | the connection after its streams are open: input to `uringcore_h3`, commands to the QUIC object |
//! | `event_objects` | makes the Python objects of HTTP/3 events |
//!
//! Not here: QUIC events as input (`quic_event_kinds`).

mod event_objects;
mod quic_bridge;

use std::sync::OnceLock;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use rustc_hash::FxHashSet;
use uringcore_h3::settings::id as setting;
use uringcore_h3::{
    Code, Connection, Half, PeerSettings, QueuedConnection, Role, Settings, TargetCheck, varint,
};

use self::quic_bridge::{Hooks, OpenConnection};
use super::errors::local;
use super::field_conversion::FieldLines;
use super::qlog_trace;
use super::quic_event_kinds::{EventKind, EventKinds, stream_and_code};
use crate::capi::bytes_like_objects;
use crate::capi::gil_cell::GilCell;
use crate::capi::integer_arguments;

/// An HTTP/3 connection (RFC 9114) over a QUIC connection, without its settings. Python's `H3Connection` is a
/// subclass, whose hook methods this class calls by name.
#[pyclass(module = "uringcore._uringcore", subclass, frozen, weakref)]
pub struct H3ConnectionCore {
    begun: OnceLock<OpenConnection>,
}

#[pymethods]
impl H3ConnectionCore {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self {
            begun: OnceLock::new(),
        }
    }

    /// Starts HTTP/3 on `quic`: opens the three unidirectional streams of this side and sends `settings`. If a subclass
    /// has done that already, `opened` has the IDs of those streams.
    #[pyo3(signature = (
        quic, settings, *, max_push_id, webtransport, connect_protocol, close_on_malformed,
        settings_hook, frames_hook, separate_writes, opened
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "keywords, which one Python method gives"
    )]
    fn _begin(
        slf: &Bound<'_, Self>,
        quic: &Bound<'_, PyAny>,
        settings: &Bound<'_, PyDict>,
        max_push_id: Option<u64>,
        webtransport: bool,
        connect_protocol: bool,
        close_on_malformed: bool,
        settings_hook: bool,
        frames_hook: bool,
        separate_writes: bool,
        opened: Option<(u64, u64, u64)>,
    ) -> PyResult<()> {
        if max_push_id.is_some_and(|max| max > MAX_PUSH_ID_MAX) {
            let message = format!("max_push_id: must be at most {MAX_PUSH_ID_MAX}");
            return Err(PyValueError::new_err(message));
        }
        let py = quic.py();
        let configuration = quic.getattr(intern!(py, "configuration"))?;
        let is_client = configuration
            .getattr(intern!(py, "is_client"))?
            .is_truthy()?;
        let settings = Settings {
            max_push_id,
            webtransport,
            // A WebTransport session is requested by an extended CONNECT (RFC 9220), so the setting for it is enabled
            // too.
            enable_connect_protocol: connect_protocol || webtransport,
            host_checks_settings: settings_hook,
            separate_writes,
            target_check: match separate_writes {
                true => TargetCheck::Off,
                false => TargetCheck::LaxConnect,
            },
            ..announced_settings(settings)?
        };
        let streams = match opened {
            Some((control, encoder, decoder)) => [control, encoder, decoder],
            None => next_uni_streams(quic)?,
        };
        let role = if is_client {
            Role::Client
        } else {
            Role::Server
        };
        let mut core = QueuedConnection::new(role, settings, streams);
        core.set_strict(close_on_malformed);
        let is_logged = qlog_trace::is_wanted(&configuration)?;
        if is_logged {
            core.open_log();
        }
        if opened.is_some() {
            while core.poll_output().is_some() {}
        }
        let begun = OpenConnection {
            quic: GilCell::new(Some(quic.clone().unbind())),
            core: GilCell::new(core),
            kinds: EventKinds::new(),
            early: GilCell::new(FxHashSet::default()),
            close_on_malformed,
            hooks: Hooks {
                settings: settings_hook,
                frames: frames_hook,
                separate_writes,
            },
            unreported: is_logged.then(|| GilCell::new(Vec::new())),
        };
        let this = slf.get();
        if this.begun.set(begun).is_err() {
            return Err(PyRuntimeError::new_err(
                "the H3Connection is already initialised",
            ));
        }
        this.begun()?.flush(py)
    }

    #[getter]
    fn _has_begun(&self) -> bool {
        self.begun.get().is_some()
    }

    /// The IDs of the three streams that `_begin` has opened: the control stream and the streams of QPACK's encoder and
    /// decoder.
    fn _own_streams(&self, py: Python<'_>) -> PyResult<(u64, u64, u64)> {
        self.with_core(py, |core| {
            let [control, encoder, decoder] = core.own_streams();
            (control, encoder, decoder)
        })
    }

    /// Handles a QUIC event and returns the HTTP events that it causes.
    ///
    /// If the peer has violated the protocol, the QUIC connection is closed with the RFC's error code, and nothing is
    /// raised.
    fn handle_event<'py>(
        slf: &Bound<'py, Self>,
        event: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = event.py();
        let begun = slf.get().begun()?;
        match begun.kinds.of(event)? {
            EventKind::StreamData => return begun.handle_stream_data(slf, event),
            EventKind::StreamReset => {
                let (stream_id, code) = stream_and_code(event)?;
                begun.early.with(py, |early| early.remove(&stream_id));
                begun
                    .core
                    .with(py, |core| core.handle_stream_reset(stream_id, code));
            }
            EventKind::StopSending => {
                let (stream_id, code) = stream_and_code(event)?;
                begun
                    .core
                    .with(py, |core| core.handle_stop_sending(stream_id, code));
            }
            EventKind::Datagram => {
                let data =
                    bytes_like_objects::contiguous(&event.getattr(intern!(py, "data"))?, "data")?;
                begun.core.with(py, |core| core.handle_datagram(data));
            }
            EventKind::Other => return Ok(PyList::empty(py)),
        }
        begun.finish(slf, None)
    }

    /// Sends a field section: the header section of a request or of an interim or final response, or trailers.
    #[pyo3(signature = (stream_id, headers, end_stream = false))]
    fn send_headers(
        &self,
        py: Python<'_>,
        stream_id: u64,
        headers: &Bound<'_, PyAny>,
        end_stream: bool,
    ) -> PyResult<()> {
        let lines = FieldLines::extract(headers)?;
        let slices = lines.as_slices();
        let sent = self
            .begun()?
            .core
            .with(py, |core| core.send_headers(stream_id, &slices, end_stream));
        local(py, sent)?;
        self.begun()?.flush(py)
    }

    /// Sends content.
    fn send_data(
        &self,
        py: Python<'_>,
        stream_id: u64,
        data: &Bound<'_, PyAny>,
        end_stream: bool,
    ) -> PyResult<()> {
        let converted;
        let data = match data.cast::<PyBytes>() {
            Ok(data) => data,
            Err(_) => {
                let copy = bytes_like_objects::contiguous(data, "data")?;
                converted = PyBytes::new(py, &copy);
                &converted
            }
        };
        let content = data.as_bytes();
        let header = self.begun()?.core.with(py, |core| {
            core.send_data_header(stream_id, content.len() as u64, end_stream)
        });
        let Some(header) = local(py, header)? else {
            return Ok(());
        };
        match header {
            None if end_stream => {
                self.begun()?
                    .write(py, stream_id, &PyBytes::new(py, b""), true)?
            }
            None => {}
            Some(header)
                if content.len() <= JOINED_CONTENT_MAX || self.begun()?.hooks.separate_writes =>
            {
                let frame = PyBytes::new_with(py, header.len() + content.len(), |out| {
                    out[..header.len()].copy_from_slice(&header);
                    out[header.len()..].copy_from_slice(content);
                    Ok(())
                })?;
                self.begun()?.write(py, stream_id, &frame, end_stream)?;
            }
            Some(header) => {
                self.begun()?
                    .write(py, stream_id, &PyBytes::new(py, &header), false)?;
                self.begun()?.write(py, stream_id, data, end_stream)?;
            }
        }
        // Logging is the last step, because the program's own logger may raise an exception.
        self.begun()?.log(py)
    }

    /// Sends an HTTP datagram of a request (RFC 9297).
    fn send_datagram(
        &self,
        py: Python<'_>,
        stream_id: u64,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let Some(prefix) = local(py, Connection::datagram_prefix(stream_id))? else {
            return Ok(());
        };
        let data = bytes_like_objects::contiguous(data, "data")?;
        let datagram = PyBytes::new_with(py, prefix.len() + data.len(), |out| {
            out[..prefix.len()].copy_from_slice(&prefix);
            out[prefix.len()..].copy_from_slice(&data);
            Ok(())
        })?;
        self.begun()?
            .quic(py)?
            .call_method1(intern!(py, "send_datagram_frame"), (datagram,))?;
        Ok(())
    }

    /// Opens a WebTransport stream in a session and returns its ID.
    #[pyo3(signature = (session_id, is_unidirectional = false))]
    fn create_webtransport_stream(
        &self,
        py: Python<'_>,
        session_id: u64,
        is_unidirectional: bool,
    ) -> PyResult<u64> {
        let stream_id: u64 = self
            .begun()?
            .quic(py)?
            .call_method1(
                intern!(py, "get_next_available_stream_id"),
                (is_unidirectional,),
            )?
            .extract()?;
        let created = self.begun()?.core.with(py, |core| {
            core.create_webtransport_stream(session_id, stream_id)
        });
        local(py, created)?;
        self.begun()?.flush(py)?;
        Ok(stream_id)
    }

    /// Promises a response to a request that the client has not made, and opens the stream for that response.
    fn send_push_promise(
        &self,
        py: Python<'_>,
        stream_id: u64,
        headers: &Bound<'_, PyAny>,
    ) -> PyResult<u64> {
        let lines = FieldLines::extract(headers)?;
        if self
            .begun()?
            .core
            .with(py, |core| core.role() == Role::Client)
        {
            return Err(PyRuntimeError::new_err(
                "Only servers may send a push promise.",
            ));
        }
        // The check comes first, because a stream that was opened cannot be taken back.
        let allowed = self
            .begun()?
            .core
            .with(py, |core| core.check_push(stream_id));
        local(py, allowed)?;
        let push_stream_id: u64 = self
            .begun()?
            .quic(py)?
            .call_method1(intern!(py, "get_next_available_stream_id"), (true,))?
            .extract()?;
        let slices = lines.as_slices();
        let promised = self.begun()?.core.with(py, |core| {
            core.send_push_promise(stream_id, push_stream_id, &slices)
        });
        local(py, promised)?;
        self.begun()?.flush(py)?;
        Ok(push_stream_id)
    }

    /// Sends GOAWAY, which announces the end of the connection (RFC 9114 section 5.2).
    #[pyo3(signature = (stream_id = None))]
    fn send_goaway(&self, py: Python<'_>, stream_id: Option<u64>) -> PyResult<u64> {
        let (id, sent) = self.begun()?.core.with(py, |core| {
            let id = stream_id.unwrap_or_else(|| core.next_goaway_id());
            (id, core.send_goaway(id))
        });
        local(py, sent)?;
        self.begun()?.flush(py)?;
        Ok(id)
    }

    /// Cancels a request: resets its sending side and stops its receiving side.
    #[pyo3(signature = (stream_id, error_code = 0x10c))]
    fn cancel_request(
        &self,
        py: Python<'_>,
        stream_id: u64,
        #[pyo3(from_py_with = integer_arguments::error_code)] error_code: u64,
    ) -> PyResult<()> {
        self.begun()?
            .core
            .with(py, |core| core.cancel_request(stream_id, error_code));
        self.begun()?.flush(py)
    }

    /// The peer's SETTINGS by identifier. None until they have arrived.
    #[getter]
    fn received_settings<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let pairs = self.begun()?.core.with(py, |core| {
            core.received_settings()
                .map(|settings| settings.pairs().to_vec())
        });
        pairs.map(|pairs| dict(py, &pairs)).transpose()
    }

    /// The SETTINGS that this side has sent, by identifier.
    #[getter]
    fn sent_settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let pairs = self.begun()?.core.with(py, |core| core.sent_settings());
        dict(py, &pairs)
    }

    /// The number of requests, and of bidirectional WebTransport streams, that have state here.
    #[getter]
    fn open_requests(&self, py: Python<'_>) -> PyResult<usize> {
        self.with_core(py, |core| core.open_requests())
    }

    /// True if the HTTP/3 connection has ended, so that it ignores events and sends nothing. Setting the attribute does
    /// not close the QUIC connection.
    #[getter]
    fn _is_done(&self, py: Python<'_>) -> bool {
        self.with_core(py, |core| core.is_closed()).unwrap_or(false)
    }

    #[setter(_is_done)]
    fn set_is_done(&self, py: Python<'_>, is_done: bool) -> PyResult<()> {
        match (is_done, self.begun.get()) {
            (true, Some(begun)) => {
                begun.core.with(py, |core| core.set_closed());
                Ok(())
            }
            (true, None) => Err(not_begun()),
            (false, Some(_)) if self._is_done(py) => Err(PyRuntimeError::new_err(
                "a closed H3Connection cannot be reopened",
            )),
            (false, _) => Ok(()),
        }
    }

    /// Closes the connection because of a fault of the peer that a subclass has detected.
    fn _fail(&self, py: Python<'_>, error_code: u64, reason_phrase: String) -> PyResult<()> {
        self.with_core(py, |core| core.fail(Code(error_code), reason_phrase))?;
        self.begun()?.flush(py)
    }

    /// Replaces the peer's settings.
    fn _set_received_settings(&self, py: Python<'_>, settings: &Bound<'_, PyDict>) -> PyResult<()> {
        let settings = PeerSettings::from_pairs(pairs(settings)?);
        self.with_core(py, |core| core.set_received_settings(settings))
    }

    /// The state of a stream that has or had state here: a number of `HeadersState` and True if the direction has
    /// ended, first for the received direction and then for the sent one. None for other streams.
    fn _halves(&self, py: Python<'_>, stream_id: u64) -> PyResult<Option<(u8, bool, u8, bool)>> {
        let halves = self.with_core(py, |core| {
            core.halves(stream_id).or_else(|| {
                let is_over = core.was_used(stream_id);
                is_over.then_some((Half::Done, Half::Done))
            })
        })?;
        Ok(halves.map(|(recv, send)| {
            let ((recv, recv_over), (send, send_over)) = (headers_state(recv), headers_state(send));
            (recv, recv_over, send, send_over)
        }))
    }

    /// The IDs of the bidirectional streams and pushes of which this connection has a state.
    fn _stream_ids(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let mut ids: Vec<u64> = self.with_core(py, |core| core.stream_ids().collect())?;
        ids.sort_unstable();
        Ok(ids)
    }

    /// Drops the state of a stream that the QUIC connection has reset or, without `reset`, has stopped.
    fn _given_up(&self, py: Python<'_>, stream_id: u64, reset: bool) -> PyResult<()> {
        self.with_core(py, |core| match reset {
            true => core.note_reset(stream_id),
            false => core.note_stopped(stream_id),
        })?;
        self.begun()?.flush(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // `kinds` refers only to classes, which never refer back to a connection.
        let Some(begun) = self.begun.get() else {
            return Ok(());
        };
        begun
            .quic
            .traverse(|quic| visit.call(quic))
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        if let Some(begun) = self.begun.get() {
            drop(begun.quic.take(py));
        }
    }
}

impl H3ConnectionCore {
    fn begun(&self) -> PyResult<&OpenConnection> {
        self.begun.get().ok_or_else(not_begun)
    }

    fn with_core<R>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut QueuedConnection) -> R,
    ) -> PyResult<R> {
        Ok(self.begun()?.core.with(py, run))
    }
}

fn not_begun() -> PyErr {
    PyRuntimeError::new_err("the H3Connection is not initialised: its __init__() was not called")
}

/// Returns the IDs of three unidirectional streams. With a program's own QUIC object, each call may return a new ID,
/// or only after data was sent. So the others are computed: the IDs of streams of one kind differ by four (RFC 9000
/// section 2.1).
fn next_uni_streams(quic: &Bound<'_, PyAny>) -> PyResult<[u64; 3]> {
    let name = intern!(quic.py(), "get_next_available_stream_id");
    let mut streams = [0; 3];
    let mut free: u64 = 0;
    for one in &mut streams {
        let asked = quic.call_method1(name, (true,))?;
        *one = free.max(asked.extract()?);
        free = one.saturating_add(4);
    }
    Ok(streams)
}

/// The settings of this side that `settings` announces. Limits that it does not announce are enforced nevertheless.
fn announced_settings(settings: &Bound<'_, PyDict>) -> PyResult<Settings> {
    let pairs = pairs(settings)?;
    let of = |identifier| {
        let found = pairs.iter().find(|(candidate, _)| *candidate == identifier);
        found.map(|&(_, value)| value)
    };
    Ok(Settings {
        qpack_max_table_capacity: of(setting::QPACK_MAX_TABLE_CAPACITY).unwrap_or(0),
        qpack_blocked_streams: of(setting::QPACK_BLOCKED_STREAMS).unwrap_or(0),
        max_field_section_size: of(setting::MAX_FIELD_SECTION_SIZE)
            .unwrap_or(Settings::default().max_field_section_size),
        h3_datagram: of(setting::H3_DATAGRAM) == Some(1),
        announced: Some(pairs),
        ..Settings::default()
    })
}

/// Converts settings to identifiers and values, which must all fit in 62 bits.
fn pairs(settings: &Bound<'_, PyDict>) -> PyResult<Vec<(u64, u64)>> {
    let number = |name: &str, object: &Bound<'_, PyAny>| match object.extract::<u64>() {
        Ok(number) if number <= varint::MAX => Ok(number),
        _ => Err(PyValueError::new_err(format!(
            "settings: {name} {} does not fit in 62 bits",
            object.repr()?
        ))),
    };
    settings
        .iter()
        .map(|(identifier, value)| {
            Ok((number("identifier", &identifier)?, number("value", &value)?))
        })
        .collect()
}

fn dict<'py>(py: Python<'py>, pairs: &[(u64, u64)]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (identifier, value) in pairs {
        dict.set_item(identifier, value)?;
    }
    Ok(dict)
}

/// aioquic's number of a `HeadersState`, and true if the direction has ended.
fn headers_state(half: Half) -> (u8, bool) {
    match half {
        Half::Head => (0, false),
        Half::Body => (1, false),
        Half::Trailers => (2, false),
        Half::Done => (2, true),
    }
}

/// The largest content in bytes that is copied behind its frame header, so that one call sends both.
const JOINED_CONTENT_MAX: usize = 4096;
/// The largest push ID that this side accepts. It limits the number of pushes whose state is kept.
const MAX_PUSH_ID_MAX: u64 = 1023;
