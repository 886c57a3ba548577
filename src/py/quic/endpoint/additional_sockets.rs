//! The further sockets of an endpoint on a loop, and the migration of a connection to one of them.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyConnectionResetError, PyRuntimeError};
use pyo3::prelude::*;
use uringcore_io::net;
use uringcore_quic::{ConnectionKey, MigrationError};

use super::{EndpointOwner, QuicEndpoint};
use crate::capi::exception_conversion;

impl QuicEndpoint {
    /// Takes over the bound UDP socket `fd`, which is closed if this fails. Returns the number of the socket.
    pub(super) fn take_socket(&self, py: Python<'_>, fd: RawFd) -> PyResult<u32> {
        // SAFETY: the caller has detached the descriptor from its socket object, so no other code closes it.
        let fd = unsafe { net::take_over(fd) }
            .map_err(|error| exception_conversion::io_error(&error))?;
        let EndpointOwner::Loop { owner, key, .. } = &self.owned_by else {
            return Err(PyRuntimeError::new_err(
                "only a loop moves packets by socket",
            ));
        };
        owner
            .get()
            .with_engine(py, |engine| {
                engine.quic(*key).map(|socket| socket.add_socket(fd))
            })?
            .ok_or_else(|| PyRuntimeError::new_err("the QUIC endpoint is closed"))?
            .map_err(|error| exception_conversion::io_error(&error))
    }

    /// Closes a further socket of the endpoint. Does nothing after the endpoint's end.
    pub(super) fn close_socket(&self, py: Python<'_>, number: u32) -> PyResult<()> {
        let EndpointOwner::Loop { owner, key, .. } = &self.owned_by else {
            return Ok(());
        };
        if owner.get().is_closed() {
            return Ok(());
        }
        owner.get().with_engine(py, |engine| {
            if let Some(socket) = engine.quic(*key) {
                socket.remove_socket(number);
            }
        })
    }

    /// Moves a client's connection to the socket with the number `socket`.
    pub fn migrate(
        &self,
        py: Python<'_>,
        key: ConnectionKey,
        socket: u32,
        timeout: Duration,
    ) -> PyResult<()> {
        let moved = self.with_protocol(py, |protocol, now: Instant| {
            protocol.migrate(now, key, socket, timeout)
        })?;
        moved.map_err(|error| match error {
            MigrationError::Closed => PyConnectionResetError::new_err(error.to_string()),
            _ => PyRuntimeError::new_err(error.to_string()),
        })
    }
}
