//! WebSocket messages over a byte stream (RFC 6455), for any version of HTTP.
//!
//! - `message_reader`: [`Reader`], parses received bytes to messages and control frames. Start here.
//! - `websocket`: [`Socket`], a server's WebSocket: its state and the messages that wait for the application.
//! - `frame`: one frame's header, masking, and encoding of frames to send.
//! - `close_frame`: [`Close`], code and reason of a close frame; `close_codes`: the status codes.
//! - `permessage_deflate`: compression of messages (RFC 7692), if the host enables it.
//! - `violation`: [`Violation`], an error of the peer that fails the connection.
//!
//! Not here: the handshake, which depends on the HTTP version (RFC 6455 section 4, RFC 9220 section 3); the end of a
//! connection, which the host reports; and extensions other than compression, so a frame with another reserved bit set
//! is an error.

pub mod close_codes;
mod close_frame;
mod frame;
mod message_reader;
mod permessage_deflate;
mod violation;
mod websocket;

pub use close_frame::Close;
pub use frame::{FrameHead, Opcode, Side, frame};
pub use message_reader::{Event, Reader, Text};
pub use permessage_deflate::Agreed;
pub use violation::Violation;
pub use websocket::{Limits, Phase, Socket, Stop};
