//! The tests of HTTP over QUIC and of WebSocket, in one program: each file would otherwise link the crates by itself.

mod http3;
mod webtransport;
mod ws;

// Two HTTP/3 connections joined in memory, and two QUIC endpoints on a simulated link.
#[path = "../../h3/tests/common/mod.rs"]
#[allow(dead_code)]
mod h3_common;
#[path = "../../quic/tests/support/mod.rs"]
#[allow(dead_code)]
mod support;
