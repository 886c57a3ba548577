//! Converts the settings of an endpoint from Python for the state machines. Also distributes the datagrams of a port
//! among several endpoints.
//!
//! Python's `create_quic_endpoint` passes the settings. Their ranges are checked here and in the state machine.

use std::os::fd::RawFd;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use uringcore_io::SharedBytes;
use uringcore_limits::token_bucket::Rate;
use uringcore_quic::tls::{ConfigError, RESET_KEYS_MAX};
use uringcore_quic::{EmptyPlaces, EndpointSettings, Worker};

use super::client_and_server_config::{config_error, seconds};
use crate::capi::bounded_arguments::{BytesLike, List, OwnedBytes};
use crate::capi::exception_conversion;
use crate::process_memory_budgets::budget_of;

/// The settings, as Python passes them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct EndpointOptions {
    accept_burst: u32,
    accept_rate: Option<f64>,
    connection_id_length: usize,
    handshake_timeout: f64,
    max_connections: usize,
    max_connections_per_address: Option<usize>,
    max_handshakes: usize,
    memory: Option<usize>,
    reset_keys: List<OwnedBytes>,
    socket_name: OwnedBytes,
    retry_handshakes: usize,
    /// The worker's slot, the number of slots, and the descriptor of the file that has a byte for each slot.
    worker: Option<(u8, u8, RawFd)>,
}

pub fn from_options(py: Python<'_>, options: &Bound<'_, PyDict>) -> PyResult<EndpointSettings> {
    let options: EndpointOptions = options.extract()?;
    let worker = options.worker;
    let empty_places = worker.map(|(_, _, states)| WorkerStates::shared(states));
    let settings = EndpointSettings {
        connection_id_length: options.connection_id_length,
        max_connections: options.max_connections,
        max_connections_per_address: options.max_connections_per_address,
        accept_rate: options.accept_rate.map(|per_second| Rate {
            per_second,
            burst: options.accept_burst,
        }),
        max_handshakes: options.max_handshakes,
        retry_handshakes: options.retry_handshakes,
        handshake_timeout: seconds(py, "handshake_timeout", options.handshake_timeout)?,
        reset_keys: reset_keys(py, options.reset_keys)?,
        budget: options.memory.map(budget_of),
        socket_name: options.socket_name.0,
        worker: worker.map(|(index, count, _)| Worker { index, count }),
        empty_places: empty_places.transpose()?,
        ..EndpointSettings::default()
    };
    checked(py, settings)
}

/// Converts the secrets for stateless resets. [`Endpoint::set_reset_keys`] changes those of an open endpoint.
///
/// [`Endpoint::set_reset_keys`]: uringcore_quic::Endpoint::set_reset_keys
pub fn reset_keys(py: Python<'_>, keys: List<OwnedBytes>) -> PyResult<Vec<[u8; 32]>> {
    let refused = |message| config_error(py, &ConfigError::new("stateless_reset_key", message));
    if keys.0.len() > RESET_KEYS_MAX {
        return Err(refused(format!("must be at most {RESET_KEYS_MAX} keys")));
    }
    keys.0
        .into_iter()
        .map(|key| {
            <[u8; 32]>::try_from(key.0)
                .map_err(|key| refused(format!("must have 32 bytes, not {}", key.len())))
        })
        .collect()
}

/// The state of each worker slot of a port, in a file that the processes on the port share.
#[derive(Debug)]
struct WorkerStates(SharedBytes);

impl WorkerStates {
    fn shared(fd: RawFd) -> PyResult<Arc<dyn EmptyPlaces>> {
        let states =
            SharedBytes::duplicate(fd).map_err(|error| exception_conversion::io_error(&error))?;
        Ok(Arc::new(Self(states)))
    }
}

impl EmptyPlaces for WorkerStates {
    fn is_empty(&self, index: u8) -> bool {
        // If the worker's state cannot be read, the worker may be alive, so its place does not count as empty.
        matches!(self.0.get(u64::from(index)), Ok(PLACE_EMPTY))
    }
}

/// The state of a place without a worker, as `uringcore.quic.workers` writes it.
const PLACE_EMPTY: u8 = 0;

pub fn checked(py: Python<'_>, settings: EndpointSettings) -> PyResult<EndpointSettings> {
    match settings.check() {
        Ok(()) => Ok(settings),
        Err(error) => Err(config_error(py, &error)),
    }
}

/// Distributes the datagrams of a port's `SO_REUSEPORT` sockets by connection ID. The slot of a datagram is the first
/// byte of its connection ID, modulo the number of slots. `sockets` has the index of a socket for each slot, in the
/// order in which the sockets were bound.
#[pyfunction]
#[expect(clippy::needless_pass_by_value)] // Values arrive from Python in this form.
fn steer_by_connection_id(fd: RawFd, sockets: BytesLike<'_>) -> PyResult<()> {
    uringcore_io::net::steer_by_connection_id(fd, &sockets)
        .map_err(|error| exception_conversion::io_error(&error))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(steer_by_connection_id, m)?)
}
