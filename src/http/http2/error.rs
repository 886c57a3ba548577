//! Error codes (RFC 9113 section 7), and errors of the client.

/// An error code of HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Code {
    NoError = 0x0,
    ProtocolError = 0x1,
    InternalError = 0x2,
    FlowControlError = 0x3,
    StreamClosed = 0x5,
    FrameSizeError = 0x6,
    RefusedStream = 0x7,
    Cancel = 0x8,
    CompressionError = 0x9,
    EnhanceYourCalm = 0xb,
}

/// An error of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The error ends the connection (RFC 9113 section 5.4.1).
    Connection(Code, &'static str),
    /// The error ends one stream (RFC 9113 section 5.4.2).
    Stream(u32, Code),
}

impl Fault {
    pub fn protocol(reason: &'static str) -> Self {
        Self::Connection(Code::ProtocolError, reason)
    }

    pub fn frame_size(reason: &'static str) -> Self {
        Self::Connection(Code::FrameSizeError, reason)
    }

    pub fn abuse(reason: &'static str) -> Self {
        Self::Connection(Code::EnhanceYourCalm, reason)
    }
}
