//! Ed448 (RFC 8032 section 5.2), which aws-lc lacks: keys that sign handshakes, and an algorithm that verifies
//! signatures of handshakes and certificates.
//!
//! The crate crrl does the arithmetic, in constant time. Only Ed448 keys of the application and Ed448 certificates of
//! peers use it.

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use crrl::ed448::{PrivateKey, PublicKey};
use rustls::{
    Error, SignatureAlgorithm, SignatureScheme,
    crypto::{CryptoProvider, KeyProvider, WebPkiSupportedAlgorithms, aws_lc_rs as provider},
    pki_types::{
        AlgorithmIdentifier, InvalidSignature, PrivateKeyDer, SignatureVerificationAlgorithm,
        SubjectPublicKeyInfoDer, alg_id,
    },
    sign::{Signer, SigningKey},
};

const SEED_BYTES: usize = 57;
/// DER: the AlgorithmIdentifier, and the headers of an OCTET STRING in an OCTET STRING, which contains the seed (RFC
/// 8410 section 7).
const ALGORITHM_AND_SEED: &[u8] = &[
    0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x71, 0x04, 0x3b, 0x04, 0x39,
];
/// The DER prefix of a public key, whose 57 bytes follow (RFC 8410 section 4).
const PUBLIC_KEY_INFO: &[u8] = &[
    0x30, 0x43, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x71, 0x03, 0x3a, 0x00,
];

/// aws-lc's provider with Ed448 as its last algorithm.
pub(in crate::tls) fn provider_with_ed448() -> CryptoProvider {
    CryptoProvider {
        key_provider: &Keys,
        signature_verification_algorithms: *ALGORITHMS,
        ..provider::default_provider()
    }
}

static ALGORITHMS: LazyLock<WebPkiSupportedAlgorithms> = LazyLock::new(|| {
    let known = provider::default_provider().signature_verification_algorithms;
    let mut all = known.all.to_vec();
    all.push(&Ed448);
    let mut mapping = known.mapping.to_vec();
    mapping.push((SignatureScheme::ED448, &[&Ed448]));
    // rustls requires static lists, so they are leaked, once in a process.
    WebPkiSupportedAlgorithms {
        all: all.leak(),
        mapping: mapping.leak(),
    }
});

#[derive(Debug)]
struct Ed448;

impl SignatureVerificationAlgorithm for Ed448 {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        // RFC 8446 section 4.2.3: Ed448 without a prehash, and with an empty context.
        match PublicKey::decode(public_key) {
            Some(key) if key.verify_raw(signature, message) => Ok(()),
            _ => Err(InvalidSignature),
        }
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ED448
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ED448
    }
}

#[derive(Debug)]
struct Keys;

impl KeyProvider for Keys {
    fn load_private_key(&self, der: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        match &der {
            PrivateKeyDer::Pkcs8(pkcs8) => match seed_in(pkcs8.secret_pkcs8_der()) {
                Some(seed) => Ok(Arc::new(Key(Arc::new(PrivateKey::from_seed(seed))))),
                None => provider::default_provider()
                    .key_provider
                    .load_private_key(der),
            },
            _ => provider::default_provider()
                .key_provider
                .load_private_key(der),
        }
    }
}

/// The seed in a PKCS #8 key of version 1 or 2. After the seed, version 2 may have a public key.
fn seed_in(der: &[u8]) -> Option<&[u8]> {
    let (length, body) = match der {
        [0x30, 0x81, length, body @ ..] => (*length, body),
        [0x30, length @ ..=0x7f, body @ ..] => (*length, body),
        _ => return None,
    };
    if body.len() != usize::from(length) {
        return None;
    }
    let (version, rest) = match body {
        [0x02, 0x01, version @ (0 | 1), rest @ ..] => (*version, rest),
        _ => return None,
    };
    let (seed, rest) = rest
        .strip_prefix(ALGORITHM_AND_SEED)?
        .split_at_checked(SEED_BYTES)?;
    (version == 1 || rest.is_empty()).then_some(seed)
}

#[derive(Clone)]
struct Key(Arc<PrivateKey>);

impl SigningKey for Key {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        match offered.contains(&SignatureScheme::ED448) {
            true => Some(Box::new(self.clone())),
            false => None,
        }
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        let key = self.0.public_key.encode();
        Some([PUBLIC_KEY_INFO, &key].concat().into())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED448
    }
}

impl Signer for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(self.0.sign_raw(message).to_vec())
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED448
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(Ed448)")
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::PrivatePkcs8KeyDer;

    use super::*;

    /// The test vector of RFC 8032 section 7.4 with a message of one octet.
    const SEED: &str = "c4eab05d357007c632f3dbb48489924d552b08fe0c353a0d4a1f00acda2c463afbea67c5e8d2877c5e3bc397a659949ef8021e954e0a12274e";
    const PUBLIC: &str = "43ba28f430cdff456ae531545f7ecd0ac834a55d9358c0372bfa0c6c6798c0866aea01eb00742802b8438ea4cb82169c235160627b4c3a9480";
    const SIGNATURE: &str = "26b8f91727bd62897af15e41eb43c377efb9c610d48f2335cb0bd0087810f4352541b143c4b981b7e18f62de8ccdf633fc1bf037ab7cd779805e0dbcc0aae1cbcee1afb2e027df36bc04dcecbf154336c19f0af7e0a6472905e799f1953d2a0ff3348ab21aa4adafd1d234441cf807c03a00";

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digits).collect()
    }

    fn pkcs8(version: u8, more: &[u8]) -> Vec<u8> {
        let body = [&[2, 1, version], ALGORITHM_AND_SEED, &bytes(SEED), more].concat();
        let length = u8::try_from(body.len()).unwrap();
        let header: &[u8] = match length {
            ..=0x7f => &[0x30, length],
            _ => &[0x30, 0x81, length],
        };
        [header, &body].concat()
    }

    fn loaded(der: Vec<u8>) -> Result<Arc<dyn SigningKey>, Error> {
        let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(der));
        provider_with_ed448().key_provider.load_private_key(der)
    }

    #[test]
    fn an_ed448_key_signs_like_the_rfcs_test_vector() {
        let with_public_key = [&[0x81, 0x3a, 0x00], &bytes(PUBLIC)[..]].concat();
        for der in [pkcs8(0, &[]), pkcs8(1, &[]), pkcs8(1, &with_public_key)] {
            let key = loaded(der).unwrap();
            assert_eq!(key.algorithm(), SignatureAlgorithm::ED448);
            assert!(key.choose_scheme(&[SignatureScheme::ED25519]).is_none());
            let signer = key.choose_scheme(&[SignatureScheme::ED448]).unwrap();
            assert_eq!(signer.sign(&[3]).unwrap(), bytes(SIGNATURE));
            assert!(key.public_key().unwrap().ends_with(&bytes(PUBLIC)));
        }
        let verify = |message, signature: &[u8]| {
            Ed448
                .verify_signature(&bytes(PUBLIC), message, signature)
                .is_ok()
        };
        let signature = bytes(SIGNATURE);
        assert!(verify(&[3], &signature));
        assert!(!verify(&[4], &signature));
        assert!(!verify(&[3], &signature[..113]));
        assert!(
            Ed448
                .verify_signature(&[0xff; 57], &[3], &signature)
                .is_err()
        );
    }

    #[test]
    fn other_keys_are_left_to_aws_lc() {
        let mut cut = pkcs8(0, &[]);
        cut.pop();
        for der in [pkcs8(0, &[0]), cut, Vec::new(), vec![0x30, 0x80]] {
            assert_eq!(seed_in(&der), None);
            assert!(loaded(der).is_err());
        }
        let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let key = loaded(other.serialize_der()).unwrap();
        assert_eq!(key.algorithm(), SignatureAlgorithm::ED25519);
    }
}
