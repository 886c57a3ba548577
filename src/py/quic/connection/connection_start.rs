//! The start of a connection object's connection: a client opens one; a server without a loop waits for one; a
//! server's endpoint passes one that it has accepted.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use uringcore_quic::ConnectionKey;

use super::{ConnectionPhase, QuicConnectionCore};
use crate::capi::address;
use crate::quic::client_and_server_config::{QuicClientSetup, QuicServerSetup};
use crate::quic::endpoint::QuicEndpoint;
use crate::quic::events;

pub(super) fn start_client(
    slf: &Bound<'_, QuicConnectionCore>,
    endpoint: Option<Py<QuicEndpoint>>,
    setup: &QuicClientSetup,
    addr: &Bound<'_, PyAny>,
    server_name: &str,
    now: f64,
    host_id: Option<Vec<u8>>,
) -> PyResult<()> {
    let py = slf.py();
    let remote = address::inet_from_python(addr)?;
    let endpoint = match endpoint {
        Some(endpoint) => endpoint,
        None => {
            let length = setup.shared.connection_id_length;
            Py::new(py, QuicEndpoint::new_own(py, length, host_id, None, None)?)?
        }
    };
    if slf.get()._is_started(py) {
        return Err(PyRuntimeError::new_err("connect() may be called once"));
    }
    let held = slf.clone().unbind();
    let key = endpoint
        .get()
        .open(py, held, setup, remote, server_name, Some(now))?;
    let pre_connect = slf.get().take_pre_connect(py)?;
    slf.get().begin(py, endpoint, key, pre_connect)
}

pub(super) fn start_server(
    slf: &Bound<'_, QuicConnectionCore>,
    setup: &QuicServerSetup,
    host_id: Option<Vec<u8>>,
    hello: Option<&[u8]>,
) -> PyResult<()> {
    let py = slf.py();
    let length = setup.shared.connection_id_length;
    let endpoint = QuicEndpoint::new_own(py, length, host_id, Some(setup), hello)?;
    let endpoint = Py::new(py, endpoint)?;
    endpoint
        .get()
        .set_on_accept(py, slf.getattr("_accepted")?.unbind());
    let pre_connect = slf.get().take_pre_connect(py)?;
    let old = slf.get().state.with(py, |state| {
        std::mem::replace(
            &mut state.phase,
            ConnectionPhase::Listening(pre_connect, endpoint),
        )
    });
    drop(old);
    Ok(())
}

/// Ends a server without a loop that no client has connected to.
pub(super) fn abandon(connection: &QuicConnectionCore, py: Python<'_>) {
    let old = connection.state.with(py, |state| match state.phase {
        ConnectionPhase::Idle(_) | ConnectionPhase::Listening(..) => Some(std::mem::replace(
            &mut state.phase,
            ConnectionPhase::Over(None, Box::default()),
        )),
        ConnectionPhase::Running(..) | ConnectionPhase::Over(..) => None,
    });
    drop(old);
}

/// Called when a server without a loop has refused its client's first flight. The program has the connection object
/// already, so it gets the event of the connection's end.
pub(super) fn failed(
    connection: &QuicConnectionCore,
    endpoint: &Bound<'_, QuicEndpoint>,
) -> PyResult<()> {
    let py = endpoint.py();
    let event = endpoint.get().with_protocol(py, |endpoint, _| {
        let event = endpoint.take_failed();
        if event.is_some() {
            endpoint.set_server(None);
        }
        event
    })?;
    let Some(event) = event else {
        return Ok(());
    };
    // The endpoint is kept, because the packet with the CONNECTION_CLOSE frame is still queued in it.
    let over = ConnectionPhase::Over(Some(endpoint.clone().unbind()), Box::default());
    let old = connection
        .state
        .with(py, |state| std::mem::replace(&mut state.phase, over));
    drop(old);
    let list = PyList::new(py, events::from_protocol(py, event)?)?;
    connection.receive(py, &list)
}

pub(super) fn accepted(
    slf: &Bound<'_, QuicConnectionCore>,
    endpoint: Py<QuicEndpoint>,
    key: ConnectionKey,
) -> PyResult<()> {
    let py = slf.py();
    let pre_connect = slf.get().take_pre_connect(py)?;
    if slf.get().is_listening(py) {
        // Only this connection uses the endpoint. A late copy of the client's first packet must not start a second
        // connection, even after the end of the first.
        endpoint
            .get()
            .with_protocol(py, |endpoint, _| endpoint.set_server(None))?;
    }
    endpoint.get().adopt(py, key, slf.clone().unbind());
    slf.get().begin(py, endpoint, key, pre_connect)
}
