//! The tests of HTTP/2: HPACK with the RFC's examples, and connections with a client that is made of bytes.

mod abuse;
mod client;
mod errors;
mod flow_control;
mod hpack;
mod life;
mod requests;
