//! A program's streams and datagrams on a QUIC connection: what waits for it, and when it is to look.
//!
//! - `inbox`: [`Inbox`], what has come on a connection and nobody has asked for. Start here.
//! - `stream_reader`: [`StreamReader`], the receiving side of one stream: how much is read when, for whom.
//! - `datagrams`: DATAGRAM frames that wait.
//! - `stream_transport`: [`StreamTransport`], the commands and questions that a host makes streams of.
//!
//! Stream data is not among what waits: connections are read on demand, so it stays in the state machine
//! until somebody reads, and the peer gets credit for what was read and no more. Here is what is asked of
//! the events instead, and which of a host's waiters one concerns ([`Key`]). Not here: the waiters, and
//! what is sent (`quic`).

mod datagrams;
mod inbox;
mod stream_reader;
mod stream_transport;

pub use datagrams::{Datagrams, Overflow};
pub use inbox::{Inbox, Key};
pub use stream_reader::{Outcome, Portion, StreamReader, Want};
pub use stream_transport::StreamTransport;
