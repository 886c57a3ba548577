//! Plain settings of connections and endpoints, checked and built once into shared configurations.
//!
//! - `transport`: limits and timings of a connection.
//! - `client`, `server`: what a side needs to know of itself and its peers.
//! - `endpoint`: limits of all connections of an endpoint together.
//!
//! Not here: the TLS half of the work (`tls::config`).

mod client;
mod endpoint;
mod server;
mod transport;

pub use client::{ClientSettings, ClientSetup};
pub use endpoint::EndpointSettings;
pub use server::{Retry, ServerSettings, ServerSetup};
pub use transport::{AckFrequency, TransportSettings};
