//! The kernel room: io_uring and epoll behind one completion-level [`Driver`].
//!
//! The map, from the kernel upwards:
//!
//! | file | content |
//! | --- | --- |
//! | `net/` | socket options, addresses, the error queue |
//! | `errno` | the kernel's error numbers |
//! | `memory_mapping` | anonymous memory for buffers |
//! | `buffer_ring`, `buffer_pool` | the kernel's ring of receive buffers; the buffers, and `RecvBuf`s with their bytes |
//! | `descriptors` | the process's limit of descriptors; duplicates of descriptors |
//! | `heap_trim` | returns freed memory to the system |
//! | `outgoing_message` | a message to send, in the format of `sendmsg` |
//! | `received_datagram` | a datagram in a pool's buffer, with its control messages |
//! | `received_message` | a message, or an accepted peer's address, in memory of its own |
//! | `file_operations` | open, read, write, and changes of directories |
//! | `sent_file` | a file whose content is sent to a peer |
//! | `shared_bytes` | a file of bytes that several processes share |
//! | `background_files/` | files that grow record by record, written by a thread |
//! | `stable_vec` | a vector whose elements never move |
//! | `operation_table` | the operations in flight: identifiers, generations, memory for the kernel |
//! | `completion` | completions and their outcomes |
//! | `per_process` | a value that a forked child creates again |
//! | `waker` | wakes a sleeping driver from another thread |
//! | `fork_detection` | detects a forked child |
//! | `spin_policy` | how long a wait polls before it sleeps |
//! | `thread_usage` | the processor time and the waits of a thread |
//! | `spawn` | starts a child process from any thread |
//! | `config` | the driver's settings and counters |
//! | `setup_error` | why a backend could not be set up, and the remedy |
//! | `uring/`, `epoll/` | the two backends |
//! | `backend_state` | the state that both backends share, and the end of operations |
//! | `driver` | the public interface, which passes each call to a backend |
//!
//! Not here: protocols, timers, write queues, and anything that depends on Python or QUIC. This is the only room
//! where `unsafe` is normal; every block names the invariant it relies on.

mod backend_state;
pub mod background_files;
mod buffer_pool;
mod buffer_ring;
mod completion;
mod config;
pub mod descriptors;
mod driver;
mod epoll;
mod errno;
mod file_operations;
mod fork_detection;
pub mod heap_trim;
mod memory_mapping;
pub mod net;
mod operation_table;
mod outgoing_message;
mod per_process;
mod received_datagram;
mod received_message;
mod sent_file;
mod setup_error;
mod shared_bytes;
pub mod spawn;
mod spin_policy;
mod stable_vec;
mod thread_usage;
mod uring;
mod waker;

pub use buffer_pool::RecvBuf;
pub use completion::{Completion, Entered, Interest, Outcome};
pub use config::{Backend, DriverConfig, DriverStats};
pub use driver::Driver;
pub use errno::Errno;
pub use file_operations::{
    At, Description, FileOutcome, FileRequest, ReadTarget, describe, read_now,
};
pub use operation_table::{OpId, Token};
pub use outgoing_message::{BorrowedMsg, SendMsg};
pub use per_process::PerProcess;
pub use received_datagram::Datagram;
pub use received_message::{PeerAddress, ReceivedMessage};
pub use sent_file::{FileIdentity, SentFile};
pub use setup_error::SetupError;
pub use shared_bytes::SharedBytes;
pub use socket2::SockAddr;
pub use stable_vec::StableVec;
pub use thread_usage::{ThreadUsage, thread_usage};
pub use waker::Waker;
