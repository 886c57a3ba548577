//! The tests of QUIC over a simulated link, in one program: each file would otherwise link the crate by itself.

mod accept;
mod addresses;
mod backpressure;
mod certificates;
mod close;
mod datagrams;
mod early_datagrams;
mod early_versions;
mod endurance;
mod first_flight;
mod garbage;
mod memory;
mod migration;
mod pending_accepts;
mod pre_connect;
mod read_on_demand;
mod resumption;
mod server;
mod stream_limits;
mod streams;
mod support;
mod tls;
mod trace;
mod transport;
mod version_credentials;
mod versions;
