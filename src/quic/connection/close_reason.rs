//! Converts quinn-proto's reason for the end of a connection into a `Closed` event.
//!
//! Not here: a close by this side's application, which needs no conversion.

use quinn_proto::{ConnectionError, FrameType, TransportError, coding::Codec};

use crate::tls::describe_alert;
use crate::{CloseKind, Event};

/// The `Closed` event for an error that quinn-proto reports.
pub(crate) fn closed_event(error: ConnectionError) -> Event {
    match error {
        ConnectionError::TransportError(error) => local_error(error),
        ConnectionError::ConnectionClosed(close) => {
            let code = close.error_code.into();
            let reason = String::from_utf8_lossy(&close.reason).into_owned();
            let frame_type = Some(close.frame_type.map_or(0, frame_type_number));
            match tls_alert(code) {
                Some(alert) => {
                    let reason = if reason.is_empty() {
                        describe_alert(alert)
                    } else {
                        reason
                    };
                    closed(code, frame_type, reason, CloseKind::Tls { alert })
                }
                None => closed(code, frame_type, reason, CloseKind::PeerTransport),
            }
        }
        ConnectionError::ApplicationClosed(close) => {
            let reason = String::from_utf8_lossy(&close.reason).into_owned();
            closed(
                close.error_code.into_inner(),
                None,
                reason,
                CloseKind::PeerApplication,
            )
        }
        ConnectionError::Reset => closed_without_code(
            "the peer no longer knows the connection",
            CloseKind::StatelessReset,
        ),
        ConnectionError::TimedOut => closed_without_code("Idle timeout", CloseKind::IdleTimeout),
        ConnectionError::VersionMismatch => closed_without_code(
            "Could not find a common protocol version",
            CloseKind::VersionNegotiation,
        ),
        ConnectionError::LocallyClosed => closed(0, None, String::new(), CloseKind::Local),
        ConnectionError::CidsExhausted => {
            closed_without_code("no connection IDs are left", CloseKind::Local)
        }
    }
}

/// The `Closed` event for an end without a CONNECTION_CLOSE on the wire, such as a time-out.
pub(crate) fn closed_without_code(reason: impl Into<String>, kind: CloseKind) -> Event {
    closed(INTERNAL_ERROR, Some(0), reason.into(), kind)
}

fn local_error(error: TransportError) -> Event {
    let code = error.code.into();
    let kind = match tls_alert(code) {
        Some(alert) => CloseKind::Tls { alert },
        None => CloseKind::Local,
    };
    let reason = match error.reason.is_empty() {
        true => error.code.to_string(),
        false => error.reason,
    };
    closed(
        code,
        Some(error.frame.map_or(0, frame_type_number)),
        reason,
        kind,
    )
}

fn closed(error_code: u64, frame_type: Option<u64>, reason: String, kind: CloseKind) -> Event {
    Event::Closed {
        error_code,
        frame_type,
        reason,
        kind,
    }
}

/// RFC 9001 section 4.8: CRYPTO_ERROR is 0x0100 to 0x01ff, the alert in the low byte.
fn tls_alert(code: u64) -> Option<u8> {
    match code {
        0x100..=0x1ff => Some(code as u8),
        _ => None,
    }
}

/// quinn-proto exposes a frame type only in its encoded form.
fn frame_type_number(frame_type: FrameType) -> u64 {
    let mut bytes = Vec::new();
    frame_type.encode(&mut bytes);
    uringcore_wire::varint::take(&mut &bytes[..]).unwrap_or(0)
}

/// RFC 9000 section 20.1.
const INTERNAL_ERROR: u64 = 0x01;
