//! Connections of a TLS server: starts the handshake on an accepted descriptor, without a task for each connection.

use std::os::fd::{AsRawFd, OwnedFd};

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::protocol::{Setup, TlsProtocol};
use crate::capi::contextvars_context::CallbackContext;
use crate::event_loop::loop_core::LoopCore;
use crate::event_loop::ready_queue::Ready;
use crate::transport::base_transport::Descriptor;
use crate::transport::stream::StreamTransport;

/// Starts TLS on an accepted connection. `tls` is the tuple of the SSL context and the time-outs that
/// `_start_serving` got.
pub fn accepted(
    owner: &Bound<'_, LoopCore>,
    fd: OwnedFd,
    app: &Bound<'_, PyAny>,
    tls: &Bound<'_, PyAny>,
    server: Py<PyAny>,
    callbacks: CallbackContext,
) -> PyResult<()> {
    let py = owner.py();
    let (context, timeouts): (Bound<'_, PyAny>, Bound<'_, PyTuple>) = tls.extract()?;
    let timeout = |index: usize| match timeouts.get_item(index) {
        Ok(value) if !value.is_none() => Some(value),
        _ => None,
    };
    let setup = Setup {
        context,
        server_side: true,
        server_hostname: None,
        call_connection_made: true,
        accepted: true,
        handshake_timeout: timeout(0),
        shutdown_timeout: timeout(1),
    };
    let protocol = TlsProtocol::create(owner, app, None, setup)?;
    let opened = StreamTransport::open(
        owner,
        fd.as_raw_fd(),
        Descriptor::Owned(fd),
        protocol.clone().into_any().unbind(),
        None,
        Some(server),
        callbacks,
    );
    let transport = match opened {
        Ok(transport) => transport,
        Err(error) => {
            // The protocol and its transport refer to each other. No other code breaks this cycle.
            TlsProtocol::lower_lost(&protocol, None)?;
            return Err(error);
        }
    };
    let base = transport.bind(py).as_super().clone().unbind();
    owner.get().push_ready(py, Ready::Start(base, None));
    Ok(())
}
