//! Settings of connections and endpoints, checked and built once into configurations that connections share.
//!
//! - `transport`: limits and timings of a connection; `congestion`: its congestion controller.
//! - `client`, `server`: settings of one side.
//! - `endpoint`: limits of all connections of an endpoint together; `worker_place`: its place among several workers.
//! - `versions`: the QUIC versions that may be set.
//!
//! Not here: the TLS configuration (`tls::rustls_config`).

mod client;
mod congestion;
mod endpoint;
mod server;
mod transport;
mod versions;
mod worker_place;

pub use client::{ClientSettings, ClientSetup};
pub use congestion::Congestion;
pub use endpoint::EndpointSettings;
pub use server::{Retry, ServerSettings, ServerSetup};
pub use transport::{AckFrequency, TransportSettings};
pub use worker_place::{EmptyPlaces, Worker};
