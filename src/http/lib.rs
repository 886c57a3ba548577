//! HTTP as sans-IO state machines, above the streams of a QUIC connection or of TCP.
//!
//! | module | content |
//! | --- | --- |
//! | [`http1`] | HTTP/1.1 on a server's byte stream: requests and responses |
//! | [`http2`] | HTTP/2 on a server's byte stream: requests and responses |
//! | [`http3`] | HTTP/3 on a server's QUIC connection: requests and responses |
//! | [`webtransport`] | WebTransport sessions on an HTTP/3 connection, both roles |
//! | [`request_head`] | the head of a request, in the terms of any HTTP version |
//! | [`response_errors`] | refused requests, and the errors of a response |
//! | [`content_coding`] | compression of responses: negotiation and encoders |
//! | [`proxy_protocol`] | the header of the PROXY protocol, which a proxy sends before a client's bytes |
//! | `h3_driver` | carries out the commands of an HTTP/3 connection on QUIC |
//! | [`ws`] | WebSocket messages over a byte stream |
//! | `concurrent_requests` | the parts that HTTP/2 and HTTP/3 share: exchanges, limits, slowly read responses |
//! | `input_buffer_shrink` | the received bytes of a connection over TCP |
//! | [`tcp_output`] | the output of a connection over TCP, and the end of the connection |
//! | `slow_reader_detection` | clients that do not read what was written to their TCP connection |
//!
//! `http3` imports `webtransport`, both import `h3_driver`; `http2` and `http3` import `concurrent_requests`; `http1`
//! and `http2` import `input_buffer_shrink`, `tcp_output` and `slow_reader_detection`; all of these import `request_head` and
//! `response_errors`, and `ws`, `content_coding` and `proxy_protocol` import none of them. Not here: frames and QPACK
//! (`uringcore_h3`), and applications.
//!
//! In the comments, the *host* is the program that drives a connection: the Python bindings, or a native program. It
//! owns the socket or the QUIC connection, and runs the application that answers requests. The field Host has a
//! capital.

#![forbid(unsafe_code)]

mod concurrent_requests;
pub mod content_coding;
mod h3_driver;
pub mod http1;
pub mod http2;
pub mod http3;
mod input_buffer_shrink;
pub mod proxy_protocol;
pub mod request_head;
pub mod response_errors;
mod slow_reader_detection;
pub mod tcp_output;
pub mod webtransport;
pub mod ws;
