//! WebSocket messages over a byte stream (RFC 6455), whichever version of HTTP has opened it.
//!
//! - `reader`: [`Reader`], bytes to messages and control frames. Start here.
//! - `socket`: [`Socket`], a server's WebSocket: what waits for the application, and how it stands.
//! - `frame`: one frame's header, masking, and frames that are to be sent.
//! - `close`: [`Close`]; `code`: the status codes.
//! - `fault`: [`Fault`], for which the connection is failed.
//!
//! Not here: the handshake, which is the HTTP version's (RFC 6455 section 4, RFC 9220 section 3), when a
//! connection ends, which its host says, and extensions: a frame with a reserved bit is an error.

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
