//! `uringcore._uringcore`: the Python bindings.
//!
//! | file | noun |
//! | --- | --- |
//! | `loop_core` | the event loop class: scheduling, watchers, what asyncio's base class calls |
//! | `turn` | the loop's turn: when to wait, what to run |
//! | `dispatch` | from an engine event to the Python callback that waits for it |
//! | `handle` | `Handle` and `TimerHandle` |
//! | `call` | a callback and its arguments |
//! | `tasks` | `create_task` and `create_future` |
//! | `fastcall` | methods that take their arguments as the interpreter hands them over |
//! | `scheduling` | making handles: `call_soon`, `call_later` and the like |
//! | `ready` | what waits to be run, shown to programs that run it themselves |
//! | `running` | which thread runs a callback, and waiting for its end |
//! | `watchers` | readers and writers |
//! | `thread_end` | a thread that the interpreter ends while it is in our turn |
//! | `errands` | what the loop's thread does for other threads |
//! | `hosts` | what the engine's keys stand for in Python |
//! | `stats` | what `loop.stats()` tells |
//! | `mode` | what is unusual about a loop, in one word |
//! | `stream` | the stream transport |
//! | `datagram` | the datagram transport |
//! | `open_class` | the transports' classes as Python sees them, whose instances take attributes |
//! | `ops` | operations that a Python future waits for |
//! | `tls` | TLS over any transport, through `ssl.SSLObject` |
//! | `spawn` | a child process on its way |
//! | `ops_socket` | the `sock_*` calls as operations |
//! | `sockets` | whose turn it is on a socket of a `sock_*` call |
//! | `held` | results that came for a cancelled waiter |
//! | `plain_socket` | what Python's socket objects are, read cheaply |
//! | `quic_*`, `h3` | QUIC and HTTP/3 objects |
//! | `file`, `file/` | file operations that a Python future waits for, and those that need not wait |
//! | `devcert` | short-lived certificates for development |
//! | `extra_info` | what both transports answer to `get_extra_info` alike |
//! | `address` | socket addresses to and from Python tuples |
//! | `buffer` | Python buffers held as `Bytes`: the only file that does |
//! | `lend` | memory shown to C code for one call |
//! | `context` | `contextvars` contexts entered through the C API |
//! | `error` | Rust errors into Python exceptions: the only file that does |
//! | `clock` | asyncio's clock |
//! | `cell` | state that a Python object owns |
//!
//! This room knows no protocol rule: what bytes mean is decided in `proto`, when they move in `engine`.

mod address;
mod buffer;
mod call;
mod cell;
mod clock;
mod context;
mod datagram;
mod devcert;
mod dispatch;
mod errands;
mod error;
mod extra_info;
mod fastcall;
mod file;
mod h3;
mod handle;
mod held;
mod hosts;
mod lend;
mod loop_core;
mod mode;
mod open_class;
mod ops;
mod ops_socket;
mod plain_socket;
mod quic;
mod ready;
mod running;
mod scheduling;
mod sockets;
mod spawn;
mod stats;
mod stream;
mod tasks;
mod thread_end;
mod tls;
mod transport;
mod turn;
mod watchers;

use pyo3::prelude::*;

// A free-threaded interpreter stays free-threaded: state sits in cells with a lock of their own there
// (see `cell`), and each loop belongs to the thread that runs it.
#[pymodule(gil_used = false)]
fn _uringcore(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<loop_core::LoopCore>()?;
    m.add_class::<handle::Handle>()?;
    m.add_class::<handle::TimerHandle>()?;
    m.add_class::<transport::BaseTransport>()?;
    m.add(
        "StreamTransport",
        open_class::class::<stream::StreamTransport>(m.py())?,
    )?;
    m.add(
        "DatagramTransport",
        open_class::class::<datagram::DatagramTransport>(m.py())?,
    )?;
    extra_info::inherited(m.py())?;
    ops::register(m)?;
    watchers::register(m)?;
    ready::register(m)?;
    scheduling::register(m)?;
    tasks::register(m)?;
    m.add_class::<tls::TlsProtocol>()?;
    m.add(
        "SSLTransport",
        open_class::class::<tls::TlsTransport>(m.py())?,
    )?;
    m.add_class::<spawn::Spawn>()?;
    ops_socket::register(m)?;
    plain_socket::register(m)?;
    quic::register(m)?;
    h3::register(m)?;
    devcert::register(m)?;
    file::register(m)?;
    Ok(())
}
