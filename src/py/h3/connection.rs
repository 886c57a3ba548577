//! `H3Connection`: `proto::h3::Connection` between a QUIC connection object and a Python program.
//!
//! The QUIC object is called by aioquic's method names, so any object with these will do. Nothing
//! of `proto` is borrowed while one of its methods runs: it may come back here. Not here: what a QUIC event
//! is to us (`quic_event`), and the objects that tell of HTTP's (`object`).

mod object;

use pyo3::exceptions::{PyConnectionResetError, PyRuntimeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFrozenSet, PyList};
use rustc_hash::FxHashSet;
use uringcore_proto::h3::settings::id as setting;
use uringcore_proto::h3::{Connection, Logged, Output, Role, Settings};

use super::errors::local;
use super::fields::Lines;
use super::quic_event::{EventKind, EventKinds, stream_and_code};
use super::trace;
use crate::capi::buffer;
use crate::capi::cell::GilCell;
use crate::capi::code;

/// An HTTP/3 connection (RFC 9114) over a QUIC connection. See `uringcore.h3.connection`.
#[pyclass(module = "uringcore.h3.connection", subclass, frozen, weakref)]
pub struct H3Connection {
    quic: GilCell<Option<Py<PyAny>>>,
    core: GilCell<Connection>,
    kinds: EventKinds,
    close_on_malformed: bool,
    /// Request streams of which something came as 0-RTT data, and no header section was told: as many as QUIC lets
    /// the client open.
    early: GilCell<FxHashSet<u64>>,
    /// What is to go into the connection's trace, where it has one: it begins with the connection.
    untold: Option<GilCell<Vec<Logged>>>,
}

#[pymethods]
impl H3Connection {
    #[new]
    #[pyo3(signature = (
        quic,
        enable_webtransport = false,
        *,
        close_on_malformed = true,
        enable_connect_protocol = false,
        max_push_id = Some(8),
    ), text_signature = "(quic, enable_webtransport=False, *, close_on_malformed=True, \
        enable_connect_protocol=False, max_push_id=8)")]
    fn new(
        quic: &Bound<'_, PyAny>,
        enable_webtransport: bool,
        close_on_malformed: bool,
        enable_connect_protocol: bool,
        max_push_id: Option<u64>,
    ) -> PyResult<Self> {
        if max_push_id.is_some_and(|max| max > MAX_PUSH_ID_MAX) {
            let message = format!("max_push_id: must be at most {MAX_PUSH_ID_MAX}");
            return Err(PyValueError::new_err(message));
        }
        let py = quic.py();
        let configuration = quic.getattr(intern!(py, "configuration"))?;
        let is_client = configuration
            .getattr(intern!(py, "is_client"))?
            .is_truthy()?;
        // A program's own connection may count on with every call, others when something is sent. RFC 9000
        // section 2.1: streams of one kind are four apart.
        let mut streams = [0; 3];
        let mut free: u64 = 0;
        for one in &mut streams {
            let asked = quic.call_method1(intern!(py, "get_next_available_stream_id"), (true,))?;
            *one = free.max(asked.extract()?);
            free = one.saturating_add(4);
        }
        let role = if is_client {
            Role::Client
        } else {
            Role::Server
        };
        let mut core = Connection::new(
            role,
            Settings {
                max_push_id,
                ..settings(enable_webtransport, enable_connect_protocol)
            },
            streams,
        );
        core.set_strict(close_on_malformed);
        let is_logged = trace::is_wanted(&configuration)?;
        if is_logged {
            core.open_log();
        }
        let connection = Self {
            quic: GilCell::new(Some(quic.clone().unbind())),
            core: GilCell::new(core),
            kinds: EventKinds::new(),
            early: GilCell::new(FxHashSet::default()),
            close_on_malformed,
            untold: is_logged.then(|| GilCell::new(Vec::new())),
        };
        connection.flush(py)?;
        Ok(connection)
    }

    /// Handles a QUIC event and returns the HTTP events that follow from it.
    ///
    /// A fault of the peer closes the QUIC connection with the RFC's code; nothing is raised.
    fn handle_event<'py>(&self, event: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let py = event.py();
        match self.kinds.of(event)? {
            EventKind::StreamData => return self.handle_stream_data(event),
            EventKind::StreamReset => {
                let (stream_id, code) = stream_and_code(event)?;
                self.early.with(py, |early| early.remove(&stream_id));
                self.core
                    .with(py, |core| core.handle_stream_reset(stream_id, code));
            }
            EventKind::StopSending => {
                let (stream_id, code) = stream_and_code(event)?;
                self.core
                    .with(py, |core| core.handle_stop_sending(stream_id, code));
            }
            EventKind::Datagram => {
                let data = buffer::bytes_like(&event.getattr(intern!(py, "data"))?)?;
                self.core.with(py, |core| core.handle_datagram(data));
            }
            EventKind::Other => return Ok(PyList::empty(py)),
        }
        self.finish(py, None)
    }

    /// Sends a field section: a request, an interim or final response, or trailers.
    #[pyo3(signature = (stream_id, headers, end_stream = false))]
    fn send_headers(
        &self,
        py: Python<'_>,
        stream_id: u64,
        headers: &Bound<'_, PyAny>,
        end_stream: bool,
    ) -> PyResult<()> {
        let lines = Lines::extract(headers)?;
        let slices = lines.as_slices();
        let sent = self
            .core
            .with(py, |core| core.send_headers(stream_id, &slices, end_stream));
        local(py, sent)?;
        self.flush(py)
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
                let copy = buffer::bytes_like(data)?;
                converted = PyBytes::new(py, &copy);
                &converted
            }
        };
        let content = data.as_bytes();
        let header = self.core.with(py, |core| {
            core.send_data_header(stream_id, content.len() as u64, end_stream)
        });
        let Some(header) = local(py, header)? else {
            return Ok(());
        };
        match header {
            None if end_stream => self.write(py, stream_id, &PyBytes::new(py, b""), true)?,
            None => {}
            Some(header) if content.len() <= JOINED_CONTENT_MAX => {
                let frame = PyBytes::new_with(py, header.len() + content.len(), |out| {
                    out[..header.len()].copy_from_slice(&header);
                    out[header.len()..].copy_from_slice(content);
                    Ok(())
                })?;
                self.write(py, stream_id, &frame, end_stream)?;
            }
            Some(header) => {
                self.write(py, stream_id, &PyBytes::new(py, &header), false)?;
                self.write(py, stream_id, data, end_stream)?;
            }
        }
        // Last, for a program's own logger may raise.
        self.log(py)
    }

    /// Sends an HTTP datagram that belongs to a request (RFC 9297).
    fn send_datagram(
        &self,
        py: Python<'_>,
        stream_id: u64,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let Some(prefix) = local(py, Connection::datagram_prefix(stream_id))? else {
            return Ok(());
        };
        let data = buffer::bytes_like(data)?;
        let datagram = PyBytes::new_with(py, prefix.len() + data.len(), |out| {
            out[..prefix.len()].copy_from_slice(&prefix);
            out[prefix.len()..].copy_from_slice(&data);
            Ok(())
        })?;
        self.quic(py)?
            .call_method1(intern!(py, "send_datagram_frame"), (datagram,))?;
        Ok(())
    }

    /// Begins a WebTransport stream in a session and returns its identifier.
    #[pyo3(signature = (session_id, is_unidirectional = false))]
    fn create_webtransport_stream(
        &self,
        py: Python<'_>,
        session_id: u64,
        is_unidirectional: bool,
    ) -> PyResult<u64> {
        let stream_id: u64 = self
            .quic(py)?
            .call_method1(
                intern!(py, "get_next_available_stream_id"),
                (is_unidirectional,),
            )?
            .extract()?;
        let created = self.core.with(py, |core| {
            core.create_webtransport_stream(session_id, stream_id)
        });
        local(py, created)?;
        self.flush(py)?;
        Ok(stream_id)
    }

    /// Promises to answer a request that the client did not make, and begins the answer's stream.
    fn send_push_promise(
        &self,
        py: Python<'_>,
        stream_id: u64,
        headers: &Bound<'_, PyAny>,
    ) -> PyResult<u64> {
        let lines = Lines::extract(headers)?;
        if self.core.with(py, |core| core.role() == Role::Client) {
            return Err(PyRuntimeError::new_err(
                "Only servers may send a push promise.",
            ));
        }
        // Before a stream is asked for, which could not be given back.
        let allowed = self.core.with(py, |core| core.check_push(stream_id));
        local(py, allowed)?;
        let push_stream_id: u64 = self
            .quic(py)?
            .call_method1(intern!(py, "get_next_available_stream_id"), (true,))?
            .extract()?;
        let slices = lines.as_slices();
        let promised = self.core.with(py, |core| {
            core.send_push_promise(stream_id, push_stream_id, &slices)
        });
        local(py, promised)?;
        self.flush(py)?;
        Ok(push_stream_id)
    }

    /// Announces the end of the connection (RFC 9114 section 5.2).
    #[pyo3(signature = (stream_id = None))]
    fn send_goaway(&self, py: Python<'_>, stream_id: Option<u64>) -> PyResult<u64> {
        let (id, sent) = self.core.with(py, |core| {
            let id = stream_id.unwrap_or_else(|| core.next_goaway_id());
            (id, core.send_goaway(id))
        });
        local(py, sent)?;
        self.flush(py)?;
        Ok(id)
    }

    /// Gives a request up: resets what is still sent, refuses what is still received.
    #[pyo3(signature = (stream_id, error_code = 0x10c))]
    fn cancel_request(
        &self,
        py: Python<'_>,
        stream_id: u64,
        #[pyo3(from_py_with = code::error_code)] error_code: u64,
    ) -> PyResult<()> {
        self.core
            .with(py, |core| core.cancel_request(stream_id, error_code));
        self.flush(py)
    }

    /// The peer's SETTINGS by identifier, or None before they arrived.
    #[getter]
    fn received_settings<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let pairs = self.core.with(py, |core| {
            core.received_settings()
                .map(|settings| settings.pairs().to_vec())
        });
        pairs.map(|pairs| dict(py, &pairs)).transpose()
    }

    /// The origins that the server's ORIGIN frames have named (RFC 9412), or None before there was one.
    #[getter]
    fn received_origins<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyFrozenSet>>> {
        let names: Option<Vec<String>> = self.core.with(py, |core| {
            core.received_origins()
                .map(|names| names.map(String::from).collect())
        });
        names.map(|names| PyFrozenSet::new(py, names)).transpose()
    }

    /// Our SETTINGS by identifier.
    #[getter]
    fn sent_settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let pairs = self.core.with(py, |core| core.sent_settings());
        dict(py, &pairs)
    }

    /// How many requests (and bidirectional WebTransport streams) have state here.
    #[getter]
    fn open_requests(&self, py: Python<'_>) -> usize {
        self.core.with(py, |core| core.open_requests())
    }

    #[getter]
    fn _quic(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.quic(py)?.unbind())
    }

    #[getter]
    fn _is_client(&self, py: Python<'_>) -> bool {
        self.core.with(py, |core| core.role() == Role::Client)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // `kinds` has classes alone, which never lead back to a connection.
        self.quic
            .traverse(|quic| visit.call(quic))
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        drop(self.quic.take(py));
    }
}

impl H3Connection {
    fn quic<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.quic
            .with(py, |quic| quic.as_ref().map(|quic| quic.clone_ref(py)))
            .map(|quic| quic.into_bound(py))
            .ok_or_else(|| PyRuntimeError::new_err("the H3Connection was collected"))
    }

    fn handle_stream_data<'py>(&self, event: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let py = event.py();
        let stream_id: u64 = event.getattr(intern!(py, "stream_id"))?.extract()?;
        let object = event.getattr(intern!(py, "data"))?;
        let fin = event.getattr(intern!(py, "end_stream"))?.is_truthy()?;
        let data = buffer::bytes_like(&object)?;
        // aioquic's event does not say.
        let is_early = match event.getattr_opt(intern!(py, "early_data"))? {
            Some(early) => early.is_truthy()?,
            None => false,
        };
        if is_early {
            self.early.with(py, |early| early.insert(stream_id));
        }
        if is_unidirectional(stream_id) {
            self.learn_peer_datagrams(py)?;
        }
        self.core
            .with(py, |core| core.handle_stream_data(stream_id, data, fin));
        let whole = object
            .cast_into::<PyBytes>()
            .ok()
            .map(|data| (stream_id, data));
        let told = self.finish(py, whole.as_ref());
        if is_early {
            // Content that follows is not asked about.
            let (early, core) = (&self.early, &self.core);
            if !core.with(py, |core| core.awaits_headers(stream_id)) {
                early.with(py, |early| early.remove(&stream_id));
            }
        }
        told
    }

    /// Tells `proto` what QUIC negotiated, for the check of RFC 9297 section 2.1.1, before SETTINGS
    /// are read.
    fn learn_peer_datagrams(&self, py: Python<'_>) -> PyResult<()> {
        if self
            .core
            .with(py, |core| core.received_settings().is_some())
        {
            return Ok(());
        }
        let quic = self.quic(py)?;
        // aioquic's name. An object without it does not say, and is not asked.
        if let Some(size) = quic.getattr_opt(intern!(py, "_remote_max_datagram_frame_size"))? {
            self.core
                .with(py, |core| core.set_peer_quic_datagrams(!size.is_none()));
        }
        Ok(())
    }

    /// After input: does what is to be done on the QUIC connection and collects the events.
    fn finish<'py>(
        &self,
        py: Python<'py>,
        whole: Option<&(u64, Bound<'py, PyBytes>)>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.flush(py)?;
        let list = PyList::empty(py);
        while let Some(event) = self.core.with(py, Connection::poll_event) {
            if let Some(object) = self.object(py, event, whole)? {
                list.append(object)?;
            }
        }
        Ok(list)
    }

    /// Does what `proto` wants done. Everything is attempted; the first exception is raised at the
    /// end.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let mut result = self.log(py);
        while let Some(output) = self.core.with(py, Connection::poll_output) {
            let done = self.perform(py, output);
            if result.is_ok() {
                result = done;
            }
        }
        result
    }

    /// Writes down what there is, as soon as there is a trace.
    fn log(&self, py: Python<'_>) -> PyResult<()> {
        let Some(untold) = &self.untold else {
            return Ok(());
        };
        let logged = self.core.with(py, Connection::take_log);
        let Some(trace) = trace::of(&self.quic(py)?)? else {
            return untold.with(py, |untold| {
                let room = trace::WAITING_MAX.saturating_sub(untold.len());
                untold.extend(logged.into_iter().take(room));
                Ok(())
            });
        };
        let before = untold.with(py, std::mem::take);
        let mut all = before.into_iter().chain(logged);
        all.try_for_each(|logged| trace::write(&trace, logged))
    }

    fn perform(&self, py: Python<'_>, output: Output) -> PyResult<()> {
        match output {
            Output::Write {
                stream_id,
                data,
                fin,
            } => {
                return self.write(py, stream_id, &PyBytes::new(py, &data), fin);
            }
            Output::Datagram { data } => self.quic(py)?.call_method1(
                intern!(py, "send_datagram_frame"),
                (PyBytes::new(py, &data),),
            )?,
            Output::ResetStream { stream_id, code } => {
                let reset = intern!(py, "reset_stream");
                return unless_over(py, self.quic(py)?.call_method1(reset, (stream_id, code.0)));
            }
            Output::StopSending { stream_id, code } => {
                let stop = intern!(py, "stop_stream");
                return unless_over(py, self.quic(py)?.call_method1(stop, (stream_id, code.0)));
            }
            Output::CloseConnection { code, reason } => self
                .quic(py)?
                .call_method1(intern!(py, "close"), (code.0, py.None(), reason.as_ref()))?,
        };
        Ok(())
    }

    fn write(
        &self,
        py: Python<'_>,
        stream_id: u64,
        data: &Bound<'_, PyBytes>,
        fin: bool,
    ) -> PyResult<()> {
        let fin = PyBool::new(py, fin);
        self.quic(py)?
            .call_method1(intern!(py, "send_stream_data"), (stream_id, data, fin))?;
        Ok(())
    }
}

fn is_unidirectional(stream_id: u64) -> bool {
    stream_id & 2 != 0
}

fn settings(enable_webtransport: bool, enable_connect_protocol: bool) -> Settings {
    // A reserved setting, to see that the peer ignores it (RFC 9114 section 7.2.4.1).
    let mut extra = vec![(0x21, 1)];
    if enable_webtransport {
        extra.push((setting::ENABLE_WEBTRANSPORT, 1));
    }
    Settings {
        // A WebTransport session is an extended CONNECT.
        enable_connect_protocol: enable_connect_protocol || enable_webtransport,
        h3_datagram: enable_webtransport,
        webtransport: enable_webtransport,
        extra,
        ..Settings::default()
    }
}

fn dict<'py>(py: Python<'py>, pairs: &[(u64, u64)]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (identifier, value) in pairs {
        dict.set_item(identifier, value)?;
    }
    Ok(dict)
}

/// A stream that ended by itself meanwhile needs no ending.
fn unless_over(py: Python<'_>, ended: PyResult<Bound<'_, PyAny>>) -> PyResult<()> {
    match ended {
        Err(error) if error.is_instance_of::<PyConnectionResetError>(py) => Ok(()),
        ended => ended.map(drop),
    }
}

/// Content up to this size is copied behind its frame header, so that there is one call for both.
const JOINED_CONTENT_MAX: usize = 4096;
/// As many pushes are remembered at most.
const MAX_PUSH_ID_MAX: u64 = 1023;
