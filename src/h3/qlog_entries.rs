//! Entries about frames and streams for the host's qlog. They are stored only after the host has enabled them.
//!
//! Not here: qlog's names and formats, which the host applies.

use uringcore_wire::varint;

use super::field_validation::Line;
use super::qpack::Field;

/// A frame, or the type of a stream, that was sent or received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Logged {
    /// The type of a unidirectional stream (RFC 9114 section 6.2), or of a WebTransport stream.
    StreamType {
        stream_id: u64,
        stream_type: u64,
        push_id: Option<u64>,
    },
    /// A DATA, HEADERS or PUSH_PROMISE frame; `length` is the number of bytes of its payload.
    Frame {
        is_sent: bool,
        stream_id: u64,
        length: u64,
        frame: LoggedFrame,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoggedFrame {
    Data,
    Headers(Vec<Field>),
    PushPromise { push_id: u64, fields: Vec<Field> },
}

/// Collects entries until the host takes them, which it does after each call. `None` if qlog is off.
#[derive(Debug, Default)]
pub(super) struct QlogEntries(Option<Vec<Logged>>);

impl QlogEntries {
    pub fn open(&mut self) {
        self.0.get_or_insert_default();
    }

    pub fn take(&mut self) -> Vec<Logged> {
        self.0.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub fn stream_type(&mut self, stream_id: u64, stream_type: u64, push_id: Option<u64>) {
        if let Some(log) = &mut self.0 {
            log.push(Logged::StreamType {
                stream_id,
                stream_type,
                push_id,
            });
        }
    }

    pub fn data(&mut self, is_sent: bool, stream_id: u64, length: u64) {
        if let Some(log) = &mut self.0 {
            log.push(Logged::Frame {
                is_sent,
                stream_id,
                length,
                frame: LoggedFrame::Data,
            });
        }
    }

    /// Adds a field section that this side sends; `length` is the number of bytes of its frame's payload.
    pub fn sent<'a>(
        &mut self,
        stream_id: u64,
        length: usize,
        promise: Option<u64>,
        lines: impl Iterator<Item = Line<'a>>,
    ) {
        if self.0.is_some() {
            let owned = |bytes: &[u8]| bytes.to_vec().into();
            let fields = lines.map(|(n, v)| (owned(n), owned(v))).collect();
            self.push_section(true, stream_id, length, promise, fields);
        }
    }

    /// Adds a received field section of `length` encoded bytes. `promise` is the push ID before the section in a PUSH_PROMISE
    /// frame.
    pub fn received(
        &mut self,
        stream_id: u64,
        length: usize,
        promise: Option<u64>,
        fields: &[Field],
    ) {
        if self.0.is_some() {
            let id = promise.map_or(0, varint::size);
            self.push_section(false, stream_id, length + id, promise, fields.to_vec());
        }
    }

    fn push_section(
        &mut self,
        is_sent: bool,
        stream_id: u64,
        length: usize,
        promise: Option<u64>,
        fields: Vec<Field>,
    ) {
        if let Some(log) = &mut self.0 {
            log.push(Logged::Frame {
                is_sent,
                stream_id,
                length: length as u64,
                frame: match promise {
                    Some(push_id) => LoggedFrame::PushPromise { push_id, fields },
                    None => LoggedFrame::Headers(fields),
                },
            });
        }
    }
}
