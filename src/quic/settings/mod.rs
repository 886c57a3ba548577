//! Plain settings of connections and endpoints, checked and built once into shared configurations.
//!
//! - `transport`: limits and timings of a connection; `congestion`: its congestion controller.
//! - `client`, `server`: what a side needs to know of itself and its peers.
//! - `endpoint`: limits of all connections of an endpoint together; `worker`: which of several workers it is.
//! - `versions`: those of QUIC that may be set.
//!
//! Not here: the TLS half of the work (`tls::config`).

mod client;
mod congestion;
mod endpoint;
mod server;
mod transport;
mod versions;
mod worker;

pub use client::{ClientSettings, ClientSetup};
pub use congestion::Congestion;
pub use endpoint::EndpointSettings;
pub use server::{Retry, ServerSettings, ServerSetup};
pub use transport::{AckFrequency, TransportSettings};
pub use worker::{EmptyPlaces, Worker};
