//! The kernel room: io_uring and epoll behind one completion-level [`Driver`].
//!
//! The map, from the kernel upwards:
//!
//! | file | noun |
//! | --- | --- |
//! | `net/` | socket options, addresses, the error queue |
//! | `errno` | the kernel's error numbers |
//! | `memory`, `buffer_ring`, `pool` | anonymous mappings; where the kernel finds receive buffers; the buffers and the `RecvBuf` that hands one out |
//! | `descriptors` | how many descriptors the process may have; duplicates |
//! | `heap` | freed memory that goes back to the system |
//! | `message`, `datagram` | one message to send or received, with its control messages |
//! | `file` | file operations: open, read, write, and what changes directories |
//! | `sent_file` | a file that is read to be sent |
//! | `shared_bytes` | a file of bytes that several processes share |
//! | `journal/` | files that grow record by record, written by a thread |
//! | `stable_vec` | a vector that grows by the piece |
//! | `op` | the operation slab: identifiers, generations, what the kernel may touch |
//! | `completion` | what comes back |
//! | `incoming` | what comes with a sender's address |
//! | `per_process` | a value that a forked child begins anew |
//! | `waker`, `fork` | wake from another thread; notice that we are a forked child |
//! | `spin_policy` | how long a wait looks for work before it sleeps |
//! | `spawn` | starting a child process from any thread |
//! | `config` | the driver's settings and counters |
//! | `setup_error` | why a backend could not be set up, and what to do about it |
//! | `uring/`, `epoll/` | the two backends |
//! | `common` | what they share: how operations end |
//! | `driver` | the public face that dispatches to one of them: its turn, and what it can be asked to do |
//!
//! What does not live here: protocols, timers, write queues, anything that knows Python or QUIC.
//! This is the only room where `unsafe` is normal; every block names the invariant it leans on.

mod buffer_ring;
mod common;
mod completion;
mod config;
mod datagram;
pub mod descriptors;
mod driver;
mod epoll;
mod errno;
mod file;
mod fork;
pub mod heap;
mod incoming;
pub mod journal;
mod memory;
mod message;
pub mod net;
mod op;
mod per_process;
mod pool;
mod sent_file;
mod setup_error;
mod shared_bytes;
pub mod spawn;
mod spin_policy;
mod stable_vec;
mod uring;
mod waker;

pub use completion::{Completion, Entered, Interest, Outcome};
pub use config::{Backend, DriverConfig, DriverStats};
pub use datagram::Datagram;
pub use driver::Driver;
pub use errno::Errno;
pub use file::{At, Description, FileOutcome, FileRequest, ReadTarget, describe, read_now};
pub use incoming::{Incoming, PeerName};
pub use message::SendMsg;
pub use op::{OpId, Token};
pub use per_process::PerProcess;
pub use pool::RecvBuf;
pub use sent_file::{FileIdentity, SentFile};
pub use setup_error::SetupError;
pub use shared_bytes::SharedBytes;
pub use socket2::SockAddr;
pub use stable_vec::StableVec;
pub use waker::Waker;
