//! Verifies certificates: a client verifies a server's, and a server a client's.
//!
//! rustls-webpki verifies the chain, the dates and the name. This file adds: disabled verification, ignored names,
//! trusted certificates that are not authorities, and the handshake in memory that imports a ticket.

use std::{fmt, sync::Arc};

use aws_lc_rs::digest::{SHA256, digest};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{
        ParsedCertificate,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

use super::{roots::LoadedRoots, validity_dates::Validity};
use crate::tls::ConfigError;
use crate::workarounds::session_export;

/// Verifies server certificates. The signature of the handshake is always verified, even if nothing else is:
/// otherwise anybody could use the certificate without its private key.
pub(in crate::tls) struct ServerVerifier {
    policy: Policy,
    algorithms: WebPkiSupportedAlgorithms,
}

enum Policy {
    AcceptAll,
    /// Rejects every certificate.
    RefuseAll,
    /// Accepts only certificates with these SHA-256 hashes, for any name and from any issuer.
    Hashes(Vec<[u8; 32]>),
    Chain {
        verifier: Arc<WebPkiServerVerifier>,
        pinned: Vec<CertificateDer<'static>>,
        check_hostname: bool,
    },
}

impl ServerVerifier {
    pub fn accept_all(provider: &CryptoProvider) -> Self {
        Self {
            policy: Policy::AcceptAll,
            algorithms: provider.signature_verification_algorithms,
        }
    }

    pub fn pinned(provider: &CryptoProvider, hashes: Vec<[u8; 32]>) -> Self {
        Self {
            policy: Policy::Hashes(hashes),
            algorithms: provider.signature_verification_algorithms,
        }
    }

    pub fn new(
        provider: &Arc<CryptoProvider>,
        roots: LoadedRoots,
        check_hostname: bool,
    ) -> Result<Self, ConfigError> {
        let algorithms = provider.signature_verification_algorithms;
        if roots.store.is_empty() {
            return Ok(Self {
                policy: Policy::RefuseAll,
                algorithms,
            });
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.store, provider.clone())
            .build()
            .map_err(|e| ConfigError::new("roots", e.to_string()))?;
        let policy = Policy::Chain {
            verifier,
            pinned: roots.given,
            check_hostname,
        };
        Ok(Self { policy, algorithms })
    }
}

/// The error for a certificate whose hash is not among the pinned ones.
struct NotPinned;

impl fmt::Display for NotPinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its hash is none of the pinned ones")
    }
}

/// rustls formats errors of other crates with `Debug`.
impl fmt::Debug for NotPinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for NotPinned {}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // An imported ticket may lack the server's certificate. Then its secret authenticates the server. If it has
        // one, that must be valid under the current settings.
        if session_export::is_importing() && session_export::is_unknown(end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        let (verifier, pinned, check_hostname) = match &self.policy {
            Policy::AcceptAll => return Ok(ServerCertVerified::assertion()),
            Policy::RefuseAll => return Err(CertificateError::UnknownIssuer.into()),
            Policy::Hashes(hashes) => {
                let hash = digest(&SHA256, end_entity);
                if !hashes.iter().any(|known| known == hash.as_ref()) {
                    return Err(CertificateError::Other(OtherError(Arc::new(NotPinned))).into());
                }
                Validity::of(end_entity)?.check(now)?;
                return Ok(ServerCertVerified::assertion());
            }
            Policy::Chain {
                verifier,
                pinned,
                check_hostname,
            } => (verifier, pinned, check_hostname),
        };
        let error = match verifier.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        ) {
            Ok(verified) => return Ok(verified),
            Err(error) => error,
        };
        match &error {
            // The name is checked last, so an error of the name shows that the rest of the certificate is valid.
            Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => match check_hostname {
                true => Err(error),
                false => Ok(ServerCertVerified::assertion()),
            },
            // `openssl req -x509` marks a self-signed certificate as an authority, and webpki rejects authorities as
            // server certificates. If the application has given this certificate, it is trusted nevertheless.
            _ if pinned.contains(end_entity) => {
                Validity::of(end_entity)?.check(now)?;
                if *check_hostname {
                    verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                }
                Ok(ServerCertVerified::assertion())
            }
            _ => Err(error),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        // The server has proved in the handshake that issued the ticket that it has the key.
        if session_export::is_importing() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl fmt::Debug for ServerVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.policy {
            Policy::AcceptAll => "ServerVerifier(accepts all)",
            Policy::RefuseAll => "ServerVerifier(refuses all)",
            Policy::Hashes(_) => "ServerVerifier(hashes)",
            Policy::Chain { .. } => "ServerVerifier(chain)",
        })
    }
}

/// Verifies client certificates. A certificate that the application has given is accepted even if it was not issued
/// by an authority, as in OpenSSL.
#[derive(Debug)]
pub(in crate::tls) struct ClientVerifier {
    chain: Arc<dyn ClientCertVerifier>,
    pinned: Vec<CertificateDer<'static>>,
}

impl ClientVerifier {
    pub fn new(chain: Arc<dyn ClientCertVerifier>, pinned: Vec<CertificateDer<'static>>) -> Self {
        Self { chain, pinned }
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.chain.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.chain.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self
            .chain
            .verify_client_cert(end_entity, intermediates, now)
        {
            Err(_) if self.pinned.contains(end_entity) => {
                Validity::of(end_entity)?.check(now)?;
                Ok(ClientCertVerified::assertion())
            }
            judged => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
