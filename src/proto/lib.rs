//! The protocols: TLS, QUIC, HTTP/3 and WebSocket as sans-IO state machines.
//!
//! | module | noun |
//! | --- | --- |
//! | `wire` | what is on the wire, as plain codecs |
//! | `seams` | what makes up for gaps of quinn-proto and rustls, one a file |
//! | [`qlog`] | what packets say, in words, for whoever wants a trace |
//! | [`tls`] | certificates, verification, the crypto session under QUIC |
//! | [`quic`] | endpoints and connections: datagrams and a clock in, datagrams and events out |
//! | [`h3`] | one HTTP/3 connection over QUIC streams, with QPACK |
//! | `h3_driver` | what an HTTP/3 connection wants of QUIC, done |
//! | [`webtransport`] | WebTransport sessions on a connection, both roles |
//! | [`http`] | HTTP/3 attached to QUIC: requests and responses |
//! | [`budget`] | how many bytes clients may make a process hold |
//! | [`semaphore`] | how many of something expensive one client may have |
//! | [`shares`] | places for something scarce, shared fairly among clients |
//! | [`ws`] | WebSocket messages over a byte stream |
//! | [`streams`] | a program's streams and datagrams on a QUIC connection |
//! | `fuzzing` | private parsers, opened for fuzz targets |
//!
//! Each knows only what stands above it in the table, and `h3` of those only `wire`: it knows nothing
//! of `quic`. `ws` knows `semaphore` alone. None knows a socket, a clock or Python: time is an argument, bytes
//! come and go through methods. Bad input from a peer ends in an event or in a connection that is closed with
//! the RFC's code, never in a panic.

#![forbid(unsafe_code)]

pub mod budget;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod h3;
mod h3_driver;
pub mod http;
pub mod qlog;
pub mod quic;
mod seams;
pub mod semaphore;
pub mod shares;
pub mod streams;
pub mod tls;
pub mod webtransport;
mod wire;
pub mod ws;
