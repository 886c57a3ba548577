//! Wraps the HKDF of cipher suites.
//!
//! rustls does not expose the secrets of session tickets, and it derives keys with the labels of the QUIC version
//! that a session began with. Both derivations use the HKDF of the cipher suite, which is public and can be replaced.
//!
//! Assumed of rustls: it derives QUIC's keys, and the secrets of tickets, by an expander from `expander_for_okm`, and
//! uses the expander within the call that creates it; the fields of a suite are public. Not here: the uses of the
//! wrapper (`session_export`, `hkdf_labels`).

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use rustls::{
    CipherSuiteCommon, Error, SupportedCipherSuite, Tls13CipherSuite,
    crypto::{
        ActiveKeyExchange, hmac,
        tls13::{Hkdf, HkdfExpander, OkmBlock},
    },
};

/// A function that wraps an expander before rustls gets it.
pub type Wrap = fn(Box<dyn HkdfExpander>) -> Box<dyn HkdfExpander>;

/// A copy of `suite` whose `expander_for_okm` is wrapped. rustls requires suites to be static, so each copy is made
/// once in a process and never freed.
pub fn with_expanders(suite: SupportedCipherSuite, wrap: Wrap) -> SupportedCipherSuite {
    /// The copies, by the addresses of the suite and of the function.
    static MADE: Mutex<BTreeMap<(usize, usize), &'static Tls13CipherSuite>> =
        Mutex::new(BTreeMap::new());
    let SupportedCipherSuite::Tls13(inner) = suite else {
        return suite;
    };
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (std::ptr::from_ref(inner).addr(), wrap as usize);
    let copy = made
        .entry(key)
        .or_insert_with(|| Box::leak(Box::new(wrapped(inner, wrap))));
    SupportedCipherSuite::Tls13(copy)
}

fn wrapped(suite: &'static Tls13CipherSuite, wrap: Wrap) -> Tls13CipherSuite {
    let inner = suite.hkdf_provider;
    Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: suite.common.suite,
            hash_provider: suite.common.hash_provider,
            confidentiality_limit: suite.common.confidentiality_limit,
        },
        hkdf_provider: Box::leak(Box::new(Wrapped { inner, wrap })),
        aead_alg: suite.aead_alg,
        quic: suite.quic,
    }
}

struct Wrapped {
    inner: &'static dyn Hkdf,
    wrap: Wrap,
}

impl Hkdf for Wrapped {
    fn extract_from_zero_ikm(&self, salt: Option<&[u8]>) -> Box<dyn HkdfExpander> {
        self.inner.extract_from_zero_ikm(salt)
    }

    fn extract_from_secret(&self, salt: Option<&[u8]>, secret: &[u8]) -> Box<dyn HkdfExpander> {
        self.inner.extract_from_secret(salt, secret)
    }

    fn extract_from_kx_shared_secret(
        &self,
        salt: Option<&[u8]>,
        kx: Box<dyn ActiveKeyExchange>,
        peer_pub_key: &[u8],
    ) -> Result<Box<dyn HkdfExpander>, Error> {
        self.inner
            .extract_from_kx_shared_secret(salt, kx, peer_pub_key)
    }

    /// The expander for QUIC's keys and for ticket secrets. rustls derives ticket secrets from the resumption master
    /// secret, which is an OKM block, too.
    fn expander_for_okm(&self, okm: &OkmBlock) -> Box<dyn HkdfExpander> {
        (self.wrap)(self.inner.expander_for_okm(okm))
    }

    fn hmac_sign(&self, key: &OkmBlock, message: &[u8]) -> hmac::Tag {
        self.inner.hmac_sign(key, message)
    }

    fn fips(&self) -> bool {
        self.inner.fips()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        cell::{Cell, RefCell},
        sync::Arc,
    };

    use rustls::{
        crypto::{aws_lc_rs::cipher_suite, tls13::OutputLengthError},
        pki_types::ServerName,
        quic::{ClientConnection, KeyChange, ServerConnection, Version},
    };

    use crate::workarounds::bare_quinn;

    thread_local! {
        /// The labels that expanders have used.
        static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
        static ALIVE: Cell<usize> = const { Cell::new(0) };
    }

    struct Recording(Box<dyn HkdfExpander>);

    impl Recording {
        fn made(expander: Box<dyn HkdfExpander>) -> Box<dyn HkdfExpander> {
            ALIVE.set(ALIVE.get() + 1);
            Box::new(Self(expander))
        }

        fn note(info: &[&[u8]]) {
            let info = info.concat();
            let label = &info[3..][..usize::from(info[2])];
            SEEN.with_borrow_mut(|seen| seen.push(String::from_utf8_lossy(label).into_owned()));
        }
    }

    impl Drop for Recording {
        fn drop(&mut self) {
            ALIVE.set(ALIVE.get() - 1);
        }
    }

    impl HkdfExpander for Recording {
        fn expand_slice(&self, info: &[&[u8]], out: &mut [u8]) -> Result<(), OutputLengthError> {
            Self::note(info);
            self.0.expand_slice(info, out)
        }

        fn expand_block(&self, info: &[&[u8]]) -> OkmBlock {
            Self::note(info);
            self.0.expand_block(info)
        }

        fn hash_len(&self) -> usize {
            self.0.hash_len()
        }
    }

    /// The labels of QUIC keys and of tickets that the last call of rustls has used, each once.
    fn seen() -> Vec<String> {
        assert_eq!(ALIVE.get(), 0, "an expander outlives the call of rustls");
        let mut seen = SEEN.take();
        seen.retain(|label| label.starts_with("tls13 quic") || label == "tls13 resumption");
        seen.sort();
        seen.dedup();
        seen
    }

    #[test]
    fn bare_rustls_uses_an_expander_only_within_one_call() {
        let plain = cipher_suite::TLS13_AES_128_GCM_SHA256;
        let suite = with_expanders(plain, Recording::made);
        let (client, server) = bare_quinn::tls(vec![suite]);
        let name = ServerName::try_from("localhost").unwrap();
        let (client, server) = (Arc::new(client), Arc::new(server));
        let mut client = ClientConnection::new(client, Version::V1, name, vec![]).unwrap();
        let mut server = ServerConnection::new(server, Version::V1, vec![]).unwrap();
        let keys = ["tls13 quic hp", "tls13 quic iv", "tls13 quic key"];
        let next = "tls13 quic ku";
        let mut secrets = None;
        for _ in 0..8 {
            let mut flight = Vec::new();
            let change = client.write_hs(&mut flight);
            match &change {
                Some(KeyChange::Handshake { .. }) => assert_eq!(seen(), keys),
                Some(KeyChange::OneRtt { .. }) => {
                    assert_eq!(seen(), [&keys[..], &[next]].concat());
                }
                None => assert!(seen().is_empty()),
            }
            if let Some(KeyChange::OneRtt { next, .. }) = change {
                secrets = Some(next);
            }
            server.read_hs(&flight).unwrap();
            let mut flight = Vec::new();
            server.write_hs(&mut flight);
            let is_ticket = !client.is_handshaking() && !flight.is_empty();
            client.read_hs(&flight).unwrap();
            assert_eq!(seen(), ["tls13 resumption"][..usize::from(is_ticket)]);
        }
        secrets.unwrap().next_packet_keys();
        assert_eq!(seen(), ["tls13 quic iv", "tls13 quic key", next]);
    }
}
