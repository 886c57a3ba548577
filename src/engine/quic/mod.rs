//! QUIC over UDP sockets of the engine.
//!
//! | file | content |
//! | --- | --- |
//! | `socket` | [`QuicSocket`]: a UDP socket and the state machines of its connections |
//! | `socket_table` | `QuicSockets`: the table of these sockets, those with work, and the next deadline |
//! | `socket_fd` | [`SocketFd`]: a descriptor that the engine closes, or that belongs to the host |
//!
//! The protocol is in `uringcore_quic`. The host handles the events of connections.

pub(crate) mod socket;
pub(crate) mod socket_fd;
pub(crate) mod socket_table;

pub use socket::QuicSocket;
pub use socket_fd::SocketFd;
