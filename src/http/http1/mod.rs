//! The server side of HTTP/1.1 on a byte stream (RFC 9112): reads requests from bytes, and encodes responses.
//!
//! - `connection`: [`Connection`], the requests of one connection, one after the other. Start here.
//! - `responses`: the host's commands for a response.
//! - `scan`: finds the end of a header section in the input.
//! - `head`: a request's header section; `target`: its target and host; `framing`: the length of its content.
//! - `upgrade`: the handshake of WebSocket (RFC 6455 section 4.2).
//! - `body`: reads a request's content; `chunked`: decodes chunks.
//! - `encode`: encodes header sections and chunks of responses.
//! - `deadlines`: finds slow requests.
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

mod body;
mod chunked;
mod connection;
mod deadlines;
mod encode;
mod event;
mod framing;
mod head;
mod limits;
mod responses;
mod scan;
mod target;
mod upgrade;

pub use connection::Connection;
pub use event::Event;
pub use limits::Limits;
