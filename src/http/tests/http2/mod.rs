//! The tests of HTTP/2: HPACK with the RFC's examples, and connections with a client that is made of bytes.

mod client;
mod client_errors;
mod floods;
mod flow_control;
mod hpack;
mod requests;
mod timeouts_and_shutdown;
