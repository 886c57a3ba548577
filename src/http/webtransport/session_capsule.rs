//! Encodes and decodes the capsules of sessions (draft-ietf-webtrans-http3 sections 4.7, 5.6 and 6).
//!
//! Not here: splitting data into capsules (`h3::capsule`), and the reaction to each (`connect_stream`).

use bytes::{Buf, Bytes, BytesMut};
use uringcore_h3::capsule::put;
use uringcore_wire::varint;

/// A capsule that the peer sent on a session's CONNECT stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Capsule {
    Close {
        code: u32,
        reason: String,
    },
    Drain,
    MaxData(u64),
    MaxStreams {
        unidirectional: bool,
        limit: u64,
    },
    /// WT_DATA_BLOCKED or WT_STREAMS_BLOCKED, by which the peer reports that it waits for credit. It has no effect,
    /// because credit is granted without a request.
    Blocked {
        streams: Option<u64>,
    },
    /// A capsule of WebTransport over HTTP/2, which is an error over HTTP/3 (draft section 5.4).
    Forbidden,
}

/// The error for a capsule whose value does not have the form that its type requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// The maximum length of a capsule's value in bytes; `None` for types that are ignored.
pub fn longest(kind: u64) -> Option<usize> {
    match kind {
        CLOSE => Some(4 + REASON_MAX),
        DRAIN => Some(0),
        MAX_DATA | DATA_BLOCKED | MAX_STREAM_DATA | STREAM_DATA_BLOCKED => {
            Some(2 * varint::SIZE_MAX)
        }
        kind if MAX_STREAMS.contains(&kind) || STREAMS_BLOCKED.contains(&kind) => {
            Some(varint::SIZE_MAX)
        }
        _ => None,
    }
}

/// Parses a capsule of a type for which [`longest`] has a length.
pub fn read(kind: u64, mut value: Bytes) -> Result<Capsule, Malformed> {
    let number = || match varint::get(&value) {
        Some((number, used)) if used == value.len() => Ok(number),
        _ => Err(Malformed),
    };
    Ok(match kind {
        CLOSE => {
            if value.len() < 4 {
                return Err(Malformed);
            }
            let code = value.get_u32();
            let reason = String::from_utf8(value.into()).map_err(|_| Malformed)?;
            Capsule::Close { code, reason }
        }
        DRAIN => Capsule::Drain,
        MAX_DATA => Capsule::MaxData(number()?),
        DATA_BLOCKED => {
            number()?;
            Capsule::Blocked { streams: None }
        }
        MAX_STREAM_DATA | STREAM_DATA_BLOCKED => Capsule::Forbidden,
        kind if MAX_STREAMS.contains(&kind) => Capsule::MaxStreams {
            unidirectional: kind == MAX_STREAMS[1],
            limit: number()?,
        },
        _ => Capsule::Blocked {
            streams: Some(number()?),
        },
    })
}

/// Encodes WT_CLOSE_SESSION. The reason is truncated to 1,024 bytes at a character boundary.
pub fn close(code: u32, reason: &str) -> Bytes {
    let mut value = code.to_be_bytes().to_vec();
    value.extend_from_slice(shortened(reason).as_bytes());
    written(CLOSE, &value)
}

pub fn drain() -> Bytes {
    written(DRAIN, b"")
}

/// Encodes a capsule whose value is one integer.
pub fn number(kind: u64, number: u64) -> Bytes {
    let mut value = Vec::with_capacity(varint::SIZE_MAX);
    varint::put(&mut value, number);
    written(kind, &value)
}

/// The beginning of a reason, which fits in WT_CLOSE_SESSION.
pub fn shortened(reason: &str) -> &str {
    let mut end = reason.len().min(REASON_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}

fn written(kind: u64, value: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(value.len() + 2 * varint::SIZE_MAX);
    put(&mut out, kind, value);
    out.freeze()
}

/// The maximum length of a reason in bytes (draft section 6).
const REASON_MAX: usize = 1024;

const CLOSE: u64 = 0x2843;
const DRAIN: u64 = 0x78ae;
pub(super) const MAX_DATA: u64 = 0x190b_4d3d;
const MAX_STREAM_DATA: u64 = 0x190b_4d3e;
/// The types of WT_MAX_STREAMS for bidirectional and for unidirectional streams.
pub(super) const MAX_STREAMS: [u64; 2] = [0x190b_4d3f, 0x190b_4d40];
pub(super) const DATA_BLOCKED: u64 = 0x190b_4d41;
const STREAM_DATA_BLOCKED: u64 = 0x190b_4d42;
pub(super) const STREAMS_BLOCKED: [u64; 2] = [0x190b_4d43, 0x190b_4d44];

#[cfg(test)]
mod tests {
    use uringcore_h3::capsule::Capsules;

    use super::*;

    fn parsed(mut data: Bytes) -> Capsule {
        let mut capsules = Capsules::default();
        let (kind, value) = capsules.next(&mut data, longest).unwrap().unwrap();
        assert!(data.is_empty() && capsules.is_at_boundary());
        read(kind, value).unwrap()
    }

    #[test]
    fn a_written_capsule_is_read_back() {
        let closed = |code, reason: &str| Capsule::Close {
            code,
            reason: reason.into(),
        };
        assert_eq!(parsed(close(0, "")), closed(0, ""));
        assert_eq!(
            parsed(close(u32::MAX, "wegen Übermut")),
            closed(u32::MAX, "wegen Übermut")
        );
        assert_eq!(parsed(drain()), Capsule::Drain);
        assert_eq!(parsed(number(MAX_DATA, 1 << 40)), Capsule::MaxData(1 << 40));
        for (kind, unidirectional) in [(MAX_STREAMS[0], false), (MAX_STREAMS[1], true)] {
            let expected = Capsule::MaxStreams {
                unidirectional,
                limit: 100,
            };
            assert_eq!(parsed(number(kind, 100)), expected);
        }
        let blocked = |streams| Capsule::Blocked { streams };
        assert_eq!(parsed(number(DATA_BLOCKED, 3)), blocked(None));
        assert_eq!(parsed(number(STREAMS_BLOCKED[1], 3)), blocked(Some(3)));
    }

    #[test]
    fn a_reason_is_cut_between_characters() {
        let long = "ä".repeat(600);
        assert_eq!(shortened(&long).len(), 1024);
        let odd = format!("x{long}");
        assert_eq!(shortened(&odd).len(), 1023);
    }

    #[test]
    fn values_of_another_form_are_malformed() {
        for (kind, value) in [
            (CLOSE, &b"\0\0\0"[..]),
            (CLOSE, b"\0\0\0\0\xff"),
            (MAX_DATA, b""),
            (MAX_DATA, b"\x01\x02"),
            (MAX_STREAMS[0], b"\x40"),
            (STREAMS_BLOCKED[1], b""),
            (DATA_BLOCKED, b"\xc0"),
        ] {
            let value = Bytes::copy_from_slice(value);
            assert_eq!(
                read(kind, value.clone()),
                Err(Malformed),
                "{kind:#x} {value:?}"
            );
        }
    }
}
