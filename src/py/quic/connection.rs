//! `QuicConnectionCore`: one connection as Python commands it, whoever moves its packets.
//!
//! Python's `QuicConnection` is a subclass with the configuration. Here: its methods.
//!
//! | file | noun |
//! | --- | --- |
//! | `beginning` | how an object gets its connection: opened, awaited, or handed over by an endpoint |
//! | `state` | the fields of an object |
//! | `life` | where commands go in each phase, and the facts that outlive the connection |
//!
//! Not here: how events get here (`endpoint`).

use pyo3::exceptions::{PyConnectionResetError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use uringcore_quic::{Command, Connection, ConnectionKey, PreConnectCommands, Priority};

use super::endpoint::QuicEndpoint;
use super::packet_log::PacketLog;
use super::setup::{QuicClientSetup, QuicServerSetup};
use crate::capi::address;
use crate::capi::arguments::{self, BytesLike, OwnedBytes};
use crate::capi::buffer;
use crate::capi::cell::GilCell;
use crate::capi::code;

mod beginning;
mod life;
mod state;

use life::stats_to_dict;
pub use state::Attached;
use state::{ConnectionPhase, ConnectionState};

/// The connection without its configuration.
#[pyclass(frozen, subclass, weakref, module = "uringcore._uringcore")]
pub struct QuicConnectionCore {
    state: GilCell<ConnectionState>,
}

#[pymethods]
impl QuicConnectionCore {
    #[new]
    #[pyo3(signature = (*_args, is_client = true, **_kwargs))]
    fn new(
        _args: &Bound<'_, PyTuple>,
        is_client: bool,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> Self {
        Self {
            state: GilCell::new(ConnectionState::new(is_client)),
        }
    }

    // Beginning ----------------------------------------------------------------------------------

    /// Says which side this is, before anything else is done.
    fn _set_side(&self, py: Python<'_>, is_client: bool) {
        let old = self.state.with(py, |state| match state.phase {
            ConnectionPhase::Idle(_) => Some(std::mem::replace(
                &mut state.phase,
                ConnectionPhase::Idle(PreConnectCommands::new(is_client)),
            )),
            _ => None,
        });
        drop(old);
    }

    /// Begins a client's connection on `endpoint`, or without a loop when that is None.
    #[pyo3(signature = (endpoint, setup, addr, server_name, now, host_id))]
    fn _start_client(
        slf: &Bound<'_, Self>,
        endpoint: Option<Py<QuicEndpoint>>,
        setup: &Bound<'_, QuicClientSetup>,
        addr: &Bound<'_, PyAny>,
        server_name: &str,
        now: f64,
        host_id: Option<OwnedBytes>,
    ) -> PyResult<()> {
        let host_id = host_id.map(|id| id.0);
        beginning::start_client(slf, endpoint, setup.get(), addr, server_name, now, host_id)
    }

    /// Waits for one client's first packet, without a loop. With `hello` TLS takes no other ClientHello.
    #[pyo3(signature = (setup, host_id, hello = None))]
    fn _start_server(
        slf: &Bound<'_, Self>,
        setup: &Bound<'_, QuicServerSetup>,
        host_id: Option<OwnedBytes>,
        hello: Option<OwnedBytes>,
    ) -> PyResult<()> {
        let hello = hello.map(|hello| hello.0);
        beginning::start_server(slf, setup.get(), host_id.map(|id| id.0), hello.as_deref())
    }

    /// A server's connection that has not begun is over.
    fn _abandon(&self, py: Python<'_>) {
        beginning::abandon(self, py);
    }

    /// A server's endpoint has accepted this connection.
    #[pyo3(signature = (endpoint, key, _alpn = None))]
    fn _accepted(
        slf: &Bound<'_, Self>,
        endpoint: Py<QuicEndpoint>,
        key: u64,
        _alpn: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        beginning::accepted(slf, endpoint, ConnectionKey::from_u64(key))
    }

    /// A client's session tickets and address validation tokens go to these from now on.
    fn _set_credential_handlers(
        &self,
        py: Python<'_>,
        on_ticket: Option<Py<PyAny>>,
        on_token: Option<Py<PyAny>>,
    ) {
        let old = self.state.with(py, |state| {
            let ticket = std::mem::replace(&mut state.on_ticket, on_ticket);
            (ticket, std::mem::replace(&mut state.on_token, on_token))
        });
        drop(old);
    }

    /// Events go to `receiver(list)` from now on; None lets them wait for `next_event`.
    fn _set_receiver(&self, py: Python<'_>, receiver: Option<Py<PyAny>>) {
        let old = self
            .state
            .with(py, |state| std::mem::replace(&mut state.receiver, receiver));
        drop(old);
    }

    /// `on_batch()` is called from now on when all that a batch of datagrams brought has been told, or
    /// what a timer did.
    fn _set_on_batch(&self, py: Python<'_>, on_batch: Option<Py<PyAny>>) -> PyResult<()> {
        let tells = on_batch.is_some();
        let old = self
            .state
            .with(py, |state| std::mem::replace(&mut state.on_batch, on_batch));
        drop(old);
        match tells {
            true => self.command(py, Command::TellBatches),
            false => Ok(()),
        }
    }

    /// Hands on events that another receiver has kept: to the present one, or for `next_event`.
    fn _receive(&self, py: Python<'_>, events: &Bound<'_, PyList>) -> PyResult<()> {
        self.receive(py, events)
    }

    /// From now on `StreamFinished` events are delivered.
    fn _notify_finished(&self, py: Python<'_>) {
        self.state.with(py, |state| state.notify_finished = true);
    }

    /// The endpoint that this connection is on, or None before it began and after it ended on a loop.
    #[getter]
    fn _endpoint(&self, py: Python<'_>) -> Option<Py<QuicEndpoint>> {
        self.own_endpoint(py)
    }

    /// True if packets have begun to move (and may have stopped again).
    #[getter]
    fn _is_started(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| {
            matches!(
                state.phase,
                ConnectionPhase::Running(..) | ConnectionPhase::Over(..)
            )
        })
    }

    /// True if the connection is over.
    #[getter]
    fn is_closed(&self, py: Python<'_>) -> bool {
        self.state
            .with(py, |state| matches!(state.phase, ConnectionPhase::Over(..)))
    }

    /// True if the handshake is complete and the connection is open.
    #[getter]
    fn is_established(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self
            .peek(py, |connection| connection.is_established())?
            .unwrap_or(false))
    }

    /// True if this is a server's connection that brings 0-RTT data and has not completed its handshake.
    #[getter]
    fn _reads_early_data(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self
            .peek(py, |connection| connection.reads_early_data())?
            .unwrap_or(false))
    }

    // Streams ------------------------------------------------------------------------------------

    /// The id that the next stream of ours will have. It is taken when something is sent on it.
    #[pyo3(signature = (is_unidirectional = false))]
    fn get_next_available_stream_id(
        &self,
        py: Python<'_>,
        is_unidirectional: bool,
    ) -> PyResult<u64> {
        let waiting = self.state.with(py, |state| match &state.phase {
            ConnectionPhase::Idle(pre_connect) | ConnectionPhase::Listening(pre_connect, _) => {
                Some(pre_connect.next_stream_id(is_unidirectional))
            }
            _ => None,
        });
        if let Some(stream_id) = waiting {
            return Ok(stream_id);
        }
        self.running(py, |connection| {
            connection.next_stream_id(is_unidirectional)
        })?
        .ok_or_else(|| PyConnectionResetError::new_err("the connection is closed"))
    }

    /// Queues data on a stream, which is opened if it is ours and new; `end_stream` finishes it.
    ///
    /// Raises `ValueError` for a stream that does not exist or does not go this way, `RuntimeError`
    /// after the stream was finished and `ConnectionResetError` after it was reset, by us or because
    /// the peer wants no more, or when it is over in both directions. After the connection's end the
    /// data is discarded.
    #[pyo3(signature = (stream_id, data, end_stream = false))]
    fn send_stream_data(
        &self,
        py: Python<'_>,
        stream_id: u64,
        data: &Bound<'_, PyAny>,
        end_stream: bool,
    ) -> PyResult<()> {
        let data = buffer::contiguous(data, "data")?;
        self.command(
            py,
            Command::SendStream {
                stream_id,
                data,
                fin: end_stream,
            },
        )
    }

    /// The program has written all that it has for now: the loop may send it before the end of its turn.
    #[pyo3(name = "_written")]
    fn written_by_program(&self, py: Python<'_>) {
        self.written(py);
    }

    /// Abandons our side of a stream (RFC 9000 section 19.4).
    fn reset_stream(
        &self,
        py: Python<'_>,
        stream_id: u64,
        #[pyo3(from_py_with = code::error_code)] error_code: u64,
    ) -> PyResult<()> {
        self.command(
            py,
            Command::ResetStream {
                stream_id,
                error_code,
            },
        )
    }

    /// Asks the peer to stop sending on a stream (RFC 9000 section 19.5).
    fn stop_stream(
        &self,
        py: Python<'_>,
        stream_id: u64,
        #[pyo3(from_py_with = code::error_code)] error_code: u64,
    ) -> PyResult<()> {
        self.command(
            py,
            Command::StopStream {
                stream_id,
                error_code,
            },
        )
    }

    /// Serves a stream before others, as RFC 9218 has it: `urgency` 0 (first) to 7; those of one
    /// urgency in the order of their ids, or in turn where they are `incremental`. A stream that
    /// was given no priority has urgency 3 and is incremental.
    ///
    /// Raises `ValueError` for another urgency, and as `send_stream_data` for the stream.
    #[pyo3(signature = (stream_id, urgency, incremental = false))]
    fn set_stream_priority(
        &self,
        py: Python<'_>,
        stream_id: u64,
        urgency: i64,
        incremental: bool,
    ) -> PyResult<()> {
        let priority = u8::try_from(urgency)
            .ok()
            .and_then(|urgency| Priority::new(urgency, incremental))
            .ok_or_else(|| {
                PyValueError::new_err(format!("urgency must be from 0 to 7, not {urgency}"))
            })?;
        self.command(
            py,
            Command::Priority {
                stream_id,
                priority,
            },
        )
    }

    /// Reads nothing more from a stream until `resume_stream`: the peer runs out of credit.
    fn pause_stream(&self, py: Python<'_>, stream_id: u64) -> PyResult<()> {
        self.running(py, |connection| connection.pause_stream(stream_id))
            .map(drop)
    }

    /// Reads from a paused stream again.
    fn resume_stream(&self, py: Python<'_>, stream_id: u64) -> PyResult<()> {
        self.running(py, |connection| connection.resume_stream(stream_id))
            .map(drop)
    }

    /// The streams that are not over, in the order of their numbers.
    fn _stream_ids(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        if let Some(ids) = self.pre_connect(py, PreConnectCommands::stream_ids) {
            return Ok(ids);
        }
        let ids = self.peek(py, |connection| connection.stream_ids().collect::<Vec<_>>())?;
        let mut ids = ids.unwrap_or_default();
        ids.sort_unstable();
        Ok(ids)
    }

    /// True if the peer's end has not been read, whether data of ours or its end is to be sent or
    /// acknowledged, and whether our side was reset; None for a stream that is over.
    fn _stream_state(
        &self,
        py: Python<'_>,
        stream_id: u64,
    ) -> PyResult<Option<(bool, bool, bool)>> {
        if let Some(has_stream) = self.pre_connect(py, |waiting| waiting.has_stream(stream_id)) {
            // RFC 9000 section 2.1: the peer sends nothing on a unidirectional stream of ours.
            return Ok(has_stream.then_some((stream_id & 2 == 0, true, false)));
        }
        let state = self.peek(py, |connection| connection.stream_state(stream_id))?;
        let state = state.flatten();
        Ok(state.map(|state| (state.is_receiving, state.is_sending, state.is_reset)))
    }

    /// Data that waits to be sent on a stream.
    fn _queued_data<'py>(&self, py: Python<'py>, stream_id: u64) -> PyResult<Bound<'py, PyBytes>> {
        let joined = |pieces: &mut dyn Iterator<Item = &bytes::Bytes>| {
            pieces.flatten().copied().collect::<Vec<u8>>()
        };
        let waiting =
            match self.pre_connect(py, |waiting| joined(&mut waiting.queued_data(stream_id))) {
                Some(waiting) => waiting,
                None => self
                    .running(py, |running| {
                        joined(&mut running.queued_data(stream_id).iter())
                    })?
                    .unwrap_or_default(),
            };
        Ok(PyBytes::new(py, &waiting))
    }

    /// Datagrams that wait to be sent, the oldest first.
    fn _queued_datagrams<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let waiting =
            match self.pre_connect(py, |waiting| waiting.queued_datagrams().cloned().collect()) {
                Some(waiting) => waiting,
                None => self
                    .peek(py, |running| {
                        running.queued_datagrams().cloned().collect::<Vec<_>>()
                    })?
                    .unwrap_or_default(),
            };
        Ok(waiting.iter().map(|data| PyBytes::new(py, data)).collect())
    }

    /// Bytes that wait to be sent on a stream.
    fn get_send_buffer_size(&self, py: Python<'_>, stream_id: u64) -> PyResult<usize> {
        match self.pre_connect(py, |waiting| waiting.queued_bytes(stream_id)) {
            Some(bytes) => Ok(bytes),
            None => Ok(self
                .peek(py, |c| c.send_queue_bytes(stream_id))?
                .unwrap_or_default()),
        }
    }

    /// True if so much is queued that `ConnectionWritable` will follow.
    #[getter]
    fn _is_full(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self
            .peek(py, |connection| connection.is_full())?
            .unwrap_or(false))
    }

    // Datagrams, pings, keys ---------------------------------------------------------------------

    /// Queues one DATAGRAM frame (RFC 9221).
    ///
    /// With a session ticket for 0-RTT it goes out at once, within the limit that the ticket
    /// remembers; if the server rejects 0-RTT data, or asks for a Retry, it is sent again. Otherwise
    /// it waits until the handshake is complete. Until then at most 1,150 bytes are taken.
    ///
    /// The queue holds 1 MiB. When it is full the oldest frames make room and are lost, as frames
    /// of this kind may be; `stats()["datagram_frames_dropped"]` counts them.
    ///
    /// Raises `ValueError` when it does not fit in a packet or the peer takes none.
    fn send_datagram_frame(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let data = buffer::contiguous(data, "data")?;
        self.command(py, Command::SendDatagram { data })
    }

    /// The most bytes that `send_datagram_frame` takes now; None when the peer takes none.
    #[getter]
    fn max_datagram_size(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        Ok(self
            .running(py, |connection| connection.max_datagram_size())?
            .flatten())
    }

    /// The connection ID that the peer began with, once it is known.
    fn _peer_connection_id<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let id = self.peek(py, Connection::peer_connection_id)?.flatten();
        Ok(id.map(|id| PyBytes::new(py, &id)))
    }

    /// aioquic's name for what HTTP/3 has to check before it believes SETTINGS_H3_DATAGRAM.
    #[getter]
    fn _remote_max_datagram_frame_size(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        Ok(self
            .running(py, |connection| connection.peer_max_datagram_size())?
            .flatten())
    }

    /// Sends a PING; `PingAcknowledged(uid)` follows.
    fn send_ping(&self, py: Python<'_>, uid: u64) -> PyResult<()> {
        self.command(py, Command::Ping { uid })
    }

    /// Changes the packet protection keys (RFC 9001 section 6). Nothing happens within three probe
    /// time-outs of the last change: the old keys are still needed (section 6.5).
    fn request_key_update(&self, py: Python<'_>) -> PyResult<()> {
        self.running(py, |connection| connection.request_key_update())
            .map(drop)
    }

    /// Uses another of the peer's connection ids, where the state machine can.
    fn change_connection_id(&self, py: Python<'_>) -> PyResult<()> {
        self.running(py, |connection| connection.change_connection_id())
            .map(drop)
    }

    /// A client sends nothing before `_release`.
    fn _hold(&self, py: Python<'_>) -> PyResult<()> {
        self.running(py, |connection| connection.hold()).map(drop)
    }

    /// The end of `_hold`.
    fn _release(&self, py: Python<'_>) -> PyResult<()> {
        self.running(py, |connection| connection.release())
            .map(drop)
    }

    /// Uses the endpoint's socket of this number from now on; `MigrationFinished` follows, after
    /// `timeout` seconds at the latest.
    fn _migrate(&self, py: Python<'_>, socket: u32, timeout: f64) -> PyResult<()> {
        let timeout = arguments::span(timeout).ok_or_else(|| {
            PyValueError::new_err(format!("timeout: not a number of seconds: {timeout}"))
        })?;
        match self.place(py) {
            Some((endpoint, key)) => endpoint.get().migrate(py, key, socket, timeout),
            None => Err(PyConnectionResetError::new_err(
                "the connection is not open",
            )),
        }
    }

    /// The number of the endpoint's socket that the connection uses, and whether it may be changed:
    /// the handshake is confirmed (RFC 9001 section 4.1.2).
    #[getter]
    fn _path(&self, py: Python<'_>) -> PyResult<(u32, bool)> {
        Ok(self
            .running(py, |connection| {
                (connection.socket(), connection.is_confirmed())
            })?
            .unwrap_or_default())
    }

    /// Closes the connection. With `frame_type` the code is the transport's, else the application's.
    #[pyo3(
        signature = (error_code = 0, frame_type = None, reason_phrase = String::new()),
        text_signature = "($self, error_code=0, frame_type=None, reason_phrase='')"
    )]
    fn close(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = code::error_code)] error_code: u64,
        #[pyo3(from_py_with = code::frame_type)] frame_type: Option<u64>,
        #[pyo3(from_py_with = code::reason_phrase)] reason_phrase: String,
    ) -> PyResult<()> {
        let Some((endpoint, key)) = self.place(py) else {
            return Ok(());
        };
        let reason = reason_phrase.as_bytes();
        endpoint
            .get()
            .with_connection_now(py, key, |c, now| {
                c.close(now, error_code, frame_type, reason)
            })
            .map(drop)
    }

    // What is known ------------------------------------------------------------------------------

    /// The last address that the peer has proved to be at, or None before the connection began and at a server whose
    /// client has proved nothing yet.
    fn get_peer_address<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.known(py, |summary| summary.remote, Connection::validated_addr)?
            .map(|remote| address::inet_to_python(py, remote))
            .transpose()
    }

    /// Where packets go now, proved or not; None before the connection began and after its end.
    fn _packet_address<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.peek(py, Connection::remote_addr)?
            .map(|remote| address::inet_to_python(py, remote))
            .transpose()
    }

    /// The application protocol agreed by ALPN, or None.
    #[getter]
    fn alpn_protocol<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        let alpn = self.known(
            py,
            |summary| summary.alpn.clone(),
            |connection| connection.alpn().map(<[u8]>::to_vec),
        )?;
        Ok(alpn.map(|raw| PyString::new(py, &String::from_utf8_lossy(&raw))))
    }

    /// The connection id that the client sent its first packet to; None before there was one.
    #[getter]
    fn original_destination_connection_id<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let current = |connection: &Connection| {
            let id = connection.original_destination_connection_id();
            id.map(<[u8]>::to_vec)
        };
        let id = self.known(py, |summary| summary.original_id.clone(), current)?;
        Ok(id.map(|id| PyBytes::new(py, &id)))
    }

    /// The connection id that this side began with; None before it did.
    #[getter]
    fn host_cid<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let id = self.known(
            py,
            |summary| summary.host_id.clone(),
            |connection| connection.host_connection_id().map(<[u8]>::to_vec),
        )?;
        Ok(id.map(|id| PyBytes::new(py, &id)))
    }

    /// What the connection's packets say, if its configuration has a logger.
    fn _packet_log(&self, py: Python<'_>) -> PyResult<Option<PacketLog>> {
        let recorder = self.running(py, |connection| connection.packet_log().cloned())?;
        Ok(recorder.flatten().map(PacketLog::new))
    }

    /// The QUIC version on the wire as a number, None before the connection began. It may change
    /// while the handshake is under way (RFC 9368).
    #[getter]
    fn version(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        self.known(py, |summary| summary.version, |c| Some(c.version()))
    }

    /// The name that the client asked for (server side), or connected to.
    #[getter]
    fn server_name(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self
            .peek(py, |c| c.server_name().map(str::to_owned))?
            .flatten())
    }

    /// The peer's certificate chain in DER, leaf first; empty before the handshake is complete.
    fn get_peer_certificates<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let chain = self
            .running(py, |connection| connection.peer_certificates())?
            .flatten();
        Ok(chain
            .unwrap_or_default()
            .iter()
            .map(|der| PyBytes::new(py, der))
            .collect())
    }

    /// Counters and estimates. Times in seconds, sizes in bytes. After the end: the last ones.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.known(py, |summary| Some(summary.stats), |c| Some(c.stats()))?;
        stats_to_dict(py, &stats.unwrap_or_default())
    }

    // Without a loop -----------------------------------------------------------------------------

    /// The next event, or None.
    fn next_event(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if let Some(event) = self.state.with(py, |state| state.queue.pop_front()) {
            return Ok(Some(event));
        }
        // Commands may have caused some since the last datagram.
        if let Some(endpoint) = self.own_endpoint(py)
            && endpoint.get().is_own()
        {
            QuicEndpoint::deliver(endpoint.bind(py))?;
        }
        Ok(self.state.with(py, |state| state.queue.pop_front()))
    }

    /// Takes one datagram in. Not for connections on a loop, which receives for them.
    #[expect(clippy::needless_pass_by_value)] // As it comes from Python.
    fn receive_datagram(
        &self,
        py: Python<'_>,
        data: BytesLike<'_>,
        addr: &Bound<'_, PyAny>,
        now: f64,
    ) -> PyResult<()> {
        match self.own_endpoint(py) {
            Some(endpoint) => {
                QuicEndpoint::receive_datagram(endpoint.bind(py), &data, addr, now, 0)?;
                match self.is_listening(py) {
                    true => beginning::failed(self, endpoint.bind(py)),
                    false => Ok(()),
                }
            }
            None => Ok(()),
        }
    }

    /// What has to go out now, as `(data, address)`. Empty on a loop, which sends by itself.
    fn datagrams_to_send<'py>(&self, py: Python<'py>, now: f64) -> PyResult<Bound<'py, PyList>> {
        match self.own_endpoint(py) {
            Some(endpoint) => endpoint.get().datagrams_to_send(py, now),
            None => Ok(PyList::empty(py)),
        }
    }

    /// When `handle_timer` wants to be called, in the caller's seconds. None on a loop.
    fn get_timer(&self, py: Python<'_>) -> Option<f64> {
        self.own_endpoint(py)
            .and_then(|endpoint| endpoint.get().get_timer(py))
    }

    /// It is `now`: handles what is due.
    fn handle_timer(&self, py: Python<'_>, now: f64) -> PyResult<()> {
        match self.own_endpoint(py) {
            Some(endpoint) => QuicEndpoint::handle_timer(endpoint.bind(py), now),
            None => Ok(()),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.state
            .traverse(|state| state.traverse(&visit))
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        let old = self.state.with(py, ConnectionState::clear);
        drop(old);
    }
}
