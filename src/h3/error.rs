//! Errors, sorted by their cause: an error of the peer ends a stream or the connection with the RFC's code; an error
//! of the caller only fails the call.
//!
//! Not here: the reaction to an error (`connection.rs`, `request_streams.rs`).

use std::borrow::Cow;
use std::fmt;

use super::qpack::Field;

/// An error code of HTTP/3, QPACK or HTTP datagrams (RFC 9114 section 8.1, RFC 9204 section 6, RFC 9297 section 5.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u64);

/// Defines all error codes. Each is written once, and gets a constant and a name for messages.
macro_rules! codes {
    ($($name:ident = $value:expr;)*) => {
        impl Code {
            $(pub const $name: Self = Self($value);)*

            /// The code's name in the RFC; `None` for an unknown code.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    H3_DATAGRAM_ERROR = 0x33;
    H3_NO_ERROR = 0x100;
    H3_GENERAL_PROTOCOL_ERROR = 0x101;
    H3_INTERNAL_ERROR = 0x102;
    H3_STREAM_CREATION_ERROR = 0x103;
    H3_CLOSED_CRITICAL_STREAM = 0x104;
    H3_FRAME_UNEXPECTED = 0x105;
    H3_FRAME_ERROR = 0x106;
    H3_EXCESSIVE_LOAD = 0x107;
    H3_ID_ERROR = 0x108;
    H3_SETTINGS_ERROR = 0x109;
    H3_MISSING_SETTINGS = 0x10a;
    H3_REQUEST_REJECTED = 0x10b;
    H3_REQUEST_CANCELLED = 0x10c;
    H3_REQUEST_INCOMPLETE = 0x10d;
    H3_MESSAGE_ERROR = 0x10e;
    H3_CONNECT_ERROR = 0x10f;
    H3_VERSION_FALLBACK = 0x110;
    QPACK_DECOMPRESSION_FAILED = 0x200;
    QPACK_ENCODER_STREAM_ERROR = 0x201;
    QPACK_DECODER_STREAM_ERROR = 0x202;
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "0x{:x}", self.0),
        }
    }
}

/// An error of the peer that ends the connection (RFC 9114 section 8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionError {
    pub code: Code,
    pub reason: Cow<'static, str>,
}

impl ConnectionError {
    pub fn new(code: Code, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            reason: reason.into(),
        }
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.reason)
    }
}

impl std::error::Error for ConnectionError {}

/// An error of the peer that ends one request, or the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteError {
    Connection(ConnectionError),
    /// A stream error (RFC 9114 section 8): other streams are not affected.
    Stream(ConnectionError),
    /// A field section has more bytes or lines than this side accepts (RFC 9114 section 4.2.2). `fields` are the
    /// pseudo-header fields that came before the limit. A server can still answer such a request; any other message
    /// ends with the stream error H3_EXCESSIVE_LOAD.
    TooLarge {
        reason: &'static str,
        fields: Vec<Field>,
    },
}

impl RemoteError {
    /// The stream error for a malformed message (RFC 9114 section 4.1.2).
    pub fn malformed(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Stream(ConnectionError::new(Code::H3_MESSAGE_ERROR, reason))
    }

    /// Returns the error, with which the stream or the connection ends.
    pub fn into_inner(self) -> ConnectionError {
        match self {
            Self::Connection(error) | Self::Stream(error) => error,
            Self::TooLarge { reason, .. } => ConnectionError::new(Code::H3_EXCESSIVE_LOAD, reason),
        }
    }
}

impl From<ConnectionError> for RemoteError {
    fn from(error: ConnectionError) -> Self {
        Self::Connection(error)
    }
}

/// The error of a call that HTTP/3 does not allow now. The call has sent nothing and changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalError {
    /// The frame must not be sent after the frames that were sent on the stream (RFC 9114 section 4.1).
    FrameUnexpected(&'static str),
    /// Streams of this kind cannot carry what the call sends.
    InvalidStream(&'static str),
    /// The message would be malformed because of this field (RFC 9114 section 4.2).
    InvalidField(String),
    /// The field section is larger than the peer's SETTINGS_MAX_FIELD_SECTION_SIZE (RFC 9114 section 4.2.2).
    FieldSectionTooLarge { size: u64, max: u64 },
    /// The peer has sent GOAWAY and will not process this request (RFC 9114 section 5.2).
    GoingAway,
    /// The client allows no push, or has not raised MAX_PUSH_ID for another one (RFC 9114 section 7.2.7).
    NoPush,
    /// An identifier is out of range, or larger than an earlier one although it must not grow.
    InvalidId(&'static str),
    /// HTTP datagrams require SETTINGS_H3_DATAGRAM from both sides (RFC 9297 section 2.1.1).
    DatagramsNotNegotiated,
    /// The connection is closed.
    Closed,
}

impl fmt::Display for LocalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FrameUnexpected(reason)
            | Self::InvalidStream(reason)
            | Self::InvalidId(reason) => f.write_str(reason),
            Self::InvalidField(reason) => f.write_str(reason),
            Self::FieldSectionTooLarge { size, max } => {
                write!(
                    f,
                    "the field section takes {size} bytes, the peer accepts {max}"
                )
            }
            Self::GoingAway => {
                f.write_str("the peer is going away and will not process this request")
            }
            Self::NoPush => f.write_str("the client allows no further push"),
            Self::DatagramsNotNegotiated => {
                f.write_str("HTTP datagrams were not negotiated with the peer")
            }
            Self::Closed => f.write_str("the HTTP/3 connection is closed"),
        }
    }
}

impl std::error::Error for LocalError {}
