//! The key of stateless reset tokens (RFC 9000 section 10.3.2).
//!
//! A token ends its connection, so an endpoint must not reset the connection of another live endpoint (section
//! 21.11). Endpoints with one secret therefore have different keys: each key is derived from the secret and the
//! name of the endpoint's socket. An endpoint that is restarted on the same socket name has its former key.
//!
//! Not here: the name of a socket (the host's), and several workers on one socket name
//! (`quic::endpoint::connection_ids`).

use std::sync::Arc;

use aws_lc_rs::{hkdf, hmac};
use quinn_proto::crypto::HmacKey;

use crate::tls::random::random_bytes;

/// The reset key of the endpoint on `socket`; a random key without a secret.
pub(crate) fn reset_key(secret: Option<[u8; 32]>, socket: &[u8]) -> Arc<dyn HmacKey> {
    let key = secret.map_or_else(random_bytes, |secret| derived(secret, socket));
    Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &key))
}

fn derived(secret: [u8; 32], socket: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    hkdf::Salt::new(hkdf::HKDF_SHA256, LABEL)
        .extract(&secret)
        .expand(&[socket], hkdf::HKDF_SHA256)
        .and_then(|output| output.fill(&mut key))
        .expect("HKDF-SHA256 expands to 32 bytes");
    key
}

const LABEL: &[u8] = b"uringcore stateless reset";

#[cfg(test)]
mod tests {
    use super::*;

    fn token(secret: Option<[u8; 32]>, socket: &[u8]) -> Vec<u8> {
        let key = reset_key(secret, socket);
        let mut signature = vec![0; key.signature_len()];
        key.sign(b"connection ID", &mut signature);
        signature
    }

    #[test]
    fn keys_differ_by_secret_and_by_socket_and_by_nothing_else() {
        let secret = Some([7; 32]);
        assert_eq!(token(secret, b"one"), token(secret, b"one"));
        assert_ne!(token(secret, b"one"), token(secret, b"two"));
        assert_ne!(token(secret, b"one"), token(Some([8; 32]), b"one"));
        assert_ne!(token(None, b"one"), token(None, b"one"));
    }
}
