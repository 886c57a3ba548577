//! The kernel room: io_uring and epoll behind one completion-level [`Driver`].
//!
//! The map, from the kernel upwards:
//!
//! | file | content |
//! | --- | --- |
//! | `net/` | socket options, addresses, the error queue |
//! | `errno` | the kernel's error numbers |
//! | `memory`, `buffer_ring`, `pool` | anonymous mappings; rings of receive buffers; the buffers and their `RecvBuf`s |
//! | `descriptors` | the limit of descriptors; duplicates |
//! | `heap` | returns freed memory to the system |
//! | `message`, `datagram` | one message to send or received, with its control messages |
//! | `file` | file operations: open, read, write, and changes of directories |
//! | `sent_file` | a file that is read to be sent |
//! | `shared_bytes` | a file of bytes that several processes share |
//! | `background_files/` | files that grow record by record, written by a thread |
//! | `stable_vec` | a vector whose elements never move |
//! | `op` | the operation slab: identifiers, generations, memory for the kernel |
//! | `completion` | completions and their outcomes |
//! | `incoming` | results with a sender's address |
//! | `per_process` | a value that a forked child creates again |
//! | `waker`, `fork` | waking from another thread; detecting a forked child |
//! | `spin_policy` | how long a wait polls before it sleeps |
//! | `thread_usage` | the processor time and the waits of a thread |
//! | `spawn` | starting a child process from any thread |
//! | `config` | the driver's settings and counters |
//! | `setup_error` | why a backend could not be set up, and the remedy |
//! | `uring/`, `epoll/` | the two backends |
//! | `common` | the backends' shared part: the end of operations |
//! | `driver` | the public interface, which dispatches to a backend: its turn and its operations |
//!
//! Not here: protocols, timers, write queues, and anything that depends on Python or QUIC. This is the only room where
//! `unsafe` is normal; every block names the invariant it relies on.

pub mod background_files;
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
mod thread_usage;
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
pub use thread_usage::{ThreadUsage, thread_usage};
pub use waker::Waker;
