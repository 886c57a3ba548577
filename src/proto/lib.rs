#![forbid(unsafe_code)]

pub mod h3;
pub mod quic;
pub mod tls;
