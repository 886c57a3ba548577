//! Address validation tokens: how long a server accepts those of Retry packets and of NEW_TOKEN frames (RFC 9000
//! sections 8.1.2 and 8.1.3), its log of the latter, which enforces single use, and a client's store of them.
//!
//! Not here: the content and authenticity of a token, which the state machine handles.

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
use uringcore_wire::header::VERSION_2;

use crate::{
    seams::address_token_context::TokenContext,
    tls::{ConfigError, token_key},
};

/// The tokens of one client connection: the host's token, or else one of earlier connections with the same setup;
/// and received tokens, which are reported to the host as well.
pub(crate) struct ConnectionTokens {
    given: Bytes,
    /// The version of the host's token; `None`: the host guarantees that it fits.
    given_version: Option<u32>,
    earlier: Arc<EarlierTokens>,
    /// The connection's version. A token is for connections that begin with the version that it was issued in (RFC
    /// 9369 section 5).
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

    /// The version may change until the handshake is complete.
    pub fn set_version(&self, version: u32) {
        self.version.store(version, Ordering::Relaxed);
    }

    fn earlier(&self) -> &TokenMemoryCache {
        match self.version.load(Ordering::Relaxed) {
            VERSION_2 => &self.earlier.v2,
            _ => &self.earlier.v1,
        }
    }

    /// The tokens received since the last call, and their versions.
    pub fn take_new(&self) -> Vec<(Bytes, u32)> {
        std::mem::take(&mut *self.inbox.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The tokens of earlier connections with one setup, by version.
#[derive(Default)]
pub(crate) struct EarlierTokens {
    v1: TokenMemoryCache,
    v2: TokenMemoryCache,
}

impl TokenStore for ConnectionTokens {
    fn insert(&self, server_name: &str, token: Bytes) {
        // A token that leaves no room for a ClientHello beside it is useless.
        if token.len() > TOKEN_BYTES_MAX {
            return;
        }
        // Copied, because a stored slice would pin its packet.
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

/// A server's token key, and its log of used tokens.
#[derive(Clone)]
pub(crate) struct ServerTokens {
    pub key: Arc<dyn HandshakeTokenKey>,
    /// True if the host gave the key; otherwise it is random.
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

    /// Returns the keys for a server that replaces one with `others`: a random key is kept.
    pub fn in_place_of(&self, others: &Self) -> Self {
        match self.is_given {
            true => Self {
                used: others.used.clone(),
                ..self.clone()
            },
            false => others.clone(),
        }
    }

    /// Makes a server seal and open tokens with the key, and accept each once.
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

/// A log of used tokens, by the period in which they were issued. Exact as long as there is room; if it is full, a
/// token counts as used, and its client has to prove its address as if it had none.
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
        // A token is valid for one period, so tokens of more than one period before the newest have expired.
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

/// A packet has at least 1,200 bytes, and a ClientHello of 300 should fit in the first.
pub(crate) const TOKEN_BYTES_MAX: usize = 600;
/// How long a server accepts a token of its Retry packets, which a client uses at once, and as often as it repeats its
/// first packet.
const RETRY_TOKEN_LIFETIME: Duration = Duration::from_secs(15);
/// How long a server accepts a token of its NEW_TOKEN frames.
const NEW_TOKEN_LIFETIME: Duration = Duration::from_secs(86_400);
/// How many tokens a server gives a client: one for its next connection, and a spare one.
const SENT: u32 = 2;
const INBOX_MAX: usize = 16;
/// About 2 MiB.
const USED_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use uringcore_wire::header::VERSION_1;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_token_is_good_once() {
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
            "the period before the newest is remembered"
        );
    }

    #[test]
    fn the_log_is_bounded_and_forgets_what_is_dead() {
        let used = UsedTokens::default();
        let check = |nonce, issued| {
            used.check_and_insert(nonce, at(issued), NEW_TOKEN_LIFETIME)
                .is_ok()
        };
        for nonce in 0..USED_MAX as u128 {
            assert!(check(nonce, 0));
        }
        assert!(!check(u128::MAX, 0), "full: counts as used");
        assert!(
            check(u128::MAX, 86_400 * 2),
            "two periods later there is room"
        );
        assert_eq!(used.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_clients_token_is_the_given_one_and_new_ones_are_told() {
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
        assert_eq!(other.take("a"), None, "both came with another version");
        let same = ConnectionTokens::new((token, Some(VERSION_2)), earlier.clone(), VERSION_2);
        assert_eq!(same.take("a").as_deref(), Some(&b"given"[..]));
        let next = ConnectionTokens::new((Bytes::new(), None), earlier, VERSION_1);
        assert_eq!(next.take("b"), None);
        assert_eq!(next.take("a").as_deref(), Some(&b"new"[..]));
        assert_eq!(next.take("a"), None, "never twice");
    }
}
