//! Limits of an endpoint.

use std::{sync::Arc, time::Duration};

use uringcore_limits::{budget::Budget, token_bucket::Rate};

use super::{EmptyPlaces, Worker};
use crate::tls::ConfigError;

/// Limits of an endpoint, whatever its connections are configured to.
///
/// [`Retry::Auto`]: super::Retry::Auto
#[derive(Debug, Clone)]
pub struct EndpointSettings {
    /// Length of the connection IDs that we issue, 0 to 20 bytes. With 0, packets are told apart by
    /// address.
    pub connection_id_length: usize,
    /// Connections at a time, clients' and servers' together. A server refuses more with
    /// CONNECTION_REFUSED, `connect` raises
    /// [`ConnectError::TooManyConnections`](crate::ConnectError::TooManyConnections).
    pub max_connections: usize,
    /// Connections at a time that a server has from one IPv4 address or one IPv6 /64. More are
    /// refused; with [`Retry::Auto`], the upper half must prove the address.
    pub max_connections_per_address: Option<usize>,
    /// Connections that a server accepts in a second. First packets beyond that are dropped, and an
    /// honest client repeats them; with [`Retry::Auto`], the second half of a burst must prove the
    /// address.
    pub accept_rate: Option<Rate>,
    /// Incoming handshakes under way at a time. More are refused.
    pub max_incoming: usize,
    /// Incoming handshakes under way from which on [`Retry::Auto`] has clients prove their address.
    pub retry_incoming: usize,
    /// How long an incoming handshake may take before its state is dropped.
    pub handshake_timeout: Duration,
    /// The largest UDP payload that we take (RFC 9000 section 18.2), 1,200 to 65,527.
    pub max_udp_payload_size: u16,
    /// True if the socket forbids fragmentation, without which path MTU discovery would lie.
    pub dont_fragment: bool,
    /// The secret that the key of stateless reset tokens is derived from; `None` makes a random one.
    pub reset_key: Option<[u8; 32]>,
    /// The name of the endpoint's socket, which the key is derived from as well: two endpoints that are
    /// alive at a time have the same name only if they are workers of one port.
    pub socket_name: Vec<u8>,
    /// Which of several workers on the port this is; its connection IDs say so.
    pub worker: Option<Worker>,
    /// The places on the port that this worker stands in for; `None`: no place but its own.
    pub empty_places: Option<Arc<dyn EmptyPlaces>>,
    /// The first connection ID that is issued, where the host had to name it beforehand. Of
    /// `connection_id_length` bytes.
    pub first_connection_id: Option<Vec<u8>>,
    /// True if `ConnectionIdIssued` and `ConnectionIdRetired` say which IDs lead to a connection besides
    /// the one that it began with: for a host that routes packets to connections itself.
    pub tells_connection_ids: bool,
    /// What the clients of a server may make it hold, and other servers that share it. `None`: as much as
    /// the limits of all connections come to.
    pub budget: Option<Arc<Budget>>,
    /// Makes the endpoint's random choices repeatable, for tests.
    pub rng_seed: Option<[u8; 32]>,
}

impl Default for EndpointSettings {
    fn default() -> Self {
        Self {
            connection_id_length: 8,
            max_connections: 65_536,
            max_connections_per_address: None,
            accept_rate: None,
            max_incoming: 4_096,
            retry_incoming: 2_048,
            handshake_timeout: Duration::from_secs(10),
            max_udp_payload_size: 1_472,
            dont_fragment: true,
            reset_key: None,
            socket_name: Vec::new(),
            worker: None,
            empty_places: None,
            first_connection_id: None,
            tells_connection_ids: false,
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
