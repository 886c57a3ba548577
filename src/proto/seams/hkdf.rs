//! Cipher suites whose key derivation passes through our hands.
//!
//! rustls keeps the secrets of session tickets to itself, and derives keys by the labels of the one
//! QUIC version that it was told when a session began. What it derives by, the HKDF of a cipher suite,
//! is public and can be another.
//!
//! Assumed of rustls: QUIC's keys, and the secrets of tickets, are derived by an expander that it gets
//! from `expander_for_okm`, and used where it was made; the parts of a suite are public. Not here: what
//! is done with a derivation (`tickets`, `labels`).

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

/// What becomes of an expander that rustls gets.
pub type Wrap = fn(Box<dyn HkdfExpander>) -> Box<dyn HkdfExpander>;

/// A copy of `suite` in which the expanders of secrets are wrapped. It lives for ever, as rustls wants
/// of its suites, so each is made once a process.
pub fn with_expanders(suite: SupportedCipherSuite, wrap: Wrap) -> SupportedCipherSuite {
    /// By the addresses of the suite and of the function.
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

    /// All that QUIC's keys are made by, and the secrets of tickets, which are derived from the
    /// resumption master secret: that is such a block, too.
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
