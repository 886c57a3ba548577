//! The kernel room: io_uring and epoll behind one completion-level [`Driver`].
//!
//! The map, from the kernel upwards:
//!
//! | file | content |
//! | --- | --- |
//! | `net/` | socket options, addresses, the error queue |
//! | `errno` | the kernel's error numbers |
//! | `memory_mapping` | anonymous memory for buffers |
//! | `provided_buffer_ring`, `receive_buffer_pool` | the kernel's ring of receive buffers; the buffers, and `RecvBuf`s with their bytes |
//! | `descriptor_limit_and_dup` | the process's limit of descriptors; duplicates of descriptors |
//! | `heap_trim` | returns freed memory to the system |
//! | `outgoing_message` | a message to send, in the format of `sendmsg` |
//! | `received_datagram` | a datagram in a pool's buffer, with its control messages |
//! | `received_message` | a message, or an accepted peer's address, in memory of its own |
//! | `file_operations` | open, read, write, and changes of directories |
//! | `served_file` | a file whose content is sent to a peer |
//! | `served_folder` | a folder whose files are opened by names that cannot leave it |
//! | `memfd_bytes` | a file of bytes that several processes share |
//! | `background_log_files/` | files that grow record by record, written by a thread |
//! | `stable_vec` | a vector whose elements never move |
//! | `operation_table` | the operations in flight: identifiers, generations, memory for the kernel |
//! | `completion` | completions and their outcomes |
//! | `per_process_global` | a value that a forked child creates again |
//! | `waker` | wakes a sleeping driver from another thread |
//! | `fork_detection` | detects a forked child |
//! | `spin_policy` | how long a wait polls before it sleeps |
//! | `thread_cpu_usage` | the processor time and the waits of a thread |
//! | `process_spawn` | starts a child process from any thread |
//! | `driver_config` | the driver's settings and counters |
//! | `backend_setup_error` | why a backend could not be set up, and the remedy |
//! | `uring/`, `epoll/` | the two backends |
//! | `common_backend_state` | the state that both backends share, and the end of operations |
//! | `driver` | the public interface, which passes each call to a backend |
//!
//! In the comments, the *host* is the program that owns the [`Driver`]: an event loop.
//!
//! Not here: protocols, timers, write queues, and anything that depends on Python or QUIC. This is the only room
//! where `unsafe` is normal; every block names the invariant it relies on.

mod backend_setup_error;
pub mod background_log_files;
mod common_backend_state;
mod completion;
pub mod descriptor_limit_and_dup;
mod driver;
mod driver_config;
mod epoll;
mod errno;
mod file_operations;
mod fork_detection;
pub mod heap_trim;
mod memfd_bytes;
mod memory_mapping;
pub mod net;
mod operation_table;
mod outgoing_message;
mod per_process_global;
pub mod process_spawn;
mod provided_buffer_ring;
mod receive_buffer_pool;
mod received_datagram;
mod received_message;
mod served_file;
mod served_folder;
mod spin_policy;
mod stable_vec;
mod thread_cpu_usage;
mod uring;
mod waker;

pub use backend_setup_error::SetupError;
pub use completion::{Completion, Entered, Interest, Outcome};
pub use driver::Driver;
pub use driver_config::{Backend, DriverConfig, DriverStats};
pub use errno::Errno;
pub use file_operations::{
    At, Description, FileOutcome, FileRequest, ReadTarget, describe, read_now,
};
pub use memfd_bytes::SharedBytes;
pub use operation_table::{OpId, Token};
pub use outgoing_message::{BorrowedMsg, SendMsg};
pub use per_process_global::PerProcess;
pub use receive_buffer_pool::RecvBuf;
pub use received_datagram::Datagram;
pub use received_message::{PeerAddress, ReceivedMessage};
pub use served_file::{FileIdentity, FileStamp, FileVersion, SentFile};
pub use served_folder::ServedFolder;
pub use socket2::SockAddr;
pub use stable_vec::StableVec;
pub use thread_cpu_usage::{ThreadUsage, thread_usage};
pub use waker::Waker;
