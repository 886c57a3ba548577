//! The keys of stateless reset tokens (RFC 9000 section 10.3.2).
//!
//! A token ends its connection, so an endpoint must not be able to reset the connections of another live endpoint
//! (section 21.11). Therefore each key is derived from a secret and from the name of the endpoint's socket, and
//! endpoints with one secret have different keys. An endpoint that is restarted with the same socket name has its
//! former key.
//!
//! A peer keeps the tokens that it has got with connection IDs. So an endpoint whose key changes keeps former keys,
//! and resets a connection with the key that was in use when the connection ID was issued. The last byte of an ID,
//! its *mark*, identifies that key. All connections of a server have the same mark, so it links none of them. One
//! packet gets only one reset: an answer under each key would let two servers that reset each other's packets
//! multiply them (section 10.3.3).
//!
//! Not here: the name of a socket, which the application chooses, and several workers on one socket name
//! (`quic::endpoint::connection_id_generator`).

use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::{hkdf, hmac};
use quinn_proto::crypto::{CryptoError, HmacKey};

use crate::tls::random::random_bytes;

/// The keys of an endpoint. quinn-proto makes the tokens of new connection IDs with the current one.
pub(crate) struct ResetKeys {
    current: Arc<CurrentKey>,
    /// The former keys, the newest first. At most [`RESET_KEYS_MAX`] together with the current one.
    former: Vec<ResetKey>,
}

#[derive(Clone)]
struct ResetKey {
    bytes: [u8; 32],
    hmac: hmac::Key,
    mark: u8,
    is_given: bool,
}

struct CurrentKey(RwLock<ResetKey>);

impl ResetKeys {
    /// The keys of the endpoint with the socket name `socket`; the first one is current. Without secrets, a random key.
    pub fn new(secrets: &[[u8; 32]], socket: &[u8]) -> Self {
        let mut keys = secrets
            .iter()
            .map(|secret| ResetKey::derived(secret, socket));
        let current = keys.next().unwrap_or_else(ResetKey::random);
        Self {
            current: Arc::new(CurrentKey(RwLock::new(current))),
            former: keys.take(RESET_KEYS_MAX - 1).collect(),
        }
    }

    /// The current key in the form that quinn-proto needs. After a [`change`](Self::change) it signs with the new key.
    pub fn hmac(&self) -> Arc<dyn HmacKey> {
        self.current.clone()
    }

    /// Replaces the keys. The newest present ones become former keys, [`RESET_KEYS_MAX`] in all. An empty list changes
    /// nothing.
    pub fn change(&mut self, secrets: &[[u8; 32]], socket: &[u8]) {
        if secrets.is_empty() {
            return;
        }
        let mut keys: Vec<ResetKey> = Vec::with_capacity(RESET_KEYS_MAX);
        let given = secrets
            .iter()
            .map(|secret| ResetKey::derived(secret, socket));
        let present = std::iter::once(self.current.get()).chain(self.former.drain(..));
        for key in given.chain(present) {
            if keys.len() < RESET_KEYS_MAX && keys.iter().all(|known| known.bytes != key.bytes) {
                keys.push(key);
            }
        }
        self.former = keys.split_off(1);
        self.current.set(keys.remove(0));
    }

    /// The mark of the current key: the last byte of new connection IDs. `None` for a random key, which no other
    /// process has.
    pub fn mark(&self) -> Option<u8> {
        let current = self.current.get();
        current.is_given.then_some(current.mark)
    }

    pub fn has_former(&self) -> bool {
        !self.former.is_empty()
    }

    /// The token of a connection ID, made with the key of the ID's mark. An ID without such a mark was issued under a
    /// random key. If several keys are possible, because the ID is too short for a mark, one is chosen at random: the
    /// peer will send more packets.
    pub fn token(&self, id: &[u8]) -> [u8; TOKEN_SIZE] {
        let current = self.current.get();
        let keys = || std::iter::once(&current).chain(&self.former);
        let mark = mark_of(id);
        let marked = |key: &&ResetKey| key.is_given && Some(key.mark) == mark;
        let mut found: Vec<&ResetKey> = keys().filter(marked).collect();
        if found.is_empty() {
            found = keys()
                .filter(|key| mark.is_some() && !key.is_given)
                .collect();
        }
        if found.is_empty() {
            found = keys().collect();
        }
        let [random] = random_bytes::<1>();
        found[usize::from(random) % found.len()].token(id)
    }
}

impl ResetKey {
    fn random() -> Self {
        Self::new(random_bytes(), 0, false)
    }

    fn derived(secret: &[u8; 32], socket: &[u8]) -> Self {
        let [mark, ..] = expanded(secret, MARK_LABEL, b"");
        Self::new(expanded(secret, LABEL, socket), mark, true)
    }

    fn new(bytes: [u8; 32], mark: u8, is_given: bool) -> Self {
        Self {
            bytes,
            hmac: hmac::Key::new(hmac::HMAC_SHA256, &bytes),
            mark,
            is_given,
        }
    }

    fn token(&self, id: &[u8]) -> [u8; TOKEN_SIZE] {
        let signature = hmac::sign(&self.hmac, id);
        let mut token = [0; TOKEN_SIZE];
        token.copy_from_slice(&signature.as_ref()[..TOKEN_SIZE]);
        token
    }
}

impl CurrentKey {
    fn get(&self) -> ResetKey {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, key: ResetKey) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = key;
    }
}

impl HmacKey for CurrentKey {
    fn sign(&self, data: &[u8], signature_out: &mut [u8]) {
        let key = self.0.read().unwrap_or_else(PoisonError::into_inner);
        key.hmac.sign(data, signature_out);
    }

    fn signature_len(&self) -> usize {
        let key = self.0.read().unwrap_or_else(PoisonError::into_inner);
        key.hmac.signature_len()
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let key = self.0.read().unwrap_or_else(PoisonError::into_inner);
        HmacKey::verify(&key.hmac, data, signature)
    }
}

/// The mark of a connection ID: its last byte. `None` for a short ID, which needs all of its bytes to be unique.
pub(crate) fn mark_of(id: &[u8]) -> Option<u8> {
    match id.len() {
        MARKED_ID_MIN.. => id.last().copied(),
        _ => None,
    }
}

fn expanded(secret: &[u8; 32], label: &[u8], info: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    hkdf::Salt::new(hkdf::HKDF_SHA256, label)
        .extract(secret)
        .expand(&[info], hkdf::HKDF_SHA256)
        .and_then(|output| output.fill(&mut key))
        .expect("HKDF-SHA256 expands to 32 bytes");
    key
}

const LABEL: &[u8] = b"uringcore stateless reset";
const MARK_LABEL: &[u8] = b"uringcore stateless reset mark";
/// The largest number of keys of an endpoint, former ones included.
pub const RESET_KEYS_MAX: usize = 3;
/// The length of a stateless reset token in bytes (RFC 9000 section 10.3).
pub(crate) const TOKEN_SIZE: usize = 16;
/// The length from which on the last byte of a connection ID is a mark.
const MARKED_ID_MIN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(secrets: &[u8], socket: &[u8]) -> ResetKeys {
        let secrets: Vec<[u8; 32]> = secrets.iter().map(|&byte| [byte; 32]).collect();
        ResetKeys::new(&secrets, socket)
    }

    /// The token that quinn-proto issues with the connection ID.
    fn issued(keys: &ResetKeys, id: &[u8]) -> Vec<u8> {
        let key = keys.hmac();
        let mut signature = vec![0; key.signature_len()];
        key.sign(id, &mut signature);
        signature.truncate(TOKEN_SIZE);
        signature
    }

    /// A connection ID as an endpoint with these keys generates it.
    fn id(keys: &ResetKeys, first: u8) -> Vec<u8> {
        let mut id = vec![first; 8];
        id[7] = keys.mark().unwrap_or(id[7]);
        id
    }

    #[test]
    fn keys_depend_only_on_the_secret_and_the_socket() {
        let token =
            |secrets: &[u8], socket: &[u8]| issued(&keys(secrets, socket), b"connection ID");
        assert_eq!(token(&[7], b"one"), token(&[7], b"one"));
        assert_ne!(token(&[7], b"one"), token(&[7], b"two"));
        assert_ne!(token(&[7], b"one"), token(&[8], b"one"));
        assert_ne!(token(&[], b"one"), token(&[], b"one"));
    }

    #[test]
    fn a_connection_is_reset_with_the_key_of_its_id() {
        let mut changing = keys(&[1], b"socket");
        let mut known = Vec::new();
        for secret in 1..=3 {
            changing.change(&[[secret; 32]], b"socket");
            let id = id(&changing, secret);
            known.push((id.clone(), issued(&changing, &id)));
            for (id, token) in &known {
                assert_eq!(&changing.token(id)[..], token);
            }
        }
        // Another process has the same keys without a change.
        let restarted = keys(&[3, 2, 1], b"socket");
        for (id, token) in &known {
            assert_eq!(&restarted.token(id)[..], token);
        }
        assert!(changing.has_former() && !keys(&[3], b"socket").has_former());
    }

    #[test]
    fn former_keys_are_kept_up_to_the_maximum() {
        let mut changing = keys(&[1], b"socket");
        let first = id(&changing, 1);
        let token = issued(&changing, &first);
        changing.change(&[[2; 32], [3; 32]], b"socket");
        assert_eq!(changing.former.len(), 2);
        changing.change(&[[2; 32], [3; 32]], b"socket");
        assert_eq!(&changing.token(&first)[..], token, "the keys are unchanged");
        changing.change(&[[4; 32]], b"socket");
        assert_eq!(changing.former.len(), 2);
        assert_ne!(&changing.token(&first)[..], token);
        changing.change(&[], b"socket");
        assert_eq!(changing.former.len(), 2);
    }

    #[test]
    fn for_an_id_without_a_mark_each_key_is_chosen_sometimes() {
        let mut changing = keys(&[], b"socket");
        let token = issued(&changing, b"four");
        assert_eq!(changing.mark(), None);
        changing.change(&[[2; 32]], b"socket");
        let chosen = (0..1_000)
            .filter(|_| changing.token(b"four")[..] == token)
            .count();
        assert!((300..700).contains(&chosen), "{chosen} of 1,000");
    }

    #[test]
    fn an_id_without_a_known_mark_belongs_to_a_random_key() {
        let mut changing = keys(&[], b"socket");
        let own = issued(&changing, b"8 bytes.");
        changing.change(&[[2; 32]], b"socket");
        assert_ne!(changing.mark(), Some(b'.'));
        assert_eq!(&changing.token(b"8 bytes.")[..], own);
    }
}
