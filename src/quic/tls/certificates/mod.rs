//! Chooses a server's certificate for a client: by the name in the client's SNI (RFC 6066 section 3), and by the
//! signature schemes that the client supports (RFC 8446 section 4.2.3).
//!
//! | file | content |
//! | --- | --- |
//! | `verifiers` | verification of a peer's certificate chain |
//! | `roots` | the authorities that a verifier trusts |
//! | `configured_key_errors` | errors of a configured chain and its key |
//! | `validity_dates` | the two dates of a certificate |
//! | `host_name_match` | the host names that a certificate is for |
//! | `ed448` | Ed448 keys and signatures, which aws-lc lacks |
//! | `rejection_texts` | texts for rejected certificates |
//!
//! Not here: the rest of the TLS configuration (`tls::rustls_config`).

use std::{fmt, sync::Arc};

use rustc_hash::FxHashMap;
use rustls::{
    SignatureAlgorithm, SignatureScheme,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, DnsName, PrivateKeyDer, ServerName},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use webpki::EndEntityCert;

pub(super) mod configured_key_errors;
pub(super) mod ed448;
pub(super) mod host_name_match;
pub(super) mod rejection_texts;
pub(super) mod roots;
pub(super) mod validity_dates;
pub(super) mod verifiers;

use self::configured_key_errors::{identity_error, non_empty};
use super::{ConfigError, NamedIdentity};

/// The largest number of names of all certificates of a server together.
pub const SERVER_NAMES_MAX: usize = 4096;

/// A server's certificates: those for a name, and the default for clients without SNI or with an unknown name.
pub(super) struct ServerCertificates {
    default: CertificatesOfName,
    exact: FxHashMap<String, CertificatesOfName>,
    /// The certificates for wildcards, by the name after the asterisk and its dot.
    wildcards: FxHashMap<String, CertificatesOfName>,
}

/// The certificates for one name: at most one for each kind of key, the preferred one first.
#[derive(Default)]
struct CertificatesOfName(Vec<Arc<CertifiedKey>>);

impl CertificatesOfName {
    fn add(&mut self, name: &str, shown: Arc<CertifiedKey>) -> Result<(), ConfigError> {
        if self.0.iter().any(|one| kind(one) == kind(&shown)) {
            let message = format!("{name:?} has a certificate with a key of this kind");
            return Err(ConfigError::new("server_names", message));
        }
        self.0.push(shown);
        Ok(())
    }

    /// Returns the first certificate with a key whose signatures the client can verify. If there is none, returns the
    /// first certificate, and the client gets the alert `handshake_failure`.
    fn choose(&self, schemes: &[SignatureScheme]) -> Option<&Arc<CertifiedKey>> {
        let can_sign = |one: &&Arc<CertifiedKey>| one.key.choose_scheme(schemes).is_some();
        self.0.iter().find(can_sign).or(self.0.first())
    }
}

fn kind(shown: &CertifiedKey) -> SignatureAlgorithm {
    shown.key.algorithm()
}

impl ServerCertificates {
    pub fn new(
        provider: &CryptoProvider,
        default: (&[CertificateDer<'static>], &PrivateKeyDer<'static>),
        named: &[NamedIdentity],
    ) -> Result<Self, ConfigError> {
        let mut made = Self {
            default: CertificatesOfName(vec![Arc::new(certified_key(
                provider, default.0, default.1,
            )?)]),
            exact: FxHashMap::default(),
            wildcards: FxHashMap::default(),
        };
        for (index, one) in named.iter().enumerate() {
            made.add(provider, one).map_err(|error| {
                let message = format!("certificate {}: {error}", index + 1);
                ConfigError::new("named_certificates", message)
            })?;
        }
        Ok(made)
    }

    fn add(&mut self, provider: &CryptoProvider, one: &NamedIdentity) -> Result<(), ConfigError> {
        let identity = &one.identity;
        let shown = Arc::new(certified_key(
            provider,
            &identity.cert_chain,
            &identity.key,
        )?);
        for name in names_of(&identity.cert_chain, one.server_names.as_deref())? {
            let slot = match name.strip_prefix(WILDCARD) {
                Some(parent) => self.wildcards.entry(parent.to_owned()).or_default(),
                None if name == ALL_OTHERS => &mut self.default,
                None => self.exact.entry(name.clone()).or_default(),
            };
            slot.add(&name, shown.clone())?;
            if self.exact.len() + self.wildcards.len() > SERVER_NAMES_MAX {
                return Err(too_many_names());
            }
        }
        Ok(())
    }

    fn find(&self, asked: Option<&str>) -> &CertificatesOfName {
        let found = asked.and_then(|name| {
            let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
            let by_wildcard = || self.wildcards.get(name.split_once('.')?.1);
            self.exact.get(&name).or_else(by_wildcard)
        });
        found.unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for ServerCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let found = self.find(hello.server_name());
        found.choose(hello.signature_schemes()).cloned()
    }
}

impl fmt::Debug for ServerCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCertificates")
            .field("exact", &self.exact.keys())
            .field("wildcards", &self.wildcards.keys())
            .finish_non_exhaustive()
    }
}

impl NamedIdentity {
    /// Checks that the key belongs to the certificate and that the certificate is valid for the names. Returns the kind
    /// of the key, and the names in lower case: the configured ones, or else those in the certificate. A name may have
    /// one certificate of each kind.
    pub fn check(&self) -> Result<(Vec<String>, String), ConfigError> {
        let provider = ed448::provider_with_ed448();
        let shown = certified_key(&provider, &self.identity.cert_chain, &self.identity.key)?;
        let names = names_of(&self.identity.cert_chain, self.server_names.as_deref())?;
        match names.len() > SERVER_NAMES_MAX {
            true => Err(too_many_names()),
            false => Ok((names, format!("{:?}", kind(&shown)).to_ascii_lowercase())),
        }
    }
}

/// The chain with its key, which must be able to sign and must belong to the first certificate.
fn certified_key(
    provider: &CryptoProvider,
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
) -> Result<CertifiedKey, ConfigError> {
    let chain = non_empty("cert_chain", chain)?;
    CertifiedKey::from_der(chain, key.clone_key(), provider)
        .map_err(|error| identity_error("cert_chain", "key", &error))
}

fn names_of(
    chain: &[CertificateDer<'static>],
    given: Option<&[String]>,
) -> Result<Vec<String>, ConfigError> {
    let unusable = |error| {
        let message = format!(
            "the certificate cannot be used: {}",
            rejection_texts::describe_webpki_error(&error)
        );
        ConfigError::new("cert_chain", message)
    };
    let leaf = chain
        .first()
        .ok_or_else(|| ConfigError::new("cert_chain", "holds no certificate"))?;
    let leaf = EndEntityCert::try_from(leaf).map_err(unusable)?;
    let mut present: Vec<_> = leaf
        .valid_dns_names()
        .map(str::to_ascii_lowercase)
        .collect();
    present.sort_unstable();
    present.dedup();
    let Some(given) = given else {
        return match present.is_empty() {
            true => {
                let message = "the certificate has no DNS name in its subjectAltName";
                Err(ConfigError::new("server_names", message))
            }
            false => Ok(present),
        };
    };
    if given.is_empty() {
        return Err(ConfigError::new("server_names", "must not be empty"));
    }
    let mut names = Vec::with_capacity(given.len());
    for name in given {
        let name = lower_case(name)?;
        let is_covered = match name.starts_with(WILDCARD) {
            // A wildcard name is covered only by an equal wildcard in the certificate.
            true => present.binary_search(&name).is_ok(),
            // Clients for which the default is chosen do not request a name of the certificate.
            false if name == ALL_OTHERS => true,
            false => DnsName::try_from(name.as_str()).is_ok_and(|name| {
                leaf.verify_is_valid_for_subject_name(&ServerName::DnsName(name))
                    .is_ok()
            }),
        };
        if !is_covered {
            let message = format!("the certificate is not for {name:?}");
            return Err(ConfigError::new("server_names", message));
        }
        names.push(name);
    }
    let mut sorted: Vec<_> = names.iter().collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => {
            let message = format!("{:?} is given twice", pair[0]);
            Err(ConfigError::new("server_names", message))
        }
        None => Ok(names),
    }
}

/// A DNS name, with or without an asterisk in front, in the form for comparison.
fn lower_case(name: &str) -> Result<String, ConfigError> {
    if name == ALL_OTHERS {
        return Ok(name.to_owned());
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let host = name.strip_prefix(WILDCARD).unwrap_or(name);
    // RFC 6066 section 3: addresses are not allowed. `DnsName` would accept an IPv4 address.
    let is_host = DnsName::try_from(host).is_ok() && host.parse::<std::net::IpAddr>().is_err();
    match is_host {
        true => Ok(name.to_ascii_lowercase()),
        false => {
            let message = format!("{name:?} is not a DNS name (A-labels) or one after \"*.\"");
            Err(ConfigError::new("server_names", message))
        }
    }
}

fn too_many_names() -> ConfigError {
    let message = format!("a server has at most {SERVER_NAMES_MAX} names");
    ConfigError::new("server_names", message)
}

const WILDCARD: &str = "*.";
/// The key in the map for clients without SNI or with an unknown name.
const ALL_OTHERS: &str = "*";

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn made(algorithm: &'static rcgen::SignatureAlgorithm) -> Arc<CertifiedKey> {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let params = CertificateParams::new(vec!["one.example".into()]).unwrap();
        let chain = [params.self_signed(&key).unwrap().der().clone()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        Arc::new(certified_key(&provider, &chain, &key).unwrap())
    }

    #[test]
    fn a_client_gets_a_certificate_that_it_can_verify() {
        use SignatureScheme as Scheme;
        let [ecdsa, rsa, ed25519] = [
            &rcgen::PKCS_ECDSA_P256_SHA256,
            &rcgen::PKCS_RSA_SHA256,
            &rcgen::PKCS_ED25519,
        ]
        .map(made);
        let mut shown = CertificatesOfName::default();
        assert!(shown.choose(&[Scheme::ED25519]).is_none());
        for one in [&ecdsa, &rsa, &ed25519] {
            shown.add("one.example", one.clone()).unwrap();
        }
        let second = made(&rcgen::PKCS_ECDSA_P256_SHA256);
        assert!(shown.add("one.example", second).is_err());
        for (schemes, expected) in [
            (&[Scheme::RSA_PSS_SHA256][..], &rsa),
            (&[Scheme::ED25519], &ed25519),
            (&[Scheme::ECDSA_NISTP256_SHA256], &ecdsa),
            // The order of the server's certificates decides, not the client's preference.
            (&[Scheme::ED25519, Scheme::RSA_PSS_SHA512], &rsa),
            // The key of the certificate cannot sign in a way that the client can verify, so the client gets an alert.
            (&[Scheme::ECDSA_NISTP521_SHA512], &ecdsa),
        ] {
            assert!(
                Arc::ptr_eq(shown.choose(schemes).unwrap(), expected),
                "{schemes:?}"
            );
        }
    }
}
