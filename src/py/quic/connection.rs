//! `QuicConnectionCore`: the commands of a connection for Python, on a loop or without one.
//!
//! Python's `QuicConnection` is a subclass that has the configuration. This file has the methods.
//!
//! | file | content |
//! | --- | --- |
//! | `connection_start` | the start of the connection: opened, awaited, or passed by an endpoint |
//! | `object_state` | the fields of an object: its phase, the receivers of its events |
//! | `stream_protocol` | HTTP/3 or typed streams, which get the events about streams |
//! | `phase_dispatch` | where commands go in each phase, and values that can be read after the end |
//!
//! `endpoint` delivers events to this object.

use pyo3::exceptions::{PyConnectionResetError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use uringcore_quic::{Command, Connection, ConnectionKey, PreConnectCommands};

use super::client_and_server_config::{QuicClientSetup, QuicServerSetup};
use super::endpoint::QuicEndpoint;
use super::qlog_recorder::PacketLog;
use crate::capi::address;
use crate::capi::bounded_arguments::{self, BytesLike, OwnedBytes};
use crate::capi::bytes_like_objects;
use crate::capi::gil_cell::GilCell;
use crate::capi::integer_arguments;

mod connection_start;
mod object_state;
mod phase_dispatch;
mod stream_protocol;

use object_state::{ConnectionPhase, ConnectionState};
use phase_dispatch::stats_to_dict;
pub use stream_protocol::StreamProtocol;

/// A QUIC connection without its configuration: the base of QuicConnection.
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

    /// Sets the role of this side. Must be called before all other methods.
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

    /// Opens a client's connection on `endpoint`. If `endpoint` is None, the connection has no loop and gets an
    /// endpoint of its own.
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
        connection_start::start_client(slf, endpoint, setup.get(), addr, server_name, now, host_id)
    }

    /// Waits for one client's first packet, without a loop. If `hello` is given, TLS accepts no other ClientHello.
    #[pyo3(signature = (setup, host_id, hello = None))]
    fn _start_server(
        slf: &Bound<'_, Self>,
        setup: &Bound<'_, QuicServerSetup>,
        host_id: Option<OwnedBytes>,
        hello: Option<OwnedBytes>,
    ) -> PyResult<()> {
        let hello = hello.map(|hello| hello.0);
        connection_start::start_server(slf, setup.get(), host_id.map(|id| id.0), hello.as_deref())
    }

    /// Ends a server's connection that has not started.
    fn _abandon(&self, py: Python<'_>) {
        connection_start::abandon(self, py);
    }

    /// Starts the object of a connection that a server's endpoint has accepted.
    #[pyo3(signature = (endpoint, key, _alpn = None))]
    fn _accepted(
        slf: &Bound<'_, Self>,
        endpoint: Py<QuicEndpoint>,
        key: u64,
        _alpn: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        connection_start::accepted(slf, endpoint, ConnectionKey::from_u64(key))
    }

    /// Sets the handlers of a client's session tickets and address validation tokens.
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

    /// Sets `receiver(list)`, which gets the events of each loop iteration. With None the events wait for `next_event`.
    fn _set_receiver(&self, py: Python<'_>, receiver: Option<Py<PyAny>>) {
        let old = self
            .state
            .with(py, |state| std::mem::replace(&mut state.receiver, receiver));
        drop(old);
    }

    /// Sets the protocol whose `transmit()` is called after all events of a batch of datagrams, or of a timer, were
    /// delivered. An exception is passed to its `_report(message, exception)`.
    fn _set_on_batch(&self, py: Python<'_>, protocol: Option<Py<PyAny>>) -> PyResult<()> {
        let is_set = protocol.is_some();
        let old = self
            .state
            .with(py, |state| std::mem::replace(&mut state.on_batch, protocol));
        drop(old);
        match is_set {
            true => self.command(py, Command::ReportBatches),
            false => Ok(()),
        }
    }

    /// Passes on events that a former receiver has kept, either to the present receiver or to the queue of
    /// `next_event`.
    fn _receive(&self, py: Python<'_>, events: &Bound<'_, PyList>) -> PyResult<()> {
        self.receive(py, events)
    }

    /// Delivers `StreamFinished` events from now on.
    fn _notify_finished(&self, py: Python<'_>) {
        self.state.with(py, |state| state.notify_finished = true);
    }

    /// The endpoint of this connection. None before the connection has started; on a loop, also after its end.
    #[getter]
    fn _endpoint(&self, py: Python<'_>) -> Option<Py<QuicEndpoint>> {
        self.own_endpoint(py)
    }

    /// True if packets were sent or received.
    #[getter]
    fn _is_started(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| {
            matches!(
                state.phase,
                ConnectionPhase::Running(..) | ConnectionPhase::Over(..)
            )
        })
    }

    /// True if the connection has ended.
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

    /// True for a server's connection that has 0-RTT data and whose handshake is not complete.
    #[getter]
    fn _reads_early_data(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self
            .peek(py, |connection| connection.reads_early_data())?
            .unwrap_or(false))
    }

    // Streams ------------------------------------------------------------------------------------

    /// Returns the ID of the next stream that this side can open. The ID changes only after data was sent on that
    /// stream.
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

    /// Queues data on a stream. If the stream is a new one of this side, it is opened. ``end_stream`` ends the sending
    /// side.
    ///
    /// Raises ``ValueError`` for a stream that does not exist or on which this side cannot send, ``RuntimeError`` after
    /// the end was sent, and ``ConnectionResetError`` if the sending side was reset by this side, if the peer has
    /// stopped it, or if the stream has ended in both directions. After the connection's end the data is discarded.
    #[pyo3(signature = (stream_id, data, end_stream = false))]
    fn send_stream_data(
        &self,
        py: Python<'_>,
        stream_id: u64,
        data: &Bound<'_, PyAny>,
        end_stream: bool,
    ) -> PyResult<()> {
        let data = bytes_like_objects::contiguous(data, "data")?;
        self.send_stream(py, stream_id, data, end_stream)
    }

    /// Sends written data before the end of the loop iteration, if the loop allows it. For programs that have written
    /// all that they have.
    #[pyo3(name = "_written")]
    fn written_by_program(&self, py: Python<'_>) {
        self.written(py);
    }

    /// Resets the sending side of a stream (RFC 9000 section 19.4).
    fn reset_stream(
        &self,
        py: Python<'_>,
        stream_id: u64,
        #[pyo3(from_py_with = integer_arguments::error_code)] error_code: u64,
    ) -> PyResult<()> {
        self.command(
            py,
            Command::ResetStream {
                stream_id,
                error_code,
            },
        )
    }

    /// Requests that the peer stops sending on a stream (RFC 9000 section 19.5).
    fn stop_stream(
        &self,
        py: Python<'_>,
        stream_id: u64,
        #[pyo3(from_py_with = integer_arguments::error_code)] error_code: u64,
    ) -> PyResult<()> {
        self.command(
            py,
            Command::StopStream {
                stream_id,
                error_code,
            },
        )
    }

    /// Sets the priority of a stream (RFC 9218): ``urgency`` is from 0 (sent first) to 7. Streams with equal urgency
    /// are sent in the order of their IDs, or alternately if they are ``incremental``. The default is urgency 3,
    /// incremental.
    ///
    /// Raises ``ValueError`` for another urgency, and the errors of ``send_stream_data`` for the stream.
    #[pyo3(signature = (stream_id, urgency, incremental = false))]
    fn set_stream_priority(
        &self,
        py: Python<'_>,
        stream_id: u64,
        urgency: i64,
        incremental: bool,
    ) -> PyResult<()> {
        let priority = integer_arguments::priority(urgency, incremental)?;
        self.command(
            py,
            Command::Priority {
                stream_id,
                priority,
            },
        )
    }

    /// Stops reading from a stream until ``resume_stream``. The peer gets no more flow control credit for it.
    fn pause_stream(&self, py: Python<'_>, stream_id: u64) -> PyResult<()> {
        self.running(py, |connection| connection.pause_stream(stream_id))
            .map(drop)
    }

    /// Reads from a paused stream again.
    fn resume_stream(&self, py: Python<'_>, stream_id: u64) -> PyResult<()> {
        self.running(py, |connection| connection.resume_stream(stream_id))
            .map(drop)
    }

    /// The IDs of the open streams in ascending order.
    fn _stream_ids(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        if let Some(ids) = self.pre_connect(py, PreConnectCommands::stream_ids) {
            return Ok(ids);
        }
        let ids = self.peek(py, |connection| connection.stream_ids().collect::<Vec<_>>())?;
        let mut ids = ids.unwrap_or_default();
        ids.sort_unstable();
        Ok(ids)
    }

    /// Returns three flags of a stream: its end was not received and read; data or the end of this side was not
    /// acknowledged; this side was reset. None for a stream that has ended in both directions.
    fn _stream_state(
        &self,
        py: Python<'_>,
        stream_id: u64,
    ) -> PyResult<Option<(bool, bool, bool)>> {
        if let Some(has_stream) = self.pre_connect(py, |waiting| waiting.has_stream(stream_id)) {
            // RFC 9000 section 2.1: the peer sends nothing on a unidirectional stream of this side.
            return Ok(has_stream.then_some((stream_id & 2 == 0, true, false)));
        }
        let state = self.peek(py, |connection| connection.stream_state(stream_id))?;
        let state = state.flatten();
        Ok(state.map(|state| (state.is_receiving, state.is_sending, state.is_reset)))
    }

    /// The data that waits to be sent on a stream.
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

    /// The DATAGRAM frames that wait to be sent, the oldest first.
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

    /// The number of bytes that wait to be sent on a stream.
    fn get_send_buffer_size(&self, py: Python<'_>, stream_id: u64) -> PyResult<usize> {
        match self.pre_connect(py, |waiting| waiting.queued_bytes(stream_id)) {
            Some(bytes) => Ok(bytes),
            None => Ok(self
                .peek(py, |c| c.send_queue_bytes(stream_id))?
                .unwrap_or_default()),
        }
    }

    /// True if the connection's send queue is above its high-water mark. A ``ConnectionWritable`` event then follows
    /// when it has emptied.
    #[getter]
    fn _is_full(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self
            .peek(py, |connection| connection.is_full())?
            .unwrap_or(false))
    }

    // Datagrams, pings, keys ---------------------------------------------------------------------

    /// Queues one DATAGRAM frame (RFC 9221).
    ///
    /// With a session ticket that permits 0-RTT, the frame is sent at once, within the limit in the ticket; it is sent
    /// again if the server rejects 0-RTT or sends a Retry. Without such a ticket the frame waits for the end of the
    /// handshake. Until then at most 1,150 bytes are accepted.
    ///
    /// The queue holds 1 MiB. If it is full, the oldest frames are dropped; ``stats()["datagram_frames_dropped"]``
    /// counts them.
    ///
    /// Raises ``ValueError`` if the data does not fit in a packet or the peer does not accept DATAGRAM frames.
    fn send_datagram_frame(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let data = bytes_like_objects::contiguous(data, "data")?;
        self.command(py, Command::SendDatagram { data })
    }

    /// The largest number of bytes that ``send_datagram_frame`` accepts now. None if the peer accepts no DATAGRAM
    /// frames.
    #[getter]
    fn max_datagram_size(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        Ok(self
            .running(py, |connection| connection.max_datagram_size())?
            .flatten())
    }

    /// The first connection ID of the peer. None until it is known.
    fn _peer_connection_id<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let id = self.peek(py, Connection::peer_connection_id)?.flatten();
        Ok(id.map(|id| PyBytes::new(py, &id)))
    }

    /// The value of the peer's transport parameter max_datagram_frame_size. The name is aioquic's. HTTP/3 checks the
    /// value before it uses SETTINGS_H3_DATAGRAM.
    #[getter]
    fn _remote_max_datagram_frame_size(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        Ok(self
            .running(py, |connection| connection.peer_max_datagram_size())?
            .flatten())
    }

    /// Sends a PING frame. ``PingAcknowledged(uid)`` follows when the peer has acknowledged it.
    fn send_ping(&self, py: Python<'_>, uid: u64) -> PyResult<()> {
        self.command(py, Command::Ping { uid })
    }

    /// Changes the packet protection keys (RFC 9001 section 6). Does nothing within three probe time-outs after the
    /// last change, because the old keys are still needed (section 6.5).
    fn request_key_update(&self, py: Python<'_>) -> PyResult<()> {
        self.running(py, |connection| connection.request_key_update())
            .map(drop)
    }

    /// Sends to another connection ID of the peer from now on, if the peer has issued one.
    fn change_connection_id(&self, py: Python<'_>) -> PyResult<()> {
        self.running(py, |connection| connection.change_connection_id())
            .map(drop)
    }

    /// Holds back all packets of a client until `_release`, so that 0-RTT data can leave together with the ClientHello.
    fn _hold(&self, py: Python<'_>) -> PyResult<()> {
        self.running(py, |connection| connection.hold()).map(drop)
    }

    /// Sends the packets that `_hold` has held back.
    fn _release(&self, py: Python<'_>) -> PyResult<()> {
        self.running(py, |connection| connection.release())
            .map(drop)
    }

    /// Moves the connection to the endpoint's socket with the number `socket`. `MigrationFinished` follows within
    /// `timeout` seconds.
    fn _migrate(&self, py: Python<'_>, socket: u32, timeout: f64) -> PyResult<()> {
        let timeout = bounded_arguments::span(timeout).ok_or_else(|| {
            PyValueError::new_err(format!("timeout: not a number of seconds: {timeout}"))
        })?;
        match self.place(py) {
            Some((endpoint, key)) => endpoint.get().migrate(py, key, socket, timeout),
            None => Err(PyConnectionResetError::new_err(
                "the connection is not open",
            )),
        }
    }

    /// Returns the number of the endpoint's socket that the connection uses, and true if the connection may move to
    /// another one, because the handshake is confirmed (RFC 9001 section 4.1.2).
    #[getter]
    fn _path(&self, py: Python<'_>) -> PyResult<(u32, bool)> {
        Ok(self
            .running(py, |connection| {
                (connection.socket(), connection.is_confirmed())
            })?
            .unwrap_or_default())
    }

    /// Closes the connection. With ``frame_type`` the code is a transport error, without it an application error.
    #[pyo3(
        signature = (error_code = 0, frame_type = None, reason_phrase = String::new()),
        text_signature = "($self, error_code=0, frame_type=None, reason_phrase='')"
    )]
    fn close(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer_arguments::error_code)] error_code: u64,
        #[pyo3(from_py_with = integer_arguments::frame_type)] frame_type: Option<u64>,
        #[pyo3(from_py_with = integer_arguments::reason_phrase)] reason_phrase: String,
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

    // State --------------------------------------------------------------------------------------

    /// The last validated address of the peer. None before the connection has started, and at a server until the
    /// client's address is validated.
    fn get_peer_address<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.known(py, |summary| summary.remote, Connection::validated_addr)?
            .map(|remote| address::inet_to_python(py, remote))
            .transpose()
    }

    /// The address to which packets are sent now, validated or not. None before the start and after the end of the
    /// connection.
    fn _packet_address<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.peek(py, Connection::remote_addr)?
            .map(|remote| address::inet_to_python(py, remote))
            .transpose()
    }

    /// The application protocol that was negotiated by ALPN, or None.
    #[getter]
    fn alpn_protocol<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        let alpn = self.known(
            py,
            |summary| summary.alpn.clone(),
            |connection| connection.alpn().map(<[u8]>::to_vec),
        )?;
        Ok(alpn.map(|raw| PyString::new(py, &String::from_utf8_lossy(&raw))))
    }

    /// The destination connection ID of the client's first packet. None before that packet.
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

    /// The first connection ID of this side. None before the connection has started.
    #[getter]
    fn host_cid<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let id = self.known(
            py,
            |summary| summary.host_id.clone(),
            |connection| connection.host_connection_id().map(<[u8]>::to_vec),
        )?;
        Ok(id.map(|id| PyBytes::new(py, &id)))
    }

    /// The log of the connection's packets. None without a logger in the configuration.
    fn _packet_log(&self, py: Python<'_>) -> PyResult<Option<PacketLog>> {
        let recorder = self.running(py, |connection| connection.packet_log().cloned())?;
        Ok(recorder.flatten().map(PacketLog::new))
    }

    /// The QUIC version in use, as a number. None before the connection has started. It may change during the handshake
    /// (RFC 9368).
    #[getter]
    fn version(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        self.known(py, |summary| summary.version, |c| Some(c.version()))
    }

    /// The server name that the client has requested; at a client, the name to which it has connected.
    #[getter]
    fn server_name(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self
            .peek(py, |c| c.server_name().map(str::to_owned))?
            .flatten())
    }

    /// The peer's certificates in DER, the leaf first. Empty before the handshake is complete.
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

    /// Counters and estimates of the connection. Times are in seconds, sizes in bytes. After the connection's end,
    /// returns the last values.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.known(py, |summary| Some(summary.stats), |c| Some(c.stats()))?;
        stats_to_dict(py, &stats.unwrap_or_default())
    }

    // Methods for connections without a loop ---------------------------------------------------------

    /// Returns the next event, or None.
    fn next_event(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if let Some(event) = self.state.with(py, |state| state.queue.pop_front()) {
            return Ok(Some(event));
        }
        // Commands of the program may have caused events since the last datagram. These events are collected first.
        if let Some(endpoint) = self.own_endpoint(py)
            && endpoint.get().is_own()
        {
            QuicEndpoint::deliver(endpoint.bind(py))?;
        }
        Ok(self.state.with(py, |state| state.queue.pop_front()))
    }

    /// Handles one received datagram. Not for connections on a loop, which receives by itself.
    #[expect(clippy::needless_pass_by_value)] // PyO3 passes the argument by value.
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
                    true => connection_start::failed(self, endpoint.bind(py)),
                    false => Ok(()),
                }
            }
            None => Ok(()),
        }
    }

    /// Returns the datagrams to send now, as ``(data, address)``. Empty on a loop, which sends by itself.
    fn datagrams_to_send<'py>(&self, py: Python<'py>, now: f64) -> PyResult<Bound<'py, PyList>> {
        match self.own_endpoint(py) {
            Some(endpoint) => endpoint.get().datagrams_to_send(py, now),
            None => Ok(PyList::empty(py)),
        }
    }

    /// The time at which ``handle_timer`` must be called, in the caller's seconds. None on a loop.
    fn get_timer(&self, py: Python<'_>) -> Option<f64> {
        self.own_endpoint(py)
            .and_then(|endpoint| endpoint.get().get_timer(py))
    }

    /// Runs the connection's timers that have expired at ``now``.
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
