//! The certificate authorities that a verifier trusts, loaded from settings.
//!
//! Not here: verification (`verifiers`), and the store that an application has read (`settings`).

use std::sync::Arc;

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

use super::rejection_texts::describe;
use crate::tls::{ConfigError, Roots};

/// The loaded certificates.
pub(in crate::tls) struct LoadedRoots {
    pub store: Arc<RootCertStore>,
    /// The certificates that the application has given. They are trusted even if they are not authorities.
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
                format!("certificate {} cannot be used: {}", index + 1, describe(&e)),
            )
        })?;
    }
    Ok(LoadedRoots {
        store: Arc::new(store),
        given,
    })
}
