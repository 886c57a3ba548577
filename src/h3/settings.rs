//! SETTINGS (RFC 9114 section 7.2.4): those that this side sends, and parsing the peer's.

use bytes::Bytes;
use uringcore_wire::varint;

use super::error::{Code, ConnectionError};
use super::field_validation::TargetCheck;
use super::frame_header;
use super::frame_type;

/// Identifiers of settings (RFC 9114 section 7.2.4.1, RFC 9204 section 5, RFC 9220 section 5, RFC 9297 section 5.1,
/// draft-ietf-webtrans-http3-02).
pub mod id {
    pub const QPACK_MAX_TABLE_CAPACITY: u64 = 0x1;
    pub const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
    pub const QPACK_BLOCKED_STREAMS: u64 = 0x7;
    pub const ENABLE_CONNECT_PROTOCOL: u64 = 0x8;
    pub const H3_DATAGRAM: u64 = 0x33;
    pub const ENABLE_WEBTRANSPORT: u64 = 0x2b60_3742;
}

/// The configuration of this side of a connection. Most fields are announced in SETTINGS.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The largest field section that this side accepts, in bytes before compression as RFC 9114 section 4.2.2 counts
    /// them. It also limits the length of a HEADERS frame. A larger section ends its request with H3_EXCESSIVE_LOAD,
    /// or the host answers it (`Event::HeadersTooLarge`).
    pub max_field_section_size: u64,
    /// The maximum number of field lines in a section, pseudo-header fields included. A section with more is treated
    /// as too large. It is not announced, because no setting exists for it.
    pub max_fields: u64,
    /// The limit of bytes of incomplete HEADERS and PUSH_PROMISE frames, on all streams together. Above it the
    /// connection is closed with H3_EXCESSIVE_LOAD. `None` means four times `max_field_section_size`.
    pub max_unfinished_size: Option<u64>,
    /// The limit of bytes that wait for the peer's QPACK encoder stream, on all streams together: field sections and
    /// the data after them. A stream that exceeds it is abandoned with H3_EXCESSIVE_LOAD.
    pub max_blocked_size: u64,
    /// Server: QUIC's limit of request streams that the client may have open. A frame about a stream above the limit
    /// is an error (RFC 9218 section 7.2, RFC 9297 section 2.1). `None`: such frames are not checked.
    pub max_requests: Option<u64>,
    /// The maximum size of the dynamic table of this side's QPACK decoder, in bytes.
    pub qpack_max_table_capacity: u64,
    /// The maximum number of streams that may wait for the peer's QPACK encoder stream.
    pub qpack_blocked_streams: u64,
    /// If true, the QPACK encoder refers to table entries that the peer may not have received yet, within the peer's
    /// limit. This saves a few bytes, but requests may have to wait for lost packets of each other.
    pub qpack_may_block: bool,
    /// True if extended CONNECT is supported (RFC 9220); otherwise a request with `:protocol` is malformed. Servers
    /// announce it; from a client it has no effect.
    pub enable_connect_protocol: bool,
    /// True if HTTP datagrams are supported (RFC 9297). The QUIC connection must then have DATAGRAM frames enabled.
    pub h3_datagram: bool,
    /// True if WebTransport streams are supported, which begin with 0x41 or 0x54. The settings of the WebTransport
    /// drafts are in `extra`.
    pub webtransport: bool,
    /// Client: the highest push ID that the server may use, sent in MAX_PUSH_ID (RFC 9114 section 7.2.7). `None`
    /// allows no push.
    pub max_push_id: Option<u64>,
    /// Further settings to send, as identifiers and values in their order.
    pub extra: Vec<(u64, u64)>,
    /// If set, these settings are announced in this order, in place of the settings that follow from the other fields.
    pub announced: Option<Vec<(u64, u64)>>,
    /// If true, the host validates the values of the peer's settings (see [`Connection::fail`] and
    /// [`Connection::set_received_settings`]), and only their encoding is checked here.
    ///
    /// [`Connection::fail`]: super::Connection::fail
    /// [`Connection::set_received_settings`]: super::Connection::set_received_settings
    pub host_checks_settings: bool,
    /// If true, each stream type, frame and batch of QPACK instructions is written separately, even an empty one.
    /// aioquic makes these writes, and tests with a mocked QUIC connection compare them.
    pub separate_writes: bool,
    /// The rules for request targets, sent or received.
    pub target_check: TargetCheck,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_field_section_size: 64 * 1024,
            max_fields: 2048,
            max_unfinished_size: None,
            max_blocked_size: 2 * 1024 * 1024,
            max_requests: None,
            qpack_max_table_capacity: 4096,
            qpack_blocked_streams: 16,
            qpack_may_block: false,
            enable_connect_protocol: false,
            h3_datagram: false,
            webtransport: false,
            max_push_id: None,
            extra: Vec::new(),
            announced: None,
            host_checks_settings: false,
            separate_writes: false,
            target_check: TargetCheck::Strict,
        }
    }
}

impl Settings {
    /// The settings to send, as identifiers and values in their order. Settings whose value is the default 0 are left
    /// out.
    pub fn pairs(&self) -> Vec<(u64, u64)> {
        if let Some(announced) = &self.announced {
            return announced.clone();
        }
        let mut pairs = vec![
            (id::QPACK_MAX_TABLE_CAPACITY, self.qpack_max_table_capacity),
            (id::MAX_FIELD_SECTION_SIZE, self.max_field_section_size),
            (id::QPACK_BLOCKED_STREAMS, self.qpack_blocked_streams),
        ];
        if self.enable_connect_protocol {
            pairs.push((id::ENABLE_CONNECT_PROTOCOL, 1));
        }
        if self.h3_datagram {
            pairs.push((id::H3_DATAGRAM, 1));
        }
        pairs.extend_from_slice(&self.extra);
        pairs
    }

    /// Encodes the SETTINGS frame.
    pub(super) fn to_frame(&self) -> Bytes {
        let mut payload = Vec::new();
        for (identifier, value) in self.pairs() {
            varint::put(&mut payload, identifier);
            varint::put(&mut payload, value);
        }
        frame_header::frame(frame_type::SETTINGS, &[&payload])
    }
}

/// The peer's SETTINGS in the order of the frame, including unknown settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerSettings {
    pairs: Vec<(u64, u64)>,
}

impl PeerSettings {
    /// Parses the payload of a SETTINGS frame. The values are not validated.
    pub fn parse(mut payload: &[u8]) -> Result<Self, ConnectionError> {
        let mut pairs = Vec::new();
        while !payload.is_empty() {
            let (identifier, value, used) = read_pair(payload).ok_or_else(|| {
                ConnectionError::new(Code::H3_FRAME_ERROR, "SETTINGS frame ends inside a setting")
            })?;
            payload = &payload[used..];
            pairs.push((identifier, value));
        }
        pairs.shrink_to_fit();
        let settings = Self { pairs };
        settings.validate_identifiers()?;
        Ok(settings)
    }

    /// Makes the settings by which a host replaces those that the peer has sent.
    pub fn from_pairs(pairs: Vec<(u64, u64)>) -> Self {
        Self { pairs }
    }

    pub fn pairs(&self) -> &[(u64, u64)] {
        &self.pairs
    }

    /// The value of a setting; `None` if the peer has not sent it.
    pub fn get(&self, identifier: u64) -> Option<u64> {
        self.pairs
            .iter()
            .find(|(candidate, _)| *candidate == identifier)
            .map(|&(_, value)| value)
    }

    /// True if the peer has sent the setting with a value other than 0.
    pub fn is_enabled(&self, identifier: u64) -> bool {
        self.get(identifier) == Some(1)
    }

    fn validate_identifiers(&self) -> Result<(), ConnectionError> {
        let mut identifiers: Vec<u64> = self
            .pairs
            .iter()
            .map(|&(identifier, _)| identifier)
            .collect();
        identifiers.sort_unstable();
        if let Some(twice) = identifiers.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(error(format!("setting 0x{:x} is included twice", twice[0])));
        }
        for &(identifier, _) in &self.pairs {
            // RFC 9114 section 7.2.4.1: identifiers of HTTP/2 settings that HTTP/3 does not have are an error.
            if matches!(identifier, 0x0 | 0x2..=0x5) {
                return Err(error(format!("setting 0x{identifier:x} is reserved")));
            }
        }
        Ok(())
    }

    /// Checks the values of the settings, and that they are consistent.
    pub fn validate_values(&self) -> Result<(), ConnectionError> {
        for &(identifier, value) in &self.pairs {
            // These settings may only have the values 0 and 1: RFC 9220 section 3 (RFC 8441 section 3), RFC 9297
            // section 2.1.1.
            let is_flag = matches!(
                identifier,
                id::ENABLE_CONNECT_PROTOCOL | id::H3_DATAGRAM | id::ENABLE_WEBTRANSPORT
            );
            if is_flag && value > 1 {
                return Err(error(format!(
                    "setting 0x{identifier:x} must be 0 or 1, not {value}"
                )));
            }
        }
        // draft-ietf-webtrans-http3-02 section 3.1: WebTransport requires HTTP datagrams.
        if self.is_enabled(id::ENABLE_WEBTRANSPORT) && !self.is_enabled(id::H3_DATAGRAM) {
            return Err(error("ENABLE_WEBTRANSPORT requires H3_DATAGRAM".into()));
        }
        Ok(())
    }
}

fn read_pair(payload: &[u8]) -> Option<(u64, u64, usize)> {
    let (identifier, used) = varint::get(payload)?;
    let (value, more) = varint::get(&payload[used..])?;
    Some((identifier, value, used + more))
}

fn error(reason: String) -> ConnectionError {
    ConnectionError::new(Code::H3_SETTINGS_ERROR, reason)
}
