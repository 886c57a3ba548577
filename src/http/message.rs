//! The head of a request (method, target and fields), and the errors of a response, in the terms of any HTTP version.

use std::fmt;

use bytes::Bytes;
use uringcore_h3::Field;
use uringcore_h3::qpack::FIELD_OVERHEAD;

/// The head of a request for the application. The fields are those of HTTP/1.1: `host` instead of `:authority`, a
/// single `cookie`, and no pseudo-header fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    pub method: Bytes,
    /// The path and query, or `*`. For a CONNECT request, the authority.
    pub target: Bytes,
    pub fields: Vec<Field>,
    /// The `:protocol` of an extended CONNECT (RFC 9220), except `websocket`. It defines the meaning of the content.
    pub protocol: Option<Bytes>,
    /// True if the request opens a WebSocket (RFC 6455, RFC 9220). Its content is the client's frames, and the content
    /// of a response that accepts it is the server's frames.
    pub is_websocket: bool,
    /// True if the request asks for a WebTransport session (draft-ietf-webtrans-http3 section 3.2).
    pub is_webtransport: bool,
    /// True if `:protocol` is the name in newer drafts of WebTransport.
    pub(crate) names_h3: bool,
    /// True if the request arrived in 0-RTT data and the handshake is not complete. An attacker can replay it.
    pub is_early: bool,
}

/// The response to a request that the application does not get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    pub detail: &'static str,
}

/// The reason for which a part of a response was not sent. Either all of a part is sent or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendError {
    /// The stream or the connection has ended. An event reports the end, now or soon.
    Gone,
    /// An error of the application: a field that makes the message malformed, or an order of calls that HTTP does not
    /// allow.
    Invalid(String),
    /// The header section is larger than the client accepts (RFC 9114 section 4.2.2).
    TooLarge { size: u64, max: u64 },
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the stream has ended"),
            Self::Invalid(reason) => f.write_str(reason),
            Self::TooLarge { size, max } => {
                write!(
                    f,
                    "the header section takes {size} bytes, the client accepts {max}"
                )
            }
        }
    }
}

impl std::error::Error for SendError {}

/// The reason why a response was abandoned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooSlow {
    /// The client read nothing within the time-out.
    Nothing,
    /// The client read at less than the minimum rate.
    Little,
}

impl Head {
    /// The size of the fields in bytes, counted as for SETTINGS_MAX_FIELD_SECTION_SIZE (RFC 9114 section 4.2.2).
    pub fn size(&self) -> usize {
        let sizes = self.fields.iter();
        let sizes = sizes.map(|(name, value)| name.len() + value.len() + FIELD_OVERHEAD);
        sizes.sum::<usize>() + self.target.len()
    }

    /// True if the fields may contain the client's address, added by a proxy.
    pub fn is_forwarded(&self) -> bool {
        let mut names = self.fields.iter().map(|(name, _)| name);
        names.any(|name| name.starts_with(b"x-forwarded-"))
    }

    /// The value of the first field with this name, which must be in lower case.
    pub fn field(&self, name: &[u8]) -> Option<&Bytes> {
        let found = self.fields.iter().find(|(known, _)| &**known == name);
        found.map(|(_, value)| value)
    }
}

impl Refusal {
    pub const fn new(status: u16, detail: &'static str) -> Self {
        Self { status, detail }
    }

    /// True if the request itself was wrong. A 425 is not the client's fault: it repeats the request later.
    pub fn is_a_fault(&self) -> bool {
        self.status != 425
    }
}
