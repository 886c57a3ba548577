//! One session: its state, its streams and its credit.
//!
//! Not here: the changes of its state (`sessions`, `connect_stream`).

use std::collections::VecDeque;
use std::fmt;
use std::time::Instant;

use bytes::BytesMut;
use rustc_hash::FxHashSet;
use uringcore_h3::LocalError;
use uringcore_h3::capsule::Capsules;

use super::Draft;
use super::flow_control::FlowControl;

/// A session that was requested and has not ended.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// True if the server has accepted the session.
    pub is_open: bool,
    /// The draft version that this side and the peer use. `None` before the peer's SETTINGS are known.
    pub draft: Option<Draft>,
    /// The flow control of the session. `None` unless both sides support it.
    pub flow: Option<FlowControl>,
    /// The identifiers of the session's data streams.
    pub streams: FxHashSet<u64>,
    pub capsules: Capsules,
    /// Data on the CONNECT stream that arrived before the session was accepted. Its capsules are parsed afterwards
    /// (draft section 3.2).
    pub unread: BytesMut,
    /// True if the host waits until it may open another stream, bidirectional or unidirectional.
    pub wants_stream: [bool; 2],
    /// Streams with bytes that wait for the session's credit, in the order in which they get it.
    pub waiting_streams: VecDeque<u64>,
    /// True if this side has asked the peer to end the session (WT_DRAIN_SESSION).
    pub has_sent_drain: bool,
    /// True if the peer has asked this side to end the session (WT_DRAIN_SESSION).
    pub has_received_drain: bool,
    /// Server: the application protocols that the client offers.
    pub protocols: Vec<String>,
    /// Server: the client expects the field with which a server confirms draft-02.
    pub confirms_draft_02: bool,
    pub stats: SessionStats,
}

/// The counters of one session. In arrays the first number is for bidirectional streams, the second for unidirectional
/// ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionStats {
    pub streams_opened: [u64; 2],
    pub streams_accepted: [u64; 2],
    /// The number of streams of which at least one direction is open.
    pub streams_open: u64,
    /// Bytes on the session's streams, without stream headers.
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub datagrams_sent: u64,
    pub datagrams_received: u64,
    /// Datagrams that arrived before the session was accepted, and for which there was no room.
    pub datagrams_dropped: u64,
}

/// The CONNECT stream of a session that has ended for the host. It is tracked until the stream ends.
#[derive(Debug)]
pub(super) struct Closing {
    pub since: Instant,
    /// True if the peer has sent WT_CLOSE_SESSION. After that only the end of the CONNECT stream may follow.
    pub expects_end: bool,
    /// True if the peer's direction of the stream has ended.
    pub is_ended: bool,
    /// True if all data of this side was acknowledged, or never will be.
    pub is_acknowledged: bool,
    /// True if the host has got the `Released` event.
    pub is_reported: bool,
}

impl Closing {
    pub fn new(since: Instant) -> Self {
        Self {
            since,
            expects_end: false,
            is_ended: false,
            is_acknowledged: false,
            is_reported: false,
        }
    }

    pub fn is_over(&self) -> bool {
        self.is_ended && self.is_acknowledged
    }
}

/// The reason why a command for a session failed. The command has done nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The session or its connection has ended, or the session's state does not allow the command.
    Gone,
    /// An error of the host: a field that makes the message malformed, or a protocol that was not offered.
    Invalid(String),
    /// The header section is larger than the peer accepts (RFC 9114 section 4.2.2).
    TooLarge { size: u64, max: u64 },
    /// The server has sent GOAWAY and accepts no further requests (RFC 9114 section 5.2).
    GoingAway,
    /// The server's limit of sessions at a time, from its SETTINGS, is reached.
    TooMany { max: u64 },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the session has ended"),
            Self::Invalid(reason) => f.write_str(reason),
            Self::TooLarge { size, max } => write!(
                f,
                "the header section takes {size} bytes, the peer accepts {max}"
            ),
            Self::GoingAway => {
                f.write_str("the server is going away: it accepts no further sessions")
            }
            Self::TooMany { max } => {
                let s = if *max == 1 { "" } else { "s" };
                write!(
                    f,
                    "the server accepts {max} session{s} at a time on a connection"
                )
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<LocalError> for Error {
    fn from(error: LocalError) -> Self {
        match error {
            LocalError::FieldSectionTooLarge { size, max } => Self::TooLarge { size, max },
            LocalError::Closed => Self::Gone,
            LocalError::GoingAway => Self::GoingAway,
            other => Self::Invalid(other.to_string()),
        }
    }
}
