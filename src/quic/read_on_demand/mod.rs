//! Streams and datagrams of a QUIC connection that a program reads when it wants to: waiting input, and conditions
//! for which the program waits.
//!
//! - `inbox`: [`Inbox`], input of a connection that the program has not read. Start here.
//! - `stream_reader`: [`StreamReader`], the receiving part of one stream: reads of a given size or up to a separator.
//! - `unread_datagram_frames`: received DATAGRAM frames that wait.
//! - `stream_transport`: [`StreamTransport`], the operations that an application builds streams from.
//!
//! Stream data stays in quinn-proto until the program reads it, and the peer gets credit only for data that was read.
//! This module turns events into conditions ([`Key`]). Not here: waiting for a condition, and sending (`quic`).

mod inbox;
mod stream_reader;
mod stream_transport;
mod unread_datagram_frames;

pub use inbox::{Inbox, Key};
pub use stream_reader::{Outcome, Portion, StreamReader, Want};
pub use stream_transport::StreamTransport;
pub use unread_datagram_frames::{Datagrams, Overflow};
