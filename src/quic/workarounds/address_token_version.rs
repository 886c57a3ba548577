//! The QUIC version for which address validation tokens are sealed and opened, and the token that was accepted last.
//!
//! A token is sealed together with its QUIC version, and does not open for another one (RFC 9369 section 5). But
//! quinn-proto passes only a nonce to its token key, and does not report which token it has accepted. So the endpoint
//! sets the version before it calls quinn-proto, and takes the accepted nonce after the call.
//!
//! Assumed of quinn-proto: it opens the token of a first packet, and queries the log about it, within
//! `Endpoint::handle`; it seals a Retry's token within `Endpoint::retry`, and those of NEW_TOKEN frames within
//! `Connection::poll_transmit`.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime},
};

use quinn_proto::{
    TokenLog, TokenReuseError,
    crypto::{AeadKey, CryptoError, HandshakeTokenKey},
};

/// The state that an endpoint, its token key and its log of used tokens share.
#[derive(Clone, Default)]
pub struct TokenContext(Arc<Shared>);

#[derive(Default)]
struct Shared {
    version: AtomicU32,
    accepted: Mutex<Option<u128>>,
}

impl TokenContext {
    /// Sets the QUIC version of the packet that the next call of quinn-proto handles.
    pub fn set(&self, version: u32) {
        self.0.version.store(version, Ordering::Relaxed);
    }

    /// The nonce of the token that quinn-proto has accepted since the last call.
    pub fn take_accepted(&self) -> Option<u128> {
        self.accepted().take()
    }

    /// Wraps `key`, so that it seals and opens tokens for the version that was set.
    pub fn key(&self, key: Arc<dyn HandshakeTokenKey>) -> Arc<dyn HandshakeTokenKey> {
        Arc::new(Key(key, self.clone()))
    }

    /// Wraps `log`, so that nonces of accepted tokens are recorded here.
    pub fn log(&self, log: Arc<dyn TokenLog>) -> Arc<dyn TokenLog> {
        Arc::new(Log(log, self.clone()))
    }

    fn accepted(&self) -> std::sync::MutexGuard<'_, Option<u128>> {
        self.0
            .accepted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

struct Key(Arc<dyn HandshakeTokenKey>, TokenContext);

impl HandshakeTokenKey for Key {
    fn aead_from_hkdf(&self, random_bytes: &[u8]) -> Box<dyn AeadKey> {
        let key = self.0.aead_from_hkdf(random_bytes);
        Box::new(Aead(key, self.1.clone()))
    }
}

struct Aead(Box<dyn AeadKey>, TokenContext);

impl AeadKey for Aead {
    fn seal(&self, data: &mut Vec<u8>, additional_data: &[u8]) -> Result<(), CryptoError> {
        let version = self.1.0.version.load(Ordering::Relaxed);
        self.0.seal(data, &with_version(additional_data, version))
    }

    fn open<'a>(
        &self,
        data: &'a mut [u8],
        additional_data: &[u8],
    ) -> Result<&'a mut [u8], CryptoError> {
        let version = self.1.0.version.load(Ordering::Relaxed);
        self.0.open(data, &with_version(additional_data, version))
    }
}

fn with_version(additional_data: &[u8], version: u32) -> Vec<u8> {
    [additional_data, &version.to_be_bytes()].concat()
}

struct Log(Arc<dyn TokenLog>, TokenContext);

impl TokenLog for Log {
    fn check_and_insert(
        &self,
        nonce: u128,
        issued: SystemTime,
        lifetime: Duration,
    ) -> Result<(), TokenReuseError> {
        self.0.check_and_insert(nonce, issued, lifetime)?;
        *self.1.accepted() = Some(nonce);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use uringcore_wire::packet_header::{VERSION_1, VERSION_2};

    use super::*;
    use crate::workarounds::bare_quinn::BareQuinn;

    #[test]
    fn a_token_opens_for_the_version_that_it_was_sealed_for() {
        let context = TokenContext::default();
        let salt = aws_lc_rs::hkdf::Salt::new(aws_lc_rs::hkdf::HKDF_SHA256, &[]);
        let key = context.key(Arc::new(salt.extract(&[7; 64])));
        for (sealed, opened) in [
            (VERSION_1, VERSION_1),
            (VERSION_1, VERSION_2),
            (VERSION_2, VERSION_1),
            (VERSION_2, VERSION_2),
        ] {
            let mut data = b"token".to_vec();
            context.set(sealed);
            key.aead_from_hkdf(b"nonce").seal(&mut data, &[]).unwrap();
            context.set(opened);
            let result = key.aead_from_hkdf(b"nonce").open(&mut data, &[]).is_ok();
            assert_eq!(result, sealed == opened, "{sealed:x} {opened:x}");
        }
    }

    /// The server's operations on tokens, in order. Consecutive equal entries are merged.
    fn steps(bare: &BareQuinn) -> Vec<&'static str> {
        let mut steps = std::mem::take(&mut *bare.server.tokens.lock().unwrap());
        let mut last = "";
        steps.retain(|step| std::mem::replace(&mut last, step) != *step);
        steps
    }

    #[test]
    fn bare_quinn_uses_tokens_only_within_the_documented_calls() {
        let mut bare = BareQuinn::begin(VERSION_1, quinn_proto::TransportConfig::default());
        bare.server.retries = true;
        let first_flight = bare.client.transmit(bare.now);
        bare.server_gets(&first_flight[0]);
        assert_eq!(steps(&bare), ["handle", "handled", "seal"], "in `retry`");
        let retry = bare.server.transmit(bare.now);
        bare.client_gets(&retry[0]);
        let first_flight = bare.client.transmit(bare.now);
        bare.server_gets(&first_flight[0]);
        assert_eq!(steps(&bare), ["handle", "open", "handled"]);
        bare.exchange();
        let seals = steps(&bare);
        let at = seals.iter().position(|step| *step == "seal").unwrap();
        assert_eq!(seals[at - 1], "transmit", "a NEW_TOKEN frame: {seals:?}");
        bare.server.retries = false;
        bare.dial();
        let first_flight = bare.client.transmit(bare.now);
        steps(&bare);
        bare.server_gets(&first_flight[0]);
        assert_eq!(steps(&bare), ["handle", "open", "ask", "handled"]);
    }
}
