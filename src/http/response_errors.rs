//! The errors of a response: a request that the application does not get, a part that was not sent, and a response that
//! was abandoned.

use std::fmt;

/// The response to a request that the application does not get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    pub detail: &'static str,
}

/// The reason for which a part of a response was not sent. Either all of a part is sent or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendError {
    /// The stream or the connection has ended. An event reports the end, now or soon.
    Gone,
    /// An error of the application: a field that makes the message malformed, or an order of calls that HTTP does not
    /// allow.
    Invalid(String),
    /// The header section is larger than the client accepts (RFC 9114 section 4.2.2).
    TooLarge { size: u64, max: u64 },
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the stream has ended"),
            Self::Invalid(reason) => f.write_str(reason),
            Self::TooLarge { size, max } => {
                write!(
                    f,
                    "the header section takes {size} bytes, the client accepts {max}"
                )
            }
        }
    }
}

impl std::error::Error for SendError {}

/// The reason why a response was abandoned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooSlow {
    /// The client read nothing within the time-out.
    Nothing,
    /// The client read at less than the minimum rate.
    Little,
}

impl TooSlow {
    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing_taken",
            Self::Little => "little_taken",
        }
    }
}

impl Refusal {
    pub const fn new(status: u16, detail: &'static str) -> Self {
        Self { status, detail }
    }

    /// True if the request itself was wrong. A 425 is not the client's fault: it repeats the request later.
    pub fn is_a_fault(&self) -> bool {
        self.status != 425
    }
}
