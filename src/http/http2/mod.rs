//! The server side of HTTP/2 on a byte stream (RFC 9113): reads requests from bytes, and encodes responses.
//!
//! - `connection`: [`Connection`], the requests of one connection. Start here.
//! - `stream`: one stream: its states, its flow control, and the content that waits.
//! - `scheduler`: the order in which streams send (RFC 9218).
//! - `hpack`: field compression (RFC 7541). `field_block`: a field block of several frames.
//! - `frame_codec`: the codec of frames. `settings`: the settings of both sides.
//! - `useless_frame_budget`: limits frames without effect. `reset_streams`: streams that this side has reset.
//! - `early_priorities`: priorities of requests that have not begun.
//! - `event`: events for the host. `limits`: [`Limits`], the limits of one connection. `error`: error codes.
//!
//! **Why not the `h2` crate.** It was weighed without its runtime. It reads from an `AsyncRead` with wakers, and has a
//! mutex around the streams of a connection. Its flow control, resets and queues are private, so the limits, priorities
//! (RFC 9218) and time-outs that HTTP/3 has here could not be applied to them. It decodes fields to a `HeaderMap`, from
//! which the list of an application would have to be made again. Frames are the small part of HTTP/2, half of HPACK is
//! shared with QPACK, and the rest is shared with HTTP/3.
//!
//! `concurrent_requests` has what HTTP/3 needs as well: the counts of requests, the limit of resets, slow readers.
//! `h3` validates the fields of messages, because both versions have the same rules. Not here: sockets, timers, TLS,
//! applications, and the messages of a WebSocket (`ws`).

mod connection;
mod early_priorities;
mod error;
mod event;
mod field_block;
pub mod frame_codec;
pub mod hpack;
mod limits;
mod reset_streams;
mod scheduler;
mod settings;
mod stream;
mod useless_frame_budget;

pub use crate::concurrent_requests::Limits as RequestLimits;
pub use connection::Connection;
pub use error::Code;
pub use event::Event;
pub use limits::{Limits, SectionLimits};
