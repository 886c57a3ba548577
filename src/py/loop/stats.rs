//! The values of `loop.stats()`, whose docstring explains the names.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::event_loop::loop_core::LoopCore;

pub fn of_loop<'py>(py: Python<'py>, this: &LoopCore) -> PyResult<Bound<'py, PyDict>> {
    let stats = this.with_engine(py, |engine| engine.stats())?;
    let timers = this.timers.with(py, |timers| timers.len());
    let ready = this.ready.with(py, |ready| ready.len());
    let driver = stats.driver;
    let dict = PyDict::new(py);
    for (name, value) in [
        ("turns", stats.iterations),
        ("enters", driver.enters),
        ("syscalls", driver.syscalls + stats.direct_sends),
        ("submissions", driver.submissions),
        ("completions", driver.completions),
        ("wakes", driver.wakes),
        ("busy_polls", driver.busy_polls),
        ("enobufs", driver.enobufs),
        ("rearms", driver.rearms),
        ("ops_in_flight", driver.in_flight),
        ("slots", driver.slots_capacity),
        ("buffers_total", driver.buffers_total),
        ("buffers_out", driver.buffers_out),
        ("buffers_bytes", driver.buffers_bytes),
        ("memory_bytes", driver.memory_bytes),
        ("write_queue_bytes", stats.write_queue_bytes as u64),
        ("backlog_bytes", stats.backlog_bytes as u64),
        ("bytes_held", stats.bytes_held),
        ("datagrams_held", stats.datagrams_held),
        ("streams", stats.streams as u64),
        ("listeners", stats.listeners as u64),
        ("datagrams", stats.datagrams as u64),
        ("readers", stats.readers as u64),
        ("writers", stats.writers as u64),
        ("ops", stats.ops as u64),
        ("quic_endpoints", stats.quic_endpoints as u64),
        ("quic_connections", stats.quic_connections as u64),
        ("quic_connections_opened", stats.quic.connections_opened),
        ("quic_connections_accepted", stats.quic.connections_accepted),
        ("quic_connections_closed", stats.quic.connections_closed),
        ("quic_datagrams_received", stats.quic.datagrams_received),
        ("quic_datagrams_sent", stats.quic.datagrams_sent),
        ("quic_bytes_received", stats.quic.bytes_received),
        ("quic_bytes_sent", stats.quic.bytes_sent),
        ("timers", timers as u64),
        ("ready", ready as u64),
    ] {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}
