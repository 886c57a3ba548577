//! Priorities of responses (RFC 9218): the value of the `priority` field and of PRIORITY_UPDATE frames, a
//! Dictionary of Structured Fields (RFC 9651).
//!
//! Not here: the allowed positions of frames (`unidirectional_stream.rs`, `control_stream.rs`), and scheduling, which
//! QUIC and the host do.

use uringcore_wire::structured_fields::{Parser, Value};

use super::qpack::Field;

/// The priority of a response within its connection (RFC 9218 section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// 0, the most urgent, to 7.
    pub urgency: u8,
    /// True if a part of the response is useful, so that it may share bandwidth with others.
    pub incremental: bool,
}

impl Default for Priority {
    /// RFC 9218 sections 4.1 and 4.2.
    fn default() -> Self {
        Self {
            urgency: 3,
            incremental: false,
        }
    }
}

impl Priority {
    /// The priority of a field value alone.
    pub fn parse(value: &[u8]) -> Self {
        Signal::parse(value).over(Self::default())
    }

    /// The priority of a message's `priority` field alone; the default if it has none.
    pub fn of(fields: &[Field]) -> Self {
        Signal::of(fields).unwrap_or_default().over(Self::default())
    }
}

/// A priority field value with its omissions: they default to RFC 9218's values in a request, and to the request's
/// in a response (RFC 9218 section 8).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Signal {
    pub urgency: Option<u8>,
    pub incremental: Option<bool>,
}

impl Signal {
    /// Parses a priority field value. Members of another type or out of range are ignored (RFC 9218 section 4), and
    /// a value that is not a Dictionary counts as empty (RFC 9651 section 4.2): no value is an error.
    pub fn parse(value: &[u8]) -> Self {
        let mut signal = Self::default();
        let mut parser = Parser(value);
        let read = parser.dictionary(|key, value| signal.set(key, value));
        read.map_or_else(Self::default, |()| signal)
    }

    /// The `priority` field of a message, if it has one. The lines of one field form one list (RFC 9110 section
    /// 5.3).
    pub fn of<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Option<Self> {
        let mut lines = fields
            .iter()
            .filter(|(name, _)| name.as_ref() == b"priority")
            .map(|(_, value)| value.as_ref());
        let first = lines.next()?;
        let Some(second) = lines.next() else {
            return Some(Self::parse(first));
        };
        let values: Vec<&[u8]> = [first, second].into_iter().chain(lines).collect();
        Some(Self::parse(&values.join(&b", "[..])))
    }

    /// The priority with omissions taken from `base`.
    pub fn over(self, base: Priority) -> Priority {
        Priority {
            urgency: self.urgency.unwrap_or(base.urgency),
            incremental: self.incremental.unwrap_or(base.incremental),
        }
    }

    /// Applies one member of the dictionary; of two with one key the later one counts, even if it is ignored.
    fn set(&mut self, key: &[u8], value: Value<'_>) {
        match key {
            b"u" => {
                self.urgency = match value {
                    Value::Integer(urgency @ 0..=7) => Some(urgency as u8),
                    _ => None,
                };
            }
            b"i" => {
                self.incremental = match value {
                    Value::Boolean(incremental) => Some(incremental),
                    _ => None,
                };
            }
            _ => {}
        }
    }
}
