//! Tickets that contain the session, sealed (RFC 5077, RFC 8446 section 4.6.1). The server keeps nothing, so all
//! processes that have the same keys resume each other's sessions.
//!
//! A ticket can be used more than once. Over TCP the server accepts no 0-RTT data, which is what a second use could
//! repeat (RFC 8446 section 8).

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use quinn_proto::crypto::HandshakeTokenKey;
use rustls::server::ProducesTickets;

use crate::tls::{
    ConfigError, WallClock,
    keys::address_token_keys::token_key,
    random::random_bytes,
    sessions::{SCOPE_BYTES, scope_of},
};

/// Seals and opens tickets. A ticket is a random salt, the time of issue in seconds since 1970, and the sealed session.
pub(super) struct StatelessTickets {
    keys: Arc<dyn HandshakeTokenKey>,
    clock: Arc<dyn WallClock>,
    /// Distinguishes the tickets of servers with the same keys and other requirements for client certificates: a
    /// resumed handshake requests no certificate.
    scope: [u8; SCOPE_BYTES],
}

impl StatelessTickets {
    /// `requirements` are the server's requirements for client certificates, as bytes.
    pub fn new(
        secrets: &[Vec<u8>],
        clock: Arc<dyn WallClock>,
        requirements: &[&[u8]],
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            keys: token_key(secrets)?,
            clock,
            scope: scope_of(requirements),
        })
    }

    /// Returns the input from which the key of one ticket is derived. The label keeps it apart from those of address
    /// tokens.
    fn key_input(&self, salt: &[u8]) -> Vec<u8> {
        [LABEL, &self.scope, salt].concat()
    }

    fn now(&self) -> u64 {
        let now = self.clock.now().duration_since(SystemTime::UNIX_EPOCH);
        now.map_or(0, |since| since.as_secs())
    }
}

impl ProducesTickets for StatelessTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME.as_secs() as u32
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        let salt = random_bytes::<SALT_BYTES>();
        let issued = self.now().to_be_bytes();
        let mut sealed = session.to_vec();
        let key = self.keys.aead_from_hkdf(&self.key_input(&salt));
        key.seal(&mut sealed, &issued).ok()?;
        Some([&salt[..], &issued, &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (salt, rest) = ticket.split_first_chunk::<SALT_BYTES>()?;
        let (issued, sealed) = rest.split_first_chunk::<8>()?;
        let age = self.now().checked_sub(u64::from_be_bytes(*issued))?;
        if age > LIFETIME.as_secs() {
            return None;
        }
        let mut data = sealed.to_vec();
        let key = self.keys.aead_from_hkdf(&self.key_input(salt));
        let length = key.open(&mut data, issued).ok()?.len();
        data.truncate(length);
        Some(data)
    }
}

impl fmt::Debug for StatelessTickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatelessTickets").finish_non_exhaustive()
    }
}

const LABEL: &[u8] = b"TLS ticket";
const SALT_BYTES: usize = 16;
/// The time for which a session can be resumed. It bounds the time for which a stolen key opens recorded TLS 1.2
/// sessions of resumed connections.
const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
