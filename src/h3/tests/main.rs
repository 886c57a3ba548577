//! The tests of HTTP/3 and QPACK, in one program, so that the crate is linked once and not for each file.

mod common;
mod limits;
mod mutated_input;
mod push;
mod qpack;
mod request_targets;
mod requests_and_responses;
mod rfc9114;
mod rfc9204;
mod rfc9218;
mod rfc9220;
