//! The requests of a connection that has many of them at a time: the parts that HTTP/2 and HTTP/3 share.
//!
//! - `exchanges`, `exchange`: requests with their responses, and their counts.
//! - `slowly_read_responses`: responses of which the client reads nothing, or too little.
//! - `rapid_reset_limit`: the number of requests that a client may reset. `idle_timer`: the time without requests.
//! - `response_priority`: the order of responses. `http_datagram`: HTTP datagrams in capsules.
//! - `request_head_conversion`: converts a request's header section to a head in the terms of any HTTP version.
//! - `limits`: [`Limits`], the limits of one connection.
//!
//! Each part has its own state, and does not depend on a connection.

pub(crate) mod exchange;
pub(crate) mod exchanges;
pub(crate) mod http_datagram;
pub(crate) mod idle_timer;
mod limits;
pub(crate) mod rapid_reset_limit;
mod request_head_conversion;
pub(crate) mod response_priority;
pub(crate) mod slowly_read_responses;

pub use limits::{Limits, Unsafe};
