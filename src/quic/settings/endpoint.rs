//! Limits of an endpoint.

use std::{sync::Arc, time::Duration};

use uringcore_limits::{memory_budget::Budget, token_bucket::Rate};

use super::{EmptyPlaces, Worker};
use crate::tls::{ConfigError, RESET_KEYS_MAX};

/// Limits of an endpoint, independent of its connections' settings.
///
/// [`Retry::Auto`]: super::Retry::Auto
#[derive(Debug, Clone)]
pub struct EndpointSettings {
    /// The length of the connection IDs that we issue, 0 to 20 bytes. With 0, packets are dispatched by address.
    pub connection_id_length: usize,
    /// Connections at a time, clients' and servers' together. Above that a server answers with CONNECTION_REFUSED,
    /// and `connect` returns [`ConnectError::TooManyConnections`](crate::ConnectError::TooManyConnections).
    pub max_connections: usize,
    /// A server's connections at a time from one IPv4 address or one IPv6 /64. Further ones are refused; with
    /// [`Retry::Auto`], the upper half must prove the address.
    pub max_connections_per_address: Option<usize>,
    /// Connections that a server accepts per second. Further first packets are dropped, and an honest client sends
    /// them again; with [`Retry::Auto`], the second half of a burst must prove the address.
    pub accept_rate: Option<Rate>,
    /// Incoming handshakes in progress at a time. Further ones are refused.
    pub max_handshakes: usize,
    /// The number of incoming handshakes from which on [`Retry::Auto`] requires clients to prove their address.
    pub retry_handshakes: usize,
    /// How long an incoming handshake may take before its state is dropped.
    pub handshake_timeout: Duration,
    /// The largest UDP payload that we accept (RFC 9000 section 18.2), 1,200 to 65,527.
    pub max_udp_payload_size: u16,
    /// True if the socket forbids fragmentation, without which path MTU discovery would find wrong sizes.
    pub dont_fragment: bool,
    /// The secrets that the keys of stateless reset tokens are derived from: the first one is for new connection IDs,
    /// the others for those that were issued before a restart. Empty generates a random one.
    pub reset_keys: Vec<[u8; 32]>,
    /// The name of the endpoint's socket, which the key is derived from as well: two live endpoints may have the
    /// same name only if they are workers of one port.
    pub socket_name: Vec<u8>,
    /// The endpoint's place among several workers on the port, which its connection IDs contain.
    pub worker: Option<Worker>,
    /// The places on the port without a live worker, for which this worker answers; `None`: only its own place.
    pub empty_places: Option<Arc<dyn EmptyPlaces>>,
    /// The first connection ID to issue, if the host has chosen it. It has `connection_id_length` bytes.
    pub first_connection_id: Option<Vec<u8>>,
    /// True if `ConnectionIdIssued` and `ConnectionIdRetired` report a connection's IDs besides the first: for a
    /// host that routes packets to connections itself.
    pub reports_connection_ids: bool,
    /// The budget for the memory of a server's clients, possibly shared with other servers. `None`: only the limits
    /// of the connections apply.
    pub budget: Option<Arc<Budget>>,
    /// Seeds the endpoint's random choices, for tests.
    pub rng_seed: Option<[u8; 32]>,
}

impl Default for EndpointSettings {
    fn default() -> Self {
        Self {
            connection_id_length: 8,
            max_connections: CONNECTIONS_MAX,
            max_connections_per_address: None,
            accept_rate: None,
            max_handshakes: HANDSHAKES_MAX,
            retry_handshakes: HANDSHAKES_MAX / 2,
            handshake_timeout: HANDSHAKE_TIMEOUT,
            max_udp_payload_size: 1_472,
            dont_fragment: true,
            reset_keys: Vec::new(),
            socket_name: Vec::new(),
            worker: None,
            empty_places: None,
            first_connection_id: None,
            reports_connection_ids: false,
            budget: None,
            rng_seed: None,
        }
    }
}

impl EndpointSettings {
    /// Checks the ranges that [`Endpoint::new`](crate::Endpoint::new) relies on.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.connection_id_length > 20 {
            let message = format!("must be from 0 to 20, not {}", self.connection_id_length);
            return Err(ConfigError::new("connection_id_length", message));
        }
        if !(1_200..=65_527).contains(&self.max_udp_payload_size) {
            let message = format!(
                "must be from 1200 to 65527, not {}",
                self.max_udp_payload_size
            );
            return Err(ConfigError::new("max_udp_payload_size", message));
        }
        if let Some(id) = &self.first_connection_id
            && id.len() != self.connection_id_length
        {
            let message = "must have as many bytes as connection_id_length says";
            return Err(ConfigError::new("first_connection_id", message));
        }
        if self.reset_keys.len() > RESET_KEYS_MAX {
            let message = format!("must be at most {RESET_KEYS_MAX} keys");
            return Err(ConfigError::new("stateless_reset_key", message));
        }
        if self.max_connections == 0 {
            return Err(ConfigError::new("max_connections", "must not be zero"));
        }
        if let Some(worker) = self.worker
            && (worker.index >= worker.count || self.connection_id_length == 0)
        {
            let message = "must be one of the count, and needs connection IDs";
            return Err(ConfigError::new("worker", message));
        }
        match self.accept_rate {
            Some(rate)
                if !(rate.per_second > 0.0 && rate.per_second.is_finite()) || rate.burst == 0 =>
            {
                Err(ConfigError::new(
                    "accept_rate",
                    "must be positive, and so must be the burst",
                ))
            }
            _ => Ok(()),
        }
    }
}

/// Defaults of a server's limits (`accept_policy`).
const CONNECTIONS_MAX: usize = 65_536;
const HANDSHAKES_MAX: usize = 4_096;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
