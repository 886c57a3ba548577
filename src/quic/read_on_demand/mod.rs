//! A program's streams and datagrams on a QUIC connection: input that waits, and when to look at it.
//!
//! - `inbox`: [`Inbox`], input of a connection that the program has not read. Start here.
//! - `stream_reader`: [`StreamReader`], the receiving side of one stream: reads of a given size or up to a separator.
//! - `datagrams`: received DATAGRAM frames that wait.
//! - `stream_transport`: [`StreamTransport`], the operations that a host builds streams from.
//!
//! Stream data is not stored here: connections are read on demand, so it stays in the state machine until the
//! program reads it, and the peer gets credit only for data that was read. This module turns events into the
//! conditions that a host's waiters wait for ([`Key`]). Not here: the waiters themselves, and sending (`quic`).

mod datagrams;
mod inbox;
mod stream_reader;
mod stream_transport;

pub use datagrams::{Datagrams, Overflow};
pub use inbox::{Inbox, Key};
pub use stream_reader::{Outcome, Portion, StreamReader, Want};
pub use stream_transport::StreamTransport;
