//! Texts for the reasons of a rejected certificate. rustls and webpki have no texts for most of them, only variant
//! names.

use rustls::{CertificateError, Error, pki_types::UnixTime};

/// The reason as the rest of a sentence about the certificate. Name mismatches are handled elsewhere.
pub(in crate::tls) fn describe(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => describe_certificate_error(error),
        other => other.to_string(),
    }
}

pub(in crate::tls) fn describe_certificate_error(error: &CertificateError) -> String {
    let words = match error {
        CertificateError::BadEncoding => "it is not a well-formed X.509 certificate",
        CertificateError::BadSignature => "its signature is wrong",
        CertificateError::Revoked => "it was revoked",
        CertificateError::ExpiredContext { time, not_after } => {
            return format!("it expired {} ago", between(*not_after, *time));
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            return format!(
                "it is not valid yet, but will be in {}",
                between(*time, *not_before)
            );
        }
        CertificateError::UnknownIssuer => "it was not issued by a trusted authority",
        CertificateError::UnhandledCriticalExtension => {
            "it has a critical extension that is not understood"
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is not made for this use (extended key usage)"
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "it is signed with an algorithm that is not supported: ECDSA, Ed25519, Ed448 and RSA are, with SHA-2"
        }
        CertificateError::Other(other) => match other.0.downcast_ref::<webpki::Error>() {
            Some(error) => return describe_webpki_error(error),
            None => return other.0.to_string(),
        },
        other => return other.to_string(),
    };
    words.into()
}

/// The text for an error of webpki that has no equivalent in rustls.
pub(in crate::tls) fn describe_webpki_error(error: &webpki::Error) -> String {
    let words = match error {
        webpki::Error::BadDer | webpki::Error::TrailingData(_) => {
            "it is not a well-formed X.509 certificate"
        }
        webpki::Error::UnsupportedCertVersion => {
            "it is of X.509 version 1: make one of version 3, with the names in a subjectAltName"
        }
        webpki::Error::CaUsedAsEndEntity => "it is an authority's, which issues certificates",
        webpki::Error::EndEntityUsedAsCa => {
            "it was issued by a certificate that is not an authority's"
        }
        webpki::Error::InvalidCertValidity => "its validity ends before it begins",
        webpki::Error::InvalidSerialNumber => "its serial number is invalid",
        webpki::Error::NameConstraintViolation => "its authority may not issue it for these names",
        webpki::Error::PathLenConstraintViolated => "there are too many authorities above it",
        webpki::Error::UnsupportedCriticalExtension => {
            "it has a critical extension that is not understood"
        }
        webpki::Error::ExtensionValueInvalid | webpki::Error::MalformedExtensions => {
            "one of its extensions is malformed"
        }
        other => return format!("webpki rejects it ({other})"),
    };
    words.into()
}

/// The difference in the largest unit of which there are at least two.
fn between(earlier: UnixTime, later: UnixTime) -> String {
    let seconds = later.as_secs().saturating_sub(earlier.as_secs());
    let units = [(86_400, "days"), (3_600, "hours"), (60, "minutes")];
    match units.iter().find(|(size, _)| seconds >= 2 * size) {
        Some((size, name)) => format!("{} {name}", seconds / size),
        None => format!("{seconds} seconds"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_text_states_the_expiry_in_the_largest_fitting_unit() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        for (seconds, said) in [
            (0, "0 seconds"),
            (119, "119 seconds"),
            (120, "2 minutes"),
            (86_433, "24 hours"),
            (86_400 * 30, "30 days"),
        ] {
            let expired = CertificateError::ExpiredContext {
                time: at(1_000_000 + seconds),
                not_after: at(1_000_000),
            };
            assert_eq!(
                describe_certificate_error(&expired),
                format!("it expired {said} ago")
            );
            let early = CertificateError::NotValidYetContext {
                time: at(1_000_000),
                not_before: at(1_000_000 + seconds),
            };
            assert_eq!(
                describe_certificate_error(&early),
                format!("it is not valid yet, but will be in {said}")
            );
        }
    }
}
