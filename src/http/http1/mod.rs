//! The server side of HTTP/1.1 on a byte stream (RFC 9112): reads requests from bytes, and encodes responses.
//!
//! - `connection`: [`Connection`], the requests of one connection, one after the other. Start here.
//! - `response_commands`: the host's commands for a response.
//! - `header_section_end`: finds the end of a header section in the input.
//! - `header_section_parser`: a request's header section; `request_target`: its target and host; `message_body_length`:
//!   the length of its content.
//! - `websocket_handshake`: the handshake of WebSocket (RFC 6455 section 4.2).
//! - `request_body`: reads a request's content; `chunked_decoder`: decodes chunks.
//! - `response_encoder`: encodes header sections and chunks of responses.
//! - `request_body_timeouts`: finds slow requests.
//! - `limits`: [`Limits`], the limits of one connection.
//! - `event`: events for the host.
//!
//! A malformed message is refused, and its connection is closed, because a proxy in front may find the next request at
//! another position than this server (RFC 9112 section 11.2, request smuggling). For this reason the reader has none of
//! the leniency that the RFC permits: it refuses a bare LF, folded lines, repeated lengths, and white space around the
//! size of a chunk.
//!
//! `httparse` parses the lines of a section. Not here: sockets, timers, applications, and the messages of a WebSocket
//! (`ws`).

mod chunked_decoder;
mod connection;
mod event;
mod header_section_end;
mod header_section_parser;
mod limits;
mod message_body_length;
mod request_body;
mod request_body_timeouts;
mod request_target;
mod response_commands;
mod response_encoder;
mod websocket_handshake;

pub use connection::{Connection, LAST_REQUEST_TIME};
pub use event::Event;
pub use limits::Limits;
