//! The keys that seal address validation tokens (RFC 9000 section 8.1.4).
//!
//! The first key seals tokens, and all of them open tokens, so that keys can be replaced while tokens are in use. The
//! keys are not bound to a socket's name, unlike those of stateless resets (`stateless_reset_keys`), because a token
//! proves its client's address at any server.
//!
//! Not here: the data that is authenticated with a token (`workarounds::address_token_version`).

use std::sync::Arc;

use aws_lc_rs::hkdf;
use quinn_proto::crypto::{AeadKey, CryptoError, HandshakeTokenKey};

use crate::tls::{ConfigError, random::random_bytes};

/// Creates keys from secrets of at least 32 bytes each. If there are no secrets, creates a random key.
pub(crate) fn token_key(secrets: &[Vec<u8>]) -> Result<Arc<dyn HandshakeTokenKey>, ConfigError> {
    if secrets.iter().any(|secret| secret.len() < SECRET_MIN) {
        let message = format!("must have at least {SECRET_MIN} bytes");
        return Err(ConfigError::new("token_key", message));
    }
    let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]);
    let secrets = secrets.iter().map(|secret| salt.extract(secret));
    let mut keys: Vec<_> = secrets.collect();
    if keys.is_empty() {
        keys.push(salt.extract(&random_bytes::<64>()));
    }
    Ok(Arc::new(TokenKeys(keys)))
}

struct TokenKeys(Vec<hkdf::Prk>);

impl HandshakeTokenKey for TokenKeys {
    fn aead_from_hkdf(&self, random_bytes: &[u8]) -> Box<dyn AeadKey> {
        let keys = self.0.iter().map(|key| key.aead_from_hkdf(random_bytes));
        Box::new(AnyKey(keys.collect()))
    }
}

struct AnyKey(Vec<Box<dyn AeadKey>>);

impl AeadKey for AnyKey {
    fn seal(&self, data: &mut Vec<u8>, additional_data: &[u8]) -> Result<(), CryptoError> {
        match self.0.first() {
            Some(key) => key.seal(data, additional_data),
            None => Err(CryptoError),
        }
    }

    fn open<'a>(
        &self,
        data: &'a mut [u8],
        additional_data: &[u8],
    ) -> Result<&'a mut [u8], CryptoError> {
        // Opening with a wrong key overwrites the data, so each attempt needs a fresh copy.
        let sealed = data.to_vec();
        for key in &self.0 {
            data.copy_from_slice(&sealed);
            if let Ok(length) = key.open(data, additional_data).map(|opened| opened.len()) {
                return Ok(&mut data[..length]);
            }
        }
        Err(CryptoError)
    }
}

const SECRET_MIN: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_a_former_key_opens_until_that_key_is_removed() {
        let (old, new) = (vec![1; 32], vec![2; 64]);
        let before = token_key(std::slice::from_ref(&old)).unwrap();
        let between = token_key(&[new.clone(), old]).unwrap();
        let after = token_key(&[new]).unwrap();
        let seal = |key: &Arc<dyn HandshakeTokenKey>| {
            let mut data = b"token".to_vec();
            key.aead_from_hkdf(b"nonce").seal(&mut data, &[]).unwrap();
            data
        };
        let opens = |key: &Arc<dyn HandshakeTokenKey>, mut data: Vec<u8>| {
            let key = key.aead_from_hkdf(b"nonce");
            key.open(&mut data, &[])
                .is_ok_and(|opened| opened == b"token")
        };
        assert!(opens(&before, seal(&before)));
        assert!(opens(&between, seal(&before)));
        assert!(opens(&after, seal(&between)), "the first key seals");
        assert!(!opens(&after, seal(&before)));
        assert!(!opens(&token_key(&[]).unwrap(), seal(&before)));
    }

    #[test]
    fn a_short_secret_is_refused() {
        assert_eq!(token_key(&[vec![0; 31]]).err().unwrap().field, "token_key");
    }
}
