//! What is wrong with a certificate, in words: rustls and webpki have names of variants for most of it.

use rustls::{CertificateError, Error};

/// The rest of a sentence about the certificate. What is wrong with a peer's for its name is not here.
pub(in crate::tls) fn fault(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => certificate_fault(error),
        other => other.to_string(),
    }
}

pub(in crate::tls) fn certificate_fault(error: &CertificateError) -> String {
    let words = match error {
        CertificateError::BadEncoding => "it is not a well-formed X.509 certificate",
        CertificateError::BadSignature => "its signature is wrong",
        CertificateError::Revoked => "it was revoked",
        CertificateError::UnknownIssuer => "it was not issued by a trusted authority",
        CertificateError::UnhandledCriticalExtension => {
            "it has a critical extension that is not understood"
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is not made for this use (extended key usage)"
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "it is signed with an algorithm that is not supported: ECDSA, Ed25519 and RSA are, with SHA-2"
        }
        CertificateError::Other(other) => match other.0.downcast_ref::<webpki::Error>() {
            Some(error) => return other_fault(error),
            None => return other.0.to_string(),
        },
        other => return other.to_string(),
    };
    words.into()
}

/// Of webpki's errors, those that rustls has no name for.
pub(in crate::tls) fn other_fault(error: &webpki::Error) -> String {
    let words = match error {
        webpki::Error::BadDer | webpki::Error::TrailingData(_) => {
            "it is not a well-formed X.509 certificate"
        }
        webpki::Error::UnsupportedCertVersion => {
            "it is of X.509 version 1: make one of version 3, with the names in a subjectAltName"
        }
        webpki::Error::CaUsedAsEndEntity => "it is an authority's, which issues certificates",
        webpki::Error::EndEntityUsedAsCa => "it was issued by a certificate that is no authority's",
        webpki::Error::InvalidCertValidity => "it ends before it begins",
        webpki::Error::InvalidSerialNumber => "its serial number is none",
        webpki::Error::NameConstraintViolation => "its authority may not issue it for these names",
        webpki::Error::PathLenConstraintViolated => "there are too many authorities above it",
        webpki::Error::UnsupportedCriticalExtension => {
            "it has a critical extension that is not understood"
        }
        webpki::Error::ExtensionValueInvalid | webpki::Error::MalformedExtensions => {
            "one of its extensions is malformed"
        }
        other => return format!("webpki does not take it ({other})"),
    };
    words.into()
}
