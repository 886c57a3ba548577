//! The tests of HTTP over QUIC, of HTTP/1.1, HTTP/2 and of WebSocket, in one program, so that the crates are linked once and
//! not for each file.

mod http1;
mod http2;
mod http3;
mod webtransport;
mod ws;

// Shared helpers: HTTP/3 connections that are connected in memory, and QUIC endpoints on a simulated link.
#[path = "../../h3/tests/common/mod.rs"]
#[allow(dead_code)]
mod h3_common;
#[path = "../../quic/tests/support/mod.rs"]
#[allow(dead_code)]
mod support;
