//! QUIC over UDP sockets of the engine.
//!
//! | file | content |
//! | --- | --- |
//! | `socket` | [`QuicSocket`]: a UDP socket and the state machines of its connections |
//! | `sockets` | `QuicSockets`: all of them, the ones with work and the next deadline |
//! | `descriptor` | [`SocketFd`]: a descriptor that the engine closes, or that the host lent to it |
//!
//! The protocol is in `uringcore_quic`. The host handles the events of connections.

pub(crate) mod descriptor;
pub(crate) mod socket;
pub(crate) mod sockets;

pub use descriptor::SocketFd;
pub use socket::QuicSocket;
