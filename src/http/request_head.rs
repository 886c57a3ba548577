//! The head of a request (method, target and fields), in the terms of any HTTP version.

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
