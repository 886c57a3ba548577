//! The settings of both sides (RFC 9113 section 6.5, RFC 8441 section 3, RFC 9218 section 2.1).

use super::error::{Code, Fault};
use super::frame_codec::{INITIAL_WINDOW, PAYLOAD_MAX, WINDOW_MAX};
use super::limits::Limits;

mod id {
    pub const HEADER_TABLE_SIZE: u16 = 0x1;
    pub const ENABLE_PUSH: u16 = 0x2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    pub const INITIAL_WINDOW_SIZE: u16 = 0x4;
    pub const MAX_FRAME_SIZE: u16 = 0x5;
    pub const MAX_HEADER_LIST_SIZE: u16 = 0x6;
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
    pub const NO_RFC7540_PRIORITIES: u16 = 0x9;
}

/// The flow-control window of a stream for the content of a request. Over HTTP/3 it has the same size.
pub const STREAM_WINDOW: u32 = 1 << 20;

/// Returns the settings of this side.
pub fn ours(limits: &Limits) -> Vec<(u16, u32)> {
    let bounded = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    let mut settings = vec![
        (
            id::MAX_CONCURRENT_STREAMS,
            bounded(limits.requests.open_requests),
        ),
        (id::INITIAL_WINDOW_SIZE, STREAM_WINDOW),
        (id::MAX_HEADER_LIST_SIZE, bounded(limits.sections.bytes)),
        // The priorities of RFC 7540 are ignored, and those of RFC 9218 are used.
        (id::NO_RFC7540_PRIORITIES, 1),
    ];
    if !limits.requests.protocols.is_empty() {
        settings.push((id::ENABLE_CONNECT_PROTOCOL, 1));
    }
    settings
}

/// The client's settings that this side uses.
#[derive(Debug)]
pub struct PeerSettings {
    pub initial_window: i64,
    pub frame_max: usize,
    /// The maximum size of a header section; `None` means no limit.
    pub section_max: Option<u64>,
    pub table_max: u32,
    no_rfc7540_priorities: Option<bool>,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            initial_window: INITIAL_WINDOW,
            frame_max: PAYLOAD_MAX,
            section_max: None,
            table_max: super::hpack::TABLE_BYTES as u32,
            no_rfc7540_priorities: None,
        }
    }
}

impl PeerSettings {
    /// Applies the payload of a SETTINGS frame. Returns the smallest SETTINGS_HEADER_TABLE_SIZE in it.
    pub fn apply(&mut self, payload: &[u8]) -> Result<Option<u32>, Fault> {
        let mut smallest: Option<u32> = None;
        for setting in payload.chunks_exact(6) {
            let &[a, b, c, d, e, f] = setting else {
                continue;
            };
            let value = u32::from_be_bytes([c, d, e, f]);
            match u16::from_be_bytes([a, b]) {
                id::HEADER_TABLE_SIZE => {
                    smallest = Some(smallest.map_or(value, |before| before.min(value)));
                    self.table_max = value;
                }
                id::ENABLE_PUSH if value > 1 => {
                    return Err(Fault::protocol("ENABLE_PUSH is neither 0 nor 1"));
                }
                id::INITIAL_WINDOW_SIZE => {
                    if i64::from(value) > WINDOW_MAX {
                        let reason = "INITIAL_WINDOW_SIZE is too large";
                        return Err(Fault::Connection(Code::FlowControlError, reason));
                    }
                    self.initial_window = i64::from(value);
                }
                id::MAX_FRAME_SIZE => {
                    let size = value as usize;
                    if !(PAYLOAD_MAX..1 << 24).contains(&size) {
                        return Err(Fault::protocol("MAX_FRAME_SIZE is out of range"));
                    }
                    self.frame_max = size;
                }
                id::MAX_HEADER_LIST_SIZE => self.section_max = Some(u64::from(value)),
                id::ENABLE_CONNECT_PROTOCOL if value > 1 => {
                    return Err(Fault::protocol(
                        "ENABLE_CONNECT_PROTOCOL is neither 0 nor 1",
                    ));
                }
                id::NO_RFC7540_PRIORITIES => self.no_rfc7540_priorities(value)?,
                // Unknown settings are ignored (RFC 9113 section 6.5.2). The server opens no streams.
                _ => {}
            }
        }
        Ok(smallest)
    }

    /// The value must not change after the first SETTINGS (RFC 9218 section 2.1).
    fn no_rfc7540_priorities(&mut self, value: u32) -> Result<(), Fault> {
        let is_on = match value {
            0 => false,
            1 => true,
            _ => {
                return Err(Fault::protocol("NO_RFC7540_PRIORITIES is neither 0 nor 1"));
            }
        };
        match self.no_rfc7540_priorities.replace(is_on) {
            Some(before) if before != is_on => {
                Err(Fault::protocol("NO_RFC7540_PRIORITIES has changed"))
            }
            _ => Ok(()),
        }
    }
}
