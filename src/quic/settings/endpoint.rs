//! The limits of an endpoint.

use std::{sync::Arc, time::Duration};

use uringcore_limits::{memory_budget::Budget, token_bucket::Rate};

use super::{EmptyPlaces, Worker};
use crate::tls::{ConfigError, RESET_KEYS_MAX};

/// The limits of an endpoint. They apply to all of its connections together.
#[derive(Debug, Clone)]
pub struct EndpointSettings {
    /// The length of this side's connection IDs, 0 to 20 bytes. With 0, packets are dispatched by address.
    pub connection_id_length: usize,
    /// The largest number of connections, clients' and servers' together. A server refuses further ones with
    /// CONNECTION_REFUSED; `connect` returns
    /// [`ConnectError::TooManyConnections`](crate::ConnectError::TooManyConnections).
    pub max_connections: usize,
    /// The largest number of a server's connections from one IPv4 address or one IPv6 /64. Further ones are refused.
    /// With `Retry::Auto`, a client must prove its address when half of them are open.
    pub max_connections_per_address: Option<usize>,
    /// The number of connections that a server accepts per second. Further first packets are dropped, and an honest
    /// client sends them again. With `Retry::Auto`, a client must prove its address when half of a burst is used up.
    pub accept_rate: Option<Rate>,
    /// The largest number of incoming handshakes in progress. Further ones are refused.
    pub max_handshakes: usize,
    /// The number of handshakes in progress from which on new clients must prove their address, with `Retry::Auto`.
    pub retry_handshakes: usize,
    /// How long an incoming handshake may take. Then its state is dropped.
    pub handshake_timeout: Duration,
    /// The largest UDP payload that this side accepts (RFC 9000 section 18.2), from 1,200 to 65,527 bytes.
    pub max_udp_payload_size: u16,
    /// True if the socket forbids fragmentation. Otherwise path MTU discovery is off, because it would find wrong
    /// sizes.
    pub dont_fragment: bool,
    /// The secrets for stateless reset tokens. New connection IDs use the first one; the others belong to IDs that were
    /// issued before a restart. If the list is empty, a random secret is generated.
    pub reset_keys: Vec<[u8; 32]>,
    /// The name of the endpoint's socket, from which the keys of stateless resets are derived as well. Two live
    /// endpoints may have the same name only if they are workers of one port.
    pub socket_name: Vec<u8>,
    /// The endpoint's place among several workers on the port. Its connection IDs contain it.
    pub worker: Option<Worker>,
    /// Finds the places on the port that have no live worker. This worker answers packets for those places, too. With
    /// `None` it answers only for its own place.
    pub empty_places: Option<Arc<dyn EmptyPlaces>>,
    /// The first connection ID to issue, of `connection_id_length` bytes. `None`: it is random.
    pub first_connection_id: Option<Vec<u8>>,
    /// True to emit `ConnectionIdIssued` and `ConnectionIdRetired` for all connection IDs but the first, for an
    /// application that routes packets to connections itself.
    pub reports_connection_ids: bool,
    /// The memory budget for a server's clients, which several servers may share. `None`: only the limits of each
    /// connection apply.
    pub budget: Option<Arc<Budget>>,
    /// The seed of the endpoint's random choices, for tests.
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
    /// Checks the ranges of the settings. [`Endpoint::new`](crate::Endpoint::new) panics if this fails.
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

/// The defaults of a server's limits (`accept_policy`). Python programs get those of `uringcore.quic.limits`, which are
/// equal.
const CONNECTIONS_MAX: usize = 65_536;
const HANDSHAKES_MAX: usize = 4_096;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
