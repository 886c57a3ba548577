//! Priorities of responses (RFC 9218): the value of the `priority` field and of PRIORITY_UPDATE
//! frames, a Dictionary of Structured Fields (RFC 9651).
//!
//! Not here: which frame may come where (`uni.rs`, `control.rs`), and who is served when, which is
//! QUIC's and the host's.

use uringcore_wire::structured::{Parser, Value};

use super::qpack::Field;

/// How a response is to be served beside the others of its connection (RFC 9218 section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// 0, the most urgent, to 7.
    pub urgency: u8,
    /// True if a part of it is of use, so that it may share with others.
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
    /// What a priority field value says by itself.
    pub fn parse(value: &[u8]) -> Self {
        Signal::parse(value).over(Self::default())
    }

    /// What a message's `priority` field says by itself; the default if it has none.
    pub fn of(fields: &[Field]) -> Self {
        Signal::of(fields).unwrap_or_default().over(Self::default())
    }
}

/// What a priority field value says, and what it leaves open: to the defaults in a request, to the
/// request in a response (RFC 9218 section 8).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Signal {
    pub urgency: Option<u8>,
    pub incremental: Option<bool>,
}

impl Signal {
    /// Reads a priority field value. What is of another type or out of range is as if it were not
    /// there (RFC 9218 section 4), and a value that is no Dictionary is as if it were empty (RFC 9651
    /// section 4.2): nothing of it is an error.
    pub fn parse(value: &[u8]) -> Self {
        let mut signal = Self::default();
        let mut parser = Parser(value);
        let read = parser.dictionary(|key, value| signal.set(key, value));
        read.map_or_else(Self::default, |()| signal)
    }

    /// What a message's `priority` field says, if it has one. The lines of one field are one list (RFC
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

    /// What it says, and for the rest `base`.
    pub fn over(self, base: Priority) -> Priority {
        Priority {
            urgency: self.urgency.unwrap_or(base.urgency),
            incremental: self.incremental.unwrap_or(base.incremental),
        }
    }

    /// One member of the dictionary; of two with one key the later one counts, also where it says
    /// nothing that is understood.
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
