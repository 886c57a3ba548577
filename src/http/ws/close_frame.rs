//! Close frames: the status code and the reason with which a connection is closed (RFC 6455 sections 5.5.1 and 7.4).

use super::close_codes;
use super::violation::Violation;

/// The content of a Close frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Close {
    /// The status code; 1005 if the frame has none.
    pub code: u16,
    pub reason: String,
}

impl Close {
    /// The result for a stream that ended without a Close frame.
    pub fn abnormal() -> Self {
        Self {
            code: close_codes::ABNORMAL,
            reason: String::new(),
        }
    }

    /// Parses the payload of a Close frame (RFC 6455 section 5.5.1).
    pub(super) fn read(payload: &[u8]) -> Result<Self, Violation> {
        let [high, low, reason @ ..] = payload else {
            return match payload.is_empty() {
                true => Ok(Self {
                    code: close_codes::NO_STATUS,
                    reason: String::new(),
                }),
                false => Err(Violation::protocol("a close frame with half a status code")),
            };
        };
        let code = u16::from_be_bytes([*high, *low]);
        if !Self::is_sendable(code) {
            return Err(Violation::protocol("a status code that may not be sent"));
        }
        let reason = std::str::from_utf8(reason).map_err(|_| {
            Violation::new(
                close_codes::INVALID_PAYLOAD,
                "a close reason that is not UTF-8",
            )
        })?;
        Ok(Self {
            code,
            reason: reason.to_owned(),
        })
    }

    /// True if a Close frame may have this status code (RFC 6455 sections 7.4.1 and 7.4.2, and later IANA
    /// registrations).
    pub fn is_sendable(code: u16) -> bool {
        matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
    }

    /// Encodes the payload of a Close frame. The reason is truncated at a character boundary to fit (RFC 6455 section
    /// 5.5).
    pub fn payload(code: u16, reason: &str) -> Vec<u8> {
        let mut end = reason.len().min(REASON_MAX);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        let mut payload = code.to_be_bytes().to_vec();
        payload.extend_from_slice(&reason.as_bytes()[..end]);
        payload
    }
}

/// The maximum length of a reason in bytes: the payload limit of control frames, without the two bytes of the code.
const REASON_MAX: usize = 123;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_between_characters() {
        let payload = Close::payload(1000, &"ä".repeat(100));
        assert_eq!(payload.len(), 2 + 122);
        let read = Close::read(&payload).unwrap();
        assert_eq!((read.code, read.reason), (1000, "ä".repeat(61)));
    }

    #[test]
    fn status_codes_for_local_use_are_refused() {
        for code in [
            0,
            999,
            1004,
            1005,
            1006,
            1015,
            1016,
            2000,
            2999,
            5000,
            u16::MAX,
        ] {
            let refused = Close::read(&code.to_be_bytes()).unwrap_err();
            assert_eq!(refused.code, close_codes::PROTOCOL_ERROR, "{code}");
        }
        assert_eq!(Close::read(b"").unwrap().code, close_codes::NO_STATUS);
        assert_eq!(Close::read(b"\x03").unwrap_err().code, 1002);
        assert_eq!(Close::read(b"\x03\xe8\xff").unwrap_err().code, 1007);
    }
}
