//! The phases of a connection object: where its commands go in each phase, the queue of events for programs that take
//! them one by one, and the values that can be read after the end.
//!
//! Also here: errors and counters as Python objects.

use std::sync::Arc;

use bytes::Bytes;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use uringcore_quic::{
    Command, CommandError, Connection, ConnectionKey, ConnectionStats, DatagramError, Event,
    PreConnectCommands, StreamError,
};

use super::QuicConnectionCore;
use super::object_state::{ConnectionPhase, ConnectionState, Summary};
use super::stream_protocol::StreamProtocol;
use crate::capi::exception_conversion;
use crate::quic::endpoint::QuicEndpoint;
use crate::quic::ticket_and_token_conversion::{ticket_to_python, token_to_python};

impl QuicConnectionCore {
    /// Passes the events of one loop iteration to the receiver. Without a receiver they wait for `next_event`.
    pub fn receive(&self, py: Python<'_>, list: &Bound<'_, PyList>) -> PyResult<()> {
        let receiver = self.state.with(py, |state| {
            state.receiver.as_ref().map(|call| call.clone_ref(py))
        });
        match receiver {
            Some(receiver) => receiver.bind(py).call1((list,)).map(drop),
            None => {
                let objects: Vec<_> = list.iter().map(Bound::unbind).collect();
                self.state.with(py, |state| state.queue.extend(objects));
                Ok(())
            }
        }
    }

    /// Calls `transmit` of the program's protocol, after all events of a batch of datagrams were delivered. The
    /// protocol reports an exception, unless that must end the program.
    pub fn batch_handled(&self, py: Python<'_>) -> PyResult<()> {
        let protocol = self.state.with(py, |state| {
            state.on_batch.as_ref().map(|object| object.clone_ref(py))
        });
        let Some(protocol) = protocol.map(|protocol| protocol.into_bound(py)) else {
            return Ok(());
        };
        match protocol.call_method0(intern!(py, "transmit")) {
            Ok(_) => Ok(()),
            Err(raised) if exception_conversion::is_exit(py, &raised) => Err(raised),
            Err(raised) => {
                let report = ("Exception in transmit", raised.into_value(py));
                protocol
                    .call_method1(intern!(py, "_report"), report)
                    .map(drop)
            }
        }
    }

    /// Passes a session ticket or a token to the program's handler, if there is one. Returns false for all other
    /// events.
    pub fn keep_credential(&self, py: Python<'_>, event: &Event) -> PyResult<bool> {
        let handler = |choose: fn(&ConnectionState) -> &Option<Py<PyAny>>| {
            self.state.with(py, |state| {
                choose(state).as_ref().map(|call| call.clone_ref(py))
            })
        };
        match event {
            Event::SessionTicket(ticket) => {
                if let Some(call) = handler(|state| &state.on_ticket) {
                    call.bind(py).call1((ticket_to_python(py, ticket)?,))?;
                }
            }
            Event::NewToken { token, version } => {
                if let Some(call) = handler(|state| &state.on_token) {
                    let token = token_to_python(py, token, *version)?;
                    call.bind(py).call1((token,))?;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// True if the program has requested `StreamFinished` events, for streams whose end the peer has acknowledged.
    pub fn wants_finished(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.notify_finished)
    }

    /// Called when the connection has ended. Keeps the values that programs may still read.
    pub fn finish(&self, py: Python<'_>, endpoint: &QuicEndpoint, key: ConnectionKey) {
        let summary = endpoint
            .with_connection(py, key, |connection| Summary {
                stats: connection.stats(),
                remote: connection.validated_addr(),
                alpn: connection.alpn().map(<[u8]>::to_vec),
                original_id: connection
                    .original_destination_connection_id()
                    .map(<[u8]>::to_vec),
                host_id: connection.host_connection_id().map(<[u8]>::to_vec),
                version: Some(connection.version()),
            })
            .ok()
            .flatten()
            .unwrap_or_default();
        let old = self.state.with(py, |state| {
            let own = match &state.phase {
                ConnectionPhase::Running(endpoint, _) if endpoint.get().is_own() => {
                    Some(endpoint.clone_ref(py))
                }
                _ => None,
            };
            std::mem::replace(
                &mut state.phase,
                ConnectionPhase::Over(own, Box::new(summary)),
            )
        });
        drop(old);
    }

    /// Executes a command, or queues it until the connection starts. After the connection's end a command has no
    /// effect, as in aioquic, because the program has got `ConnectionTerminated`.
    pub fn command(&self, py: Python<'_>, command: Command) -> PyResult<()> {
        let mut command = Some(command);
        let place = self.state.with(py, |state| match &mut state.phase {
            ConnectionPhase::Idle(pre_connect) | ConnectionPhase::Listening(pre_connect, _) => {
                command
                    .take()
                    .map_or(Ok(()), |command| pre_connect.push(command))?;
                Ok(None)
            }
            ConnectionPhase::Running(endpoint, key) => Ok(Some((endpoint.clone_ref(py), *key))),
            ConnectionPhase::Over(..) => Ok(None),
        });
        let result = match (place, command) {
            (Err(error), _) => Err(error),
            (Ok(Some((endpoint, key))), Some(command)) => endpoint
                .get()
                .with_connection(py, key, |connection| command.run(connection))?
                .unwrap_or(Ok(())),
            (Ok(_), _) => Ok(()),
        };
        result.or_else(refused)
    }

    /// Queues data on a stream. Programs call this more often than all other commands, so on a running connection the
    /// data is not wrapped in a [`Command`].
    pub fn send_stream(
        &self,
        py: Python<'_>,
        stream_id: u64,
        data: Bytes,
        fin: bool,
    ) -> PyResult<()> {
        let Some((endpoint, key)) = self.place(py) else {
            let command = Command::SendStream {
                stream_id,
                data,
                fin,
            };
            return self.command(py, command);
        };
        let sent = endpoint.get().with_connection(py, key, |connection| {
            connection.send_stream(stream_id, data, fin)
        })?;
        match sent {
            Some(Err(error)) => refused(CommandError::Stream { stream_id, error }),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// Passes the events about streams to `protocol` instead of the program from now on.
    pub fn attach(&self, py: Python<'_>, protocol: Arc<dyn StreamProtocol>) {
        let old = self
            .state
            .with(py, |state| state.attached.replace(protocol));
        drop(old);
    }

    pub fn detach(&self, py: Python<'_>) {
        let old = self.state.with(py, |state| state.attached.take());
        drop(old);
    }

    pub fn attached(&self, py: Python<'_>) -> Option<Arc<dyn StreamProtocol>> {
        self.state.with(py, |state| state.attached.clone())
    }

    /// The endpoint and the key of a running connection. `None` before the connection's start and after its end.
    pub fn place(&self, py: Python<'_>) -> Option<(Py<QuicEndpoint>, ConnectionKey)> {
        self.state.with(py, |state| match &state.phase {
            ConnectionPhase::Running(endpoint, key) => Some((endpoint.clone_ref(py), *key)),
            _ => None,
        })
    }

    /// Calls `run` with the commands that wait for the connection's start. `None` after the start.
    pub(super) fn pre_connect<R>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&PreConnectCommands) -> R,
    ) -> Option<R> {
        self.state.with(py, |state| match &state.phase {
            ConnectionPhase::Idle(pre_connect) | ConnectionPhase::Listening(pre_connect, _) => {
                Some(run(pre_connect))
            }
            ConnectionPhase::Running(..) | ConnectionPhase::Over(..) => None,
        })
    }

    /// Calls `run` with the running connection. `None` before the connection's start and after its end.
    pub fn running<R>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut Connection) -> R,
    ) -> PyResult<Option<R>> {
        match self.place(py) {
            Some((endpoint, key)) => endpoint.get().with_connection(py, key, run),
            None => Ok(None),
        }
    }

    /// Lets the loop send the written data. Called when the program has written all that it has at present.
    pub fn written(&self, py: Python<'_>) {
        if let Some((endpoint, key)) = self.place(py) {
            endpoint.get().written(py, key);
        }
    }

    /// Calls `run` with the running connection, to read from it. Nothing is flushed afterwards, in contrast to
    /// `running`.
    pub fn peek<R>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&Connection) -> R,
    ) -> PyResult<Option<R>> {
        match self.place(py) {
            Some((endpoint, key)) => endpoint.get().peek_connection(py, key, run),
            None => Ok(None),
        }
    }

    /// Reads a value from the running connection, or after its end with `kept` from the stored [`Summary`].
    pub(super) fn known<R>(
        &self,
        py: Python<'_>,
        kept: impl FnOnce(&Summary) -> Option<R>,
        current: impl FnOnce(&Connection) -> Option<R>,
    ) -> PyResult<Option<R>> {
        let kept = self.state.with(py, |state| match &state.phase {
            ConnectionPhase::Over(_, summary) => kept(summary),
            _ => None,
        });
        match kept {
            Some(known) => Ok(Some(known)),
            None => Ok(self.peek(py, current)?.flatten()),
        }
    }

    pub(super) fn own_endpoint(&self, py: Python<'_>) -> Option<Py<QuicEndpoint>> {
        self.state.with(py, |state| match &state.phase {
            ConnectionPhase::Listening(_, endpoint) | ConnectionPhase::Running(endpoint, _) => {
                Some(endpoint.clone_ref(py))
            }
            ConnectionPhase::Over(endpoint, _) => {
                endpoint.as_ref().map(|endpoint| endpoint.clone_ref(py))
            }
            ConnectionPhase::Idle(_) => None,
        })
    }

    /// True for a server without a loop that waits for its client's first packet.
    pub(super) fn is_listening(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| {
            matches!(state.phase, ConnectionPhase::Listening(..))
        })
    }

    /// Takes the commands that wait for the connection's start. Fails if the connection has started.
    pub(super) fn take_pre_connect(&self, py: Python<'_>) -> PyResult<PreConnectCommands> {
        self.state.with(py, |state| match &mut state.phase {
            ConnectionPhase::Idle(pre_connect) | ConnectionPhase::Listening(pre_connect, _) => {
                let empty = PreConnectCommands::new(pre_connect.is_client());
                Ok(std::mem::replace(pre_connect, empty))
            }
            _ => Err(PyRuntimeError::new_err("this connection has already begun")),
        })
    }

    /// Starts the connection, and executes the commands that were queued for it.
    pub(super) fn begin(
        &self,
        py: Python<'_>,
        endpoint: Py<QuicEndpoint>,
        key: ConnectionKey,
        pre_connect: PreConnectCommands,
    ) -> PyResult<()> {
        let old = self.state.with(py, |state| {
            std::mem::replace(
                &mut state.phase,
                ConnectionPhase::Running(endpoint.clone_ref(py), key),
            )
        });
        drop(old);
        endpoint.get().with_connection(py, key, |connection| {
            pre_connect.replay(connection, |reason| {
                log::warn!("a command that waited for the connection's beginning failed: {reason}");
            });
        })?;
        Ok(())
    }
}

/// The counters as a Python dictionary.
pub(super) fn stats_to_dict<'py>(
    py: Python<'py>,
    stats: &ConnectionStats,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in [
        ("datagrams_sent", stats.datagrams_sent),
        ("bytes_sent", stats.bytes_sent),
        ("datagrams_received", stats.datagrams_received),
        ("bytes_received", stats.bytes_received),
        ("packets_sent", stats.packets_sent),
        ("packets_lost", stats.packets_lost),
        ("bytes_lost", stats.bytes_lost),
        ("congestion_events", stats.congestion_events),
        ("congestion_window", stats.congestion_window),
        ("bytes_in_flight", stats.bytes_in_flight),
        ("path_mtu", u64::from(stats.path_mtu)),
        ("mtu_probes_sent", stats.mtu_probes_sent),
        ("mtu_probes_lost", stats.mtu_probes_lost),
        ("black_holes_detected", stats.black_holes_detected),
        ("ect0_sent", stats.ecn.ect0_sent),
        ("ect0_received", stats.ecn.ect0_received),
        ("ect1_received", stats.ecn.ect1_received),
        ("ce_received", stats.ecn.ce_received),
        ("key_updates", stats.key_updates),
        ("streams_open", stats.streams_open as u64),
        ("version", u64::from(stats.version)),
        ("send_queue_bytes", stats.send_queue_bytes as u64),
        ("stream_frames_sent", stats.stream_frames_sent),
        ("stream_frames_received", stats.stream_frames_received),
        ("datagram_frames_sent", stats.datagram_frames_sent),
        ("datagram_frames_received", stats.datagram_frames_received),
        ("datagram_frames_dropped", stats.datagram_frames_dropped),
        ("connection_ids_received", stats.connection_ids_received),
        ("connection_ids_retired", stats.connection_ids_retired),
    ] {
        dict.set_item(name, value)?;
    }
    dict.set_item("ssthresh", stats.ssthresh)?;
    dict.set_item("cipher_suite", stats.cipher_suite)?;
    dict.set_item("group", stats.group)?;
    dict.set_item("rtt", stats.rtt.as_secs_f64())?;
    dict.set_item("latest_rtt", stats.latest_rtt.as_secs_f64())?;
    dict.set_item("rtt_variance", stats.rtt_variance.as_secs_f64())?;
    dict.set_item("min_rtt", stats.min_rtt.as_secs_f64())?;
    Ok(dict)
}

/// Converts a refused command to an exception. A wrong stream ID and a finished stream are mistakes of the program. A
/// stream may also have been reset or ended by the peer; that exception is a `ConnectionResetError` and aioquic's
/// exception at once.
fn refused(error: CommandError) -> PyResult<()> {
    let message = error.to_string();
    match error {
        CommandError::Stream { error, .. } => match error {
            StreamError::Closed => Ok(()),
            StreamError::Reset => Err(python_error("WriteAfterResetError", message)),
            StreamError::Over => Err(python_error("StreamEndedError", message)),
            StreamError::Finished => Err(PyRuntimeError::new_err(message)),
            StreamError::Unknown | StreamError::WrongDirection | StreamError::OutOfRange => {
                Err(PyValueError::new_err(message))
            }
        },
        CommandError::Datagram(DatagramError::Closed) => Ok(()),
        CommandError::Datagram(_) => Err(PyValueError::new_err(message)),
    }
}

/// Makes an exception of the class `class` in `uringcore.quic._errors`.
fn python_error(class: &str, message: String) -> PyErr {
    Python::attach(|py| {
        let made = py
            .import(intern!(py, "uringcore.quic._errors"))
            .and_then(|module| module.getattr(class)?.call1((message,)));
        made.map_or_else(|error| error, PyErr::from_value)
    })
}
