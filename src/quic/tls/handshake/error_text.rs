//! Texts for TLS failures: for errors of a handshake on this side, and for alerts of the peer.

use quinn_proto::{TransportError, TransportErrorCode, coding::Codec};
use rustls::{AlertDescription, CertificateError, Error};

use crate::tls::certificates::rejection_texts::describe_certificate_error;

/// The transport error for a failed handshake (RFC 9001 section 4.8): the code is 0x0100 plus the alert, the frame
/// type is CRYPTO.
pub(in crate::tls) fn transport_error(
    error: &Error,
    alert: Option<AlertDescription>,
) -> TransportError {
    let alert = alert.unwrap_or(AlertDescription::InternalError);
    TransportError {
        code: TransportErrorCode::crypto(alert.into()),
        frame: quinn_proto::FrameType::decode(&mut &[FRAME_TYPE_CRYPTO][..]).ok(),
        reason: describe(error),
    }
}

fn describe(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            expected,
            presented,
        }) => name_mismatch(&expected.to_str(), presented),
        Error::InvalidCertificate(error @ CertificateError::NotValidForName) => {
            format!("certificate verification failed: hostname mismatch: {error}")
        }
        Error::InvalidCertificate(error) => {
            format!(
                "certificate verification failed: {}",
                describe_certificate_error(error)
            )
        }
        Error::NoCertificatesPresented => {
            "the peer sent no certificate, and one is required".into()
        }
        Error::NoApplicationProtocol => "no common application protocol (ALPN)".into(),
        other => format!("TLS handshake failed: {other}"),
    }
}

/// The text has aioquic's words, for which programs search. `presented` has the names in rustls' form:
/// `DnsName("localhost")`.
fn name_mismatch(expected: &str, presented: &[String]) -> String {
    let names: Vec<String> = presented
        .iter()
        .map(|name| {
            let bare = name.split_once('(').map_or(&**name, |(_, rest)| rest);
            format!("'{}'", bare.trim_end_matches(')').trim_matches('"'))
        })
        .collect();
    match &*names {
        [] => format!("hostname '{expected}' doesn't match: the certificate has no names"),
        [name] => format!("hostname '{expected}' doesn't match {name}"),
        names => format!(
            "hostname '{expected}' doesn't match either of {}",
            names.join(", ")
        ),
    }
}

/// The meaning of a TLS alert (RFC 8446 section 6.2), for a peer that has sent no reason.
pub(crate) fn describe_alert(alert: u8) -> String {
    let meaning = match AlertDescription::from(alert) {
        AlertDescription::HandshakeFailure => "the peer found no common security parameters",
        AlertDescription::BadCertificate => {
            "the peer found our certificate corrupt or for another name"
        }
        AlertDescription::UnsupportedCertificate => "the peer does not support our certificate",
        AlertDescription::CertificateRevoked => "the peer says that our certificate is revoked",
        AlertDescription::CertificateExpired => {
            "the peer says that our certificate expired or is not yet valid"
        }
        AlertDescription::CertificateUnknown => "the peer does not accept our certificate",
        AlertDescription::UnknownCA => "the peer does not trust the issuer of our certificate",
        AlertDescription::AccessDenied => "the peer denies us access",
        AlertDescription::DecryptError => "the peer could not verify a signature",
        AlertDescription::ProtocolVersion => "the peer does not support TLS 1.3",
        AlertDescription::UnrecognisedName => "the peer does not know the server name",
        AlertDescription::CertificateRequired => "the peer requires a certificate of us",
        AlertDescription::NoApplicationProtocol => {
            "the peer knows none of our application protocols (ALPN)"
        }
        _ => "the peer raised a TLS alert",
    };
    format!("{meaning} (alert {alert})")
}

const FRAME_TYPE_CRYPTO: u8 = 0x06;
