//! Address validation tokens (RFC 9000 sections 8.1.2 and 8.1.3): how long a server accepts a token, its log that
//! makes a token of a NEW_TOKEN frame valid once, and a client's store of received tokens.
//!
//! Not here: the content and the encryption of a token, which are quinn-proto's.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use quinn_proto::{
    ServerConfig, TokenLog, TokenMemoryCache, TokenReuseError, TokenStore, ValidationTokenConfig,
    crypto::HandshakeTokenKey,
};
use rustc_hash::FxHashSet;
use uringcore_wire::packet_header::VERSION_2;

use crate::{
    tls::{ConfigError, token_key},
    workarounds::address_token_version::TokenContext,
};

/// The tokens of one client connection. It sends the token that the application has given, or else one that an
/// earlier connection with the same setup has received. Tokens that it receives are stored and reported to the
/// application.
pub(crate) struct ConnectionTokens {
    given: Bytes,
    /// The QUIC version of the application's token. `None`: the token is sent with every version.
    given_version: Option<u32>,
    earlier: Arc<EarlierTokens>,
    /// The connection's QUIC version. A token is valid for connections that begin with the version in which it was
    /// issued (RFC 9369 section 5).
    version: AtomicU32,
    inbox: Mutex<Vec<(Bytes, u32)>>,
}

impl ConnectionTokens {
    pub fn new(
        (given, given_version): (Bytes, Option<u32>),
        earlier: Arc<EarlierTokens>,
        version: u32,
    ) -> Self {
        Self {
            given,
            given_version,
            earlier,
            version: AtomicU32::new(version),
            inbox: Mutex::default(),
        }
    }

    /// Sets the connection's version, which may change until the handshake is complete.
    pub fn set_version(&self, version: u32) {
        self.version.store(version, Ordering::Relaxed);
    }

    fn earlier(&self) -> &TokenMemoryCache {
        match self.version.load(Ordering::Relaxed) {
            VERSION_2 => &self.earlier.v2,
            _ => &self.earlier.v1,
        }
    }

    /// The tokens that have arrived since the last call, each with the QUIC version for which it is valid.
    pub fn take_new(&self) -> Vec<(Bytes, u32)> {
        std::mem::take(&mut *self.inbox.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The tokens that earlier connections of one setup have received, by QUIC version.
#[derive(Default)]
pub(crate) struct EarlierTokens {
    v1: TokenMemoryCache,
    v2: TokenMemoryCache,
}

impl TokenStore for ConnectionTokens {
    fn insert(&self, server_name: &str, token: Bytes) {
        // The token is put into a client's first packet. With a longer token, the packet would have no room for a
        // ClientHello.
        if token.len() > TOKEN_BYTES_MAX {
            return;
        }
        // The token is copied, because a slice would keep its whole packet in memory.
        let token = Bytes::copy_from_slice(&token);
        self.earlier().insert(server_name, token.clone());
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        if inbox.len() < INBOX_MAX {
            inbox.push((token, self.version.load(Ordering::Relaxed)));
        }
    }

    fn take(&self, server_name: &str) -> Option<Bytes> {
        let begun = self.version.load(Ordering::Relaxed);
        let is_for_another = self.given_version.is_some_and(|version| version != begun);
        match self.given.is_empty() || is_for_another {
            true => self.earlier().take(server_name),
            false => Some(self.given.clone()),
        }
    }
}

/// The key that seals and opens a server's tokens, and the log of used tokens.
#[derive(Clone)]
pub(crate) struct ServerTokens {
    pub key: Arc<dyn HandshakeTokenKey>,
    /// True if the application has set the key. Otherwise the key is random.
    is_given: bool,
    used: Arc<UsedTokens>,
}

impl ServerTokens {
    pub fn new(keys: &[Vec<u8>]) -> Result<Self, ConfigError> {
        Ok(Self {
            key: token_key(keys)?,
            is_given: !keys.is_empty(),
            used: Arc::default(),
        })
    }

    /// Returns the tokens of a server whose new settings are `self` and whose old ones are `others`. The log is kept,
    /// and so is a random key.
    pub fn in_place_of(&self, others: &Self) -> Self {
        match self.is_given {
            true => Self {
                used: others.used.clone(),
                ..self.clone()
            },
            false => others.clone(),
        }
    }

    /// Configures quinn-proto to use the key, and to accept each token of a NEW_TOKEN frame once.
    pub fn enter(&self, config: &mut ServerConfig, context: &TokenContext) {
        let mut validation = ValidationTokenConfig::default();
        validation
            .lifetime(NEW_TOKEN_LIFETIME)
            .log(context.log(self.used.clone()))
            .sent(SENT);
        config
            .token_key(context.key(self.key.clone()))
            .retry_token_lifetime(RETRY_TOKEN_LIFETIME)
            .validation_token_config(validation);
    }
}

/// The nonces of used tokens, by the period in which the token was issued. If the log is full a token counts as used,
/// and its client must prove its address as if it had none.
#[derive(Default)]
struct UsedTokens(Mutex<BTreeMap<u64, FxHashSet<u128>>>);

impl TokenLog for UsedTokens {
    fn check_and_insert(
        &self,
        nonce: u128,
        issued: SystemTime,
        lifetime: Duration,
    ) -> Result<(), TokenReuseError> {
        let issued = issued
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_err(|_| TokenReuseError)?;
        let period = issued.as_secs() / lifetime.as_secs().max(1);
        let mut periods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A token is valid for one period. So only tokens of the newest two periods can still be valid, and older ones
        // are dropped.
        if let Some(newest) = periods
            .last_key_value()
            .map(|(newest, _)| *newest.max(&period))
        {
            *periods = periods.split_off(&newest.saturating_sub(1));
        }
        let used = periods.values().map(FxHashSet::len).sum::<usize>();
        match used < USED_MAX && periods.entry(period).or_default().insert(nonce) {
            true => Ok(()),
            false => Err(TokenReuseError),
        }
    }
}

/// The longest token of a client, in bytes. A first packet has at least 1,200, and a ClientHello of about 300 must
/// fit beside the token.
pub(crate) const TOKEN_BYTES_MAX: usize = 600;
/// How long a server accepts the token of a Retry packet. A client uses it at once, each time that it repeats its
/// first packet.
const RETRY_TOKEN_LIFETIME: Duration = Duration::from_secs(15);
/// How long a server accepts the token of a NEW_TOKEN frame: one day.
const NEW_TOKEN_LIFETIME: Duration = Duration::from_secs(86_400);
/// A server sends each client two tokens: one for the next connection, and a spare one.
const SENT: u32 = 2;
const INBOX_MAX: usize = 16;
/// The maximum number of used tokens in the log. A full log has about 2 MiB.
const USED_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use uringcore_wire::packet_header::VERSION_1;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_token_is_accepted_once() {
        let context = TokenContext::default();
        let used = context.log(Arc::new(UsedTokens::default()));
        let check = |nonce, issued| {
            used.check_and_insert(nonce, at(issued), NEW_TOKEN_LIFETIME)
                .is_ok()
        };
        assert!(check(1, 1_000_000));
        assert_eq!(context.take_accepted(), Some(1));
        assert_eq!(context.take_accepted(), None);
        assert!(!check(1, 1_000_000));
        assert_eq!(context.take_accepted(), None);
        assert!(check(2, 1_000_000));
        assert!(check(3, 1_000_000 + 86_400));
        assert!(
            !check(2, 1_000_000),
            "tokens of the last period but one are remembered"
        );
    }

    #[test]
    fn the_log_is_bounded_and_drops_expired_tokens() {
        let used = UsedTokens::default();
        let check = |nonce, issued| {
            used.check_and_insert(nonce, at(issued), NEW_TOKEN_LIFETIME)
                .is_ok()
        };
        for nonce in 0..USED_MAX as u128 {
            assert!(check(nonce, 0));
        }
        assert!(
            !check(u128::MAX, 0),
            "the log is full, so the token counts as used"
        );
        assert!(
            check(u128::MAX, 86_400 * 2),
            "two periods later the log has room"
        );
        assert_eq!(used.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_client_uses_the_given_token_and_reports_new_ones() {
        let earlier = Arc::new(EarlierTokens::default());
        let token = Bytes::from_static(b"given");
        let given = ConnectionTokens::new((token.clone(), None), earlier.clone(), VERSION_1);
        assert_eq!(given.take("a").as_deref(), Some(&b"given"[..]));
        given.insert("a", Bytes::from_static(b"new"));
        given.insert("a", Bytes::from(vec![0; TOKEN_BYTES_MAX + 1]));
        assert_eq!(given.take_new(), [(Bytes::from_static(b"new"), VERSION_1)]);
        assert!(given.take_new().is_empty());
        let other = (token.clone(), Some(VERSION_1));
        let other = ConnectionTokens::new(other, earlier.clone(), VERSION_2);
        assert_eq!(other.take("a"), None, "both tokens are of another version");
        let same = ConnectionTokens::new((token, Some(VERSION_2)), earlier.clone(), VERSION_2);
        assert_eq!(same.take("a").as_deref(), Some(&b"given"[..]));
        let next = ConnectionTokens::new((Bytes::new(), None), earlier, VERSION_1);
        assert_eq!(next.take("b"), None);
        assert_eq!(next.take("a").as_deref(), Some(&b"new"[..]));
        assert_eq!(next.take("a"), None, "never twice");
    }
}
