//! Further sockets of an endpoint on a loop, and a connection's move to one of them.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyConnectionResetError, PyRuntimeError};
use pyo3::prelude::*;
use uringcore_io::net;
use uringcore_quic::{ConnectionKey, MigrationError};

use super::{Home, QuicEndpoint};
use crate::capi::error;

impl QuicEndpoint {
    /// Takes the bound UDP socket `fd` for good, also when it fails; returns its number.
    pub(super) fn take_socket(&self, py: Python<'_>, fd: RawFd) -> PyResult<u32> {
        // SAFETY: the caller has detached the descriptor from its socket object to give it here, so
        // nobody else closes it.
        let fd = unsafe { net::take_over(fd) }.map_err(|error| error::io_error(&error))?;
        let Home::Loop { owner, key, .. } = &self.home else {
            return Err(PyRuntimeError::new_err(
                "only a loop moves packets by socket",
            ));
        };
        owner
            .get()
            .with_engine(py, |engine| {
                engine.quic(*key).map(|endpoint| endpoint.add_socket(fd))
            })?
            .ok_or_else(|| PyRuntimeError::new_err("the QUIC endpoint is closed"))?
            .map_err(|error| error::io_error(&error))
    }

    /// Closes a further socket, if the endpoint is still there.
    pub(super) fn give_up_socket(&self, py: Python<'_>, number: u32) -> PyResult<()> {
        let Home::Loop { owner, key, .. } = &self.home else {
            return Ok(());
        };
        if owner.get().is_closed() {
            return Ok(());
        }
        owner.get().with_engine(py, |engine| {
            if let Some(endpoint) = engine.quic(*key) {
                endpoint.remove_socket(number);
            }
        })
    }

    /// Has a client's connection use another socket.
    pub fn migrate(
        &self,
        py: Python<'_>,
        key: ConnectionKey,
        socket: u32,
        timeout: Duration,
    ) -> PyResult<()> {
        let moved = self.with_protocol(py, |endpoint, now: Instant| {
            endpoint.migrate(now, key, socket, timeout)
        })?;
        moved.map_err(|error| match error {
            MigrationError::Closed => PyConnectionResetError::new_err(error.to_string()),
            _ => PyRuntimeError::new_err(error.to_string()),
        })
    }
}
