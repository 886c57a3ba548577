//! SETTINGS (RFC 9114 section 7.2.4): ours, and parsing of the peer's.

use bytes::Bytes;
use uringcore_wire::varint;

use super::error::{Code, ConnectionError};
use super::field_validation::TargetCheck;
use super::frame;

/// Setting identifiers (RFC 9114 section 7.2.4.1, RFC 9204 section 5, RFC 9220 section 5, RFC 9297
/// section 5.1, draft-ietf-webtrans-http3-02).
pub mod id {
    pub const QPACK_MAX_TABLE_CAPACITY: u64 = 0x1;
    pub const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
    pub const QPACK_BLOCKED_STREAMS: u64 = 0x7;
    pub const ENABLE_CONNECT_PROTOCOL: u64 = 0x8;
    pub const H3_DATAGRAM: u64 = 0x33;
    pub const ENABLE_WEBTRANSPORT: u64 = 0x2b60_3742;
}

/// Our side of an HTTP/3 connection.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The largest field section that we accept, in bytes as RFC 9114 section 4.2.2 counts them, uncompressed. It
    /// also bounds a HEADERS frame. A larger one ends its request with H3_EXCESSIVE_LOAD, or is answered by the
    /// host (`Event::HeadersTooLarge`).
    pub max_field_section_size: u64,
    /// The limit of field lines in a section, including pseudo-header fields; a section with more counts as too
    /// large. It is not announced, because there is no such setting.
    pub max_fields: u64,
    /// The limit of incomplete HEADERS and PUSH_PROMISE frames, on all streams together; above it the connection is
    /// closed with H3_EXCESSIVE_LOAD. `None` is four times `max_field_section_size`.
    pub max_unfinished_size: Option<u64>,
    /// The limit of all data that waits for the peer's QPACK encoder stream, on all streams together: field
    /// sections and the data after them. A stream that exceeds it is abandoned with H3_EXCESSIVE_LOAD.
    pub max_blocked_size: u64,
    /// QUIC's limit of open requests for the client, if the host sets it. A frame about a stream above it is an
    /// error (RFC 9218 section 7.2, RFC 9297 section 2.1). Servers only.
    pub max_requests: Option<u64>,
    /// The size of the dynamic table of our QPACK decoder, in bytes.
    pub qpack_max_table_capacity: u64,
    /// How many streams may wait for the peer's QPACK encoder stream.
    pub qpack_blocked_streams: u64,
    /// Our QPACK encoder refers to table entries that the peer may not have yet, within its limit. That saves a few
    /// bytes, but requests may have to wait for each other's lost packets.
    pub qpack_may_block: bool,
    /// Extended CONNECT is supported (RFC 9220); without it a request with `:protocol` is malformed. Sent by
    /// servers; harmless from clients.
    pub enable_connect_protocol: bool,
    /// HTTP datagrams are supported (RFC 9297). The QUIC connection must have DATAGRAM frames enabled then.
    pub h3_datagram: bool,
    /// WebTransport streams are supported: 0x41 and 0x54 begin them. `extra` has the settings of the drafts that
    /// announce it.
    pub webtransport: bool,
    /// The highest push ID that a server may use, sent in MAX_PUSH_ID (RFC 9114 section 7.2.7); `None` allows no
    /// push. Clients only.
    pub max_push_id: Option<u64>,
    /// Further settings to send, in this order: identifier and value.
    pub extra: Vec<(u64, u64)>,
    /// The settings to send, in this order, instead of those from the fields above.
    pub announced: Option<Vec<(u64, u64)>>,
    /// The host validates the values of the peer's settings, see [`Connection::fail`] and
    /// [`Connection::set_received_settings`]. Only their form is checked here.
    ///
    /// [`Connection::fail`]: super::Connection::fail
    /// [`Connection::set_received_settings`]: super::Connection::set_received_settings
    pub host_checks_settings: bool,
    /// Each stream type, frame and batch of QPACK instructions is a write of its own, even an empty one. aioquic
    /// makes these writes, and mocks of a QUIC connection compare them.
    pub separate_writes: bool,
    /// The validation of request targets, sent or received.
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
    /// Identifiers and values, in the order in which they are sent. Zeros that are the default are left out.
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

    /// The whole SETTINGS frame.
    pub(super) fn to_frame(&self) -> Bytes {
        let mut payload = Vec::new();
        for (identifier, value) in self.pairs() {
            varint::put(&mut payload, identifier);
            varint::put(&mut payload, value);
        }
        frame::frame(frame::frame_type::SETTINGS, &[&payload])
    }
}

/// The peer's SETTINGS, in the received order, including unknown ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerSettings {
    pairs: Vec<(u64, u64)>,
}

impl PeerSettings {
    /// Parses the payload of a SETTINGS frame without validating the values.
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

    /// Settings with which the host replaces the peer's.
    pub fn from_pairs(pairs: Vec<(u64, u64)>) -> Self {
        Self { pairs }
    }

    pub fn pairs(&self) -> &[(u64, u64)] {
        &self.pairs
    }

    /// The value of a setting that the peer sent.
    pub fn get(&self, identifier: u64) -> Option<u64> {
        self.pairs
            .iter()
            .find(|(candidate, _)| *candidate == identifier)
            .map(|&(_, value)| value)
    }

    /// A setting that is 0 unless it was sent.
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
            // HTTP/2's settings without an equivalent (RFC 9114 section 7.2.4.1).
            if matches!(identifier, 0x0 | 0x2..=0x5) {
                return Err(error(format!("setting 0x{identifier:x} is reserved")));
            }
        }
        Ok(())
    }

    /// Validates the values, each by itself and together.
    pub fn validate_values(&self) -> Result<(), ConnectionError> {
        for &(identifier, value) in &self.pairs {
            // RFC 9220 section 3 (RFC 8441 section 3), RFC 9297 section 2.1.1.
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
        // draft-ietf-webtrans-http3-02 section 3.1: WebTransport needs HTTP datagrams.
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
