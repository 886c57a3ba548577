//! Priorities of responses (RFC 9218): parses the value of the `priority` field and of PRIORITY_UPDATE frames, which
//! is a Dictionary of Structured Fields (RFC 9651).
//!
//! Not here: the streams on which PRIORITY_UPDATE is allowed (`control_frame_parser`, `control_stream`), and
//! scheduling, which QUIC and the host do.

use uringcore_wire::structured_fields::{Parser, Value};

use super::qpack::Field;

/// The priority of a response within its connection (RFC 9218 section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// From 0, the most urgent, to 7.
    pub urgency: u8,
    /// True if the client can use parts of the response: it may then share bandwidth with other responses.
    pub incremental: bool,
}

impl Default for Priority {
    /// The defaults of RFC 9218 sections 4.1 and 4.2.
    fn default() -> Self {
        Self {
            urgency: 3,
            incremental: false,
        }
    }
}

impl Priority {
    /// Parses a field value. A parameter that is missing in the value gets its default.
    pub fn parse(value: &[u8]) -> Self {
        Signal::parse(value).over(Self::default())
    }

    /// The priority in a message's `priority` field; the default if there is no such field.
    pub fn of(fields: &[Field]) -> Self {
        Signal::of(fields).unwrap_or_default().over(Self::default())
    }
}

/// The parameters of a priority field value, each `None` if the value does not have it. Missing parameters mean RFC
/// 9218's defaults in a request, and the request's values in a response (RFC 9218 section 8).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Signal {
    pub urgency: Option<u8>,
    pub incremental: Option<bool>,
}

impl Signal {
    /// Parses a priority field value. Every value is valid: parameters of another type or out of range are ignored
    /// (RFC 9218 section 4), and a value that is not a Dictionary counts as empty (RFC 9651 section 4.2).
    pub fn parse(value: &[u8]) -> Self {
        let mut signal = Self::default();
        let mut parser = Parser(value);
        let read = parser.dictionary(|key, value| signal.set(key, value));
        read.map_or_else(Self::default, |()| signal)
    }

    /// Parses the `priority` field of a message; `None` if it has none. Several lines of the field form one list (RFC
    /// 9110 section 5.3).
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

    /// Fills parameters that are missing in `self` with those of `base`.
    pub fn over(self, base: Priority) -> Priority {
        Priority {
            urgency: self.urgency.unwrap_or(base.urgency),
            incremental: self.incremental.unwrap_or(base.incremental),
        }
    }

    /// Applies one member of the Dictionary. If a key occurs twice the later member counts, even if it is ignored.
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
