//! The authorities that a verifier trusts, from settings.
//!
//! Not here: verification (`verify`), and the store that a host has read (`settings`).

use std::sync::Arc;

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

use super::error_text::fault;
use crate::tls::{ConfigError, Roots};

/// Trusted certificates.
pub(in crate::tls) struct LoadedRoots {
    pub store: Arc<RootCertStore>,
    /// The certificates that the host gave itself, which are trusted even as leaves.
    pub given: Vec<CertificateDer<'static>>,
}

pub(in crate::tls) fn load_roots(
    field: &'static str,
    roots: &Roots,
) -> Result<LoadedRoots, ConfigError> {
    let given = match roots {
        Roots::Pem(pem) => CertificateDer::pem_slice_iter(pem)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| ConfigError::new(field, format!("is not valid PEM: {e}")))?,
        Roots::Store(store) => {
            return Ok(LoadedRoots {
                store: store.0.clone(),
                given: Vec::new(),
            });
        }
        Roots::None => Vec::new(),
    };
    if given.is_empty() && matches!(roots, Roots::Pem(_)) {
        return Err(ConfigError::new(field, "holds no certificate"));
    }
    let mut store = RootCertStore::empty();
    for (index, certificate) in given.iter().enumerate() {
        store.add(certificate.clone()).map_err(|e| {
            ConfigError::new(
                field,
                format!("certificate {} cannot be used: {}", index + 1, fault(&e)),
            )
        })?;
    }
    Ok(LoadedRoots {
        store: Arc::new(store),
        given,
    })
}
