//! Errors of our own configured certificate chain and key: an empty chain, a key of another certificate.
//!
//! Not here: reading them (`settings`), and the check of a peer's chain (`certificates::verifiers`).

use rustls::pki_types::CertificateDer;

use super::rejection_texts::describe_certificate_error;
use crate::tls::ConfigError;

pub(in crate::tls) fn non_empty(
    field: &'static str,
    chain: &[CertificateDer<'static>],
) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    match chain.is_empty() {
        true => Err(ConfigError::new(field, "holds no certificate")),
        false => Ok(chain.to_vec()),
    }
}

pub(in crate::tls) fn identity_error(
    chain: &'static str,
    key: &'static str,
    error: &rustls::Error,
) -> ConfigError {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            ConfigError::new(key, "the private key does not belong to the certificate")
        }
        rustls::Error::InvalidCertificate(e) => {
            let message = format!(
                "the certificate cannot be used: {}",
                describe_certificate_error(e)
            );
            ConfigError::new(chain, message)
        }
        rustls::Error::General(_) => {
            let kinds =
                "ECDSA with P-256, P-384 or P-521, Ed25519, Ed448, and RSA with 2048 to 8192 bits";
            let message = format!("the private key cannot be used: it must be one of {kinds}");
            ConfigError::new(key, message)
        }
        other => ConfigError::new(key, format!("the private key cannot be used: {other}")),
    }
}
