//! Makes rustls derive keys with the labels of another QUIC version than the one that its session began with.
//!
//! rustls gets the QUIC version when a session begins, and derives all keys with that version's labels (RFC 9369
//! section 3.3.2). But the version may change by compatible negotiation, while 0-RTT keys stay with the original one.
//! So the cipher suites of this crate have a wrapped HKDF. While a [`Scope`] is open on the thread, it replaces the
//! labels of rustls by those of another version. The scope is thread-local, because a cipher suite is static and has
//! no reference to a connection.
//!
//! Assumed of rustls: it derives a key, an IV, a header key and the next secret with the labels of RFC 9001 sections
//! 5.1 and 6.1, or RFC 9369's; and it does so within the call that returns the keys, and in no other (the test in
//! `hkdf_wrapper` checks that).

use std::cell::Cell;

use rustls::{
    SupportedCipherSuite,
    crypto::tls13::{HkdfExpander, OkmBlock, OutputLengthError},
};
use uringcore_wire::packet_header::VERSION_2;

use super::hkdf_wrapper;

/// While a scope is open, rustls derives keys of another QUIC version on this thread.
pub struct Scope {
    before: Option<u32>,
}

impl Scope {
    /// Opens a scope for the labels of `version`. `None` keeps the labels of rustls.
    pub fn open(version: Option<u32>) -> Self {
        Self {
            before: VERSION.replace(version),
        }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        VERSION.set(self.before);
    }
}

thread_local! {
    static VERSION: Cell<Option<u32>> = const { Cell::new(None) };
}

/// A copy of the suite whose HKDF replaces labels while a scope is open.
pub fn with_labels(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    hkdf_wrapper::with_expanders(suite, wrap_in_scope)
}

/// Wraps an expander if a scope is open. rustls uses an expander within the call that creates it, so the scope is the
/// same when the expander is used.
fn wrap_in_scope(expander: Box<dyn HkdfExpander>) -> Box<dyn HkdfExpander> {
    match VERSION.get() {
        Some(version) => Box::new(Expander { expander, version }),
        None => expander,
    }
}

struct Expander {
    expander: Box<dyn HkdfExpander>,
    version: u32,
}

impl HkdfExpander for Expander {
    fn expand_slice(&self, info: &[&[u8]], output: &mut [u8]) -> Result<(), OutputLengthError> {
        match translated(&info.concat(), self.version) {
            Some(info) => self.expander.expand_slice(&[&info], output),
            None => self.expander.expand_slice(info, output),
        }
    }

    fn expand_block(&self, info: &[&[u8]]) -> OkmBlock {
        match translated(&info.concat(), self.version) {
            Some(info) => self.expander.expand_block(&[&info]),
            None => self.expander.expand_block(info),
        }
    }

    fn hash_len(&self) -> usize {
        self.expander.hash_len()
    }
}

/// Replaces the label of a QUIC key by the label of `version`. `info` is an HkdfLabel (RFC 8446 section 7.1): two
/// bytes of length, the label with its length, and the context, which is empty. `None` for any other label.
fn translated(info: &[u8], version: u32) -> Option<Vec<u8>> {
    let (length, rest) = info.split_at_checked(2)?;
    let (count, rest) = rest.split_first()?;
    let (label, context) = rest.split_at_checked(usize::from(*count))?;
    let label = label.strip_prefix(PREFIX)?;
    let name = label
        .strip_prefix(b"quicv2 ")
        .or_else(|| label.strip_prefix(b"quic "))
        .filter(|name| NAMES.contains(name))?;
    let family: &[u8] = match version {
        VERSION_2 => b"quicv2 ",
        _ => b"quic ",
    };
    let label = [PREFIX, family, name].concat();
    let mut result = length.to_vec();
    result.push(u8::try_from(label.len()).ok()?);
    result.extend(label);
    result.extend(context);
    Some(result)
}

const PREFIX: &[u8] = b"tls13 ";
const NAMES: [&[u8]; 4] = [b"key", b"iv", b"hp", b"ku"];

#[cfg(test)]
mod tests {
    use rustls::{
        Side, Tls13CipherSuite,
        crypto::{aws_lc_rs::cipher_suite, cipher::Iv},
        quic,
    };

    use super::*;

    fn info(label: &[u8]) -> Vec<u8> {
        let mut info = vec![0, 16, 6 + label.len() as u8];
        info.extend(b"tls13 ");
        info.extend(label);
        info.push(0);
        info
    }

    #[test]
    fn only_labels_of_quic_keys_are_translated() {
        for name in ["key", "iv", "hp", "ku"] {
            let v1 = info(format!("quic {name}").as_bytes());
            let v2 = info(format!("quicv2 {name}").as_bytes());
            assert_eq!(translated(&v1, VERSION_2).as_ref(), Some(&v2));
            assert_eq!(translated(&v2, 1), Some(v1));
            assert_eq!(translated(&v2, VERSION_2).as_ref(), Some(&v2));
        }
        for label in ["c hs traffic", "key", "quic x", "quicv3 key"] {
            assert_eq!(translated(&info(label.as_bytes()), VERSION_2), None);
        }
        assert_eq!(translated(&[0, 16, 99], VERSION_2), None);
    }

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect()
    }

    fn chacha() -> &'static Tls13CipherSuite {
        let suite = with_labels(cipher_suite::TLS13_CHACHA20_POLY1305_SHA256);
        suite.tls13().unwrap()
    }

    fn expand(expander: &dyn HkdfExpander, label: &str, length: usize) -> Vec<u8> {
        let mut info = info(label.as_bytes());
        info[1] = length as u8;
        let mut output = vec![0; length];
        expander.expand_slice(&[&info], &mut output).unwrap();
        output
    }

    /// The example of RFC 9369 appendix A.5.
    #[test]
    fn keys_are_those_of_rfc_9369s_example() {
        let secret = hex("9ac312a7f877468ebe69422748ad00a15443f18203a07d6060f688f30f21632b");
        let _scope = Scope::open(Some(VERSION_2));
        let expander = chacha()
            .hkdf_provider
            .expander_for_okm(&OkmBlock::new(&secret));
        for (label, expected) in [
            (
                "quic key",
                "3bfcddd72bcf02541d7fa0dd1f5f9eeea817e09a6963a0e6c7df0f9a1bab90f2",
            ),
            ("quic iv", "a6b5bc6ab7dafce30ffff5dd"),
            (
                "quic hp",
                "d659760d2ba434a226fd37b35c69e2da8211d10c4f12538787d65645d5d1b8e2",
            ),
            (
                "quic ku",
                "c69374c49e3d2a9466fa689e49d476db5d0dfbc87d32ceeaa6343fd0ae4c7d88",
            ),
        ] {
            let expected = hex(expected);
            assert_eq!(
                expand(&*expander, label, expected.len()),
                expected,
                "{label}"
            );
        }
    }

    /// Compares keys that rustls makes in a scope, with the salt of version 1 and the labels of version 2, with keys
    /// that the test derives itself. Fails if rustls changes how it derives keys.
    #[test]
    fn bare_rustls_makes_keys_with_the_labels_of_the_scope() {
        let (suite, cid) = (chacha(), [1; 8]);
        let algorithm = suite.quic.unwrap();
        let seal = |key: &dyn quic::PacketKey| {
            let mut payload = [0; 16];
            let tag = key.encrypt_in_place(1, &[], &mut payload).unwrap();
            (payload, tag.as_ref().to_vec())
        };
        let mask = |key: &dyn quic::HeaderProtectionKey| {
            let (mut first, mut number) = (0x40, [0; 4]);
            key.encrypt_in_place(&[5; 16], &mut first, &mut number)
                .unwrap();
            (first, number)
        };
        let made = |version| {
            let initial = quic::Suite {
                suite,
                quic: algorithm,
            };
            let keys = initial.keys(&cid, Side::Client, version).local;
            (seal(&*keys.packet), mask(&*keys.header))
        };
        let salt = hex("38762cf7f55934b34d179ae6a4c80cadccbb7f0a");
        let initial = suite.hkdf_provider.extract_from_secret(Some(&salt), &cid);
        let secret = OkmBlock::new(&expand(&*initial, "client in", 32));
        let secret = suite.hkdf_provider.expander_for_okm(&secret);
        let by_hand = |family| {
            let part = |name, length| expand(&*secret, &format!("{family} {name}"), length);
            let key: [u8; 32] = part("key", 32).try_into().unwrap();
            let iv: [u8; 12] = part("iv", 12).try_into().unwrap();
            let hp: [u8; 32] = part("hp", 32).try_into().unwrap();
            (
                seal(&*algorithm.packet_key(key.into(), Iv::new(iv))),
                mask(&*algorithm.header_protection_key(hp.into())),
            )
        };
        assert_eq!(made(quic::Version::V1), by_hand("quic"));
        let scope = Scope::open(Some(VERSION_2));
        assert_eq!(made(quic::Version::V1), by_hand("quicv2"));
        drop(scope);
        assert_eq!(made(quic::Version::V1), by_hand("quic"));
    }
}
