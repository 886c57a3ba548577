//! Cipher suites whose key derivation passes through our hands: the seam of rustls that both session
//! tickets and QUIC's versions use.
//!
//! Not here: what is done with a derivation (`tickets`, `versions::labels`).

use rustls::{
    CipherSuiteCommon, Error, Tls13CipherSuite,
    crypto::{
        ActiveKeyExchange, hmac,
        tls13::{Hkdf, HkdfExpander, OkmBlock},
    },
};

/// What becomes of an expander that rustls gets.
pub type Wrap = fn(Box<dyn HkdfExpander>) -> Box<dyn HkdfExpander>;

/// A copy of `suite` in which the expanders of secrets are wrapped. It lives for ever, as rustls
/// wants of its suites: callers make each once.
pub fn with_expanders(suite: &'static Tls13CipherSuite, wrap: Wrap) -> Tls13CipherSuite {
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
