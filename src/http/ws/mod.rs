//! WebSocket messages over a byte stream (RFC 6455), for any version of HTTP.
//!
//! - `reader`: [`Reader`], bytes to messages and control frames. Start here.
//! - `socket`: [`Socket`], a server's WebSocket: its state and the messages that wait for the application.
//! - `frame`: one frame's header, masking, and encoding of frames to send.
//! - `close`: [`Close`]; `code`: the status codes.
//! - `fault`: [`Fault`], a protocol violation that fails the connection.
//!
//! Not here: the handshake, which belongs to the HTTP version (RFC 6455 section 4, RFC 9220 section 3); the end of a
//! connection, which the host reports; and extensions, so a frame with a reserved bit set is an error.

mod close;
pub mod code;
mod fault;
mod frame;
mod reader;
mod socket;

pub use close::Close;
pub use fault::Fault;
pub use frame::{Opcode, Side, frame};
pub use reader::{Event, Reader};
pub use socket::{Limits, Phase, Socket, Stop};
