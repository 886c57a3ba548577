//! One session: its state, its streams and its credit.
//!
//! Not here: the transitions of its state (`sessions`, `connect_stream`).

use std::collections::VecDeque;
use std::fmt;
use std::time::Instant;

use bytes::BytesMut;
use rustc_hash::FxHashSet;
use uringcore_h3::LocalError;
use uringcore_h3::capsule::Capsules;

use super::Draft;
use super::flow_control::FlowControl;

/// A session that has not ended.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// The server has answered with 2xx.
    pub is_open: bool,
    /// The draft in use, once the peer's SETTINGS are known.
    pub draft: Option<Draft>,
    /// Flow control, if both peers negotiated it.
    pub flow: Option<FlowControl>,
    /// The session's data streams.
    pub streams: FxHashSet<u64>,
    pub capsules: Capsules,
    /// Data that arrived on the CONNECT stream before the session was accepted; capsules are parsed after that
    /// (section 3.2).
    pub unread: BytesMut,
    /// The host waits for another stream, bidirectional or unidirectional.
    pub wants_stream: [bool; 2],
    /// Streams with bytes that wait for the session's credit, in turn.
    pub held_up: VecDeque<u64>,
    /// We have asked the peer to end the session.
    pub has_said_drain: bool,
    /// The peer has asked us to end the session.
    pub has_heard_drain: bool,
    /// The protocols that the client offers.
    pub protocols: Vec<String>,
    /// The client expects draft-02's confirmation.
    pub asks_for_two: bool,
    pub stats: SessionStats,
}

/// Counters of one session. Arrays are by direction of streams, bidirectional first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionStats {
    pub streams_opened: [u64; 2],
    pub streams_accepted: [u64; 2],
    /// Streams that are open in at least one direction.
    pub streams_open: u64,
    /// On streams, without headers.
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub datagrams_sent: u64,
    pub datagrams_received: u64,
    /// Dropped because they arrived before the session was accepted and there was no room.
    pub datagrams_dropped: u64,
}

/// A session that has ended for its host, until its CONNECT stream ends.
#[derive(Debug)]
pub(super) struct Closing {
    pub since: Instant,
    /// The peer has closed the session: only the end of its stream may follow.
    pub expects_end: bool,
    /// The peer's side has ended.
    pub is_ended: bool,
    /// All our data is acknowledged, or never will be.
    pub is_acknowledged: bool,
    /// The host was notified.
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

/// Why a command for a session failed. Nothing was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The session or its connection has ended, or the session's state does not allow this.
    Gone,
    /// The host's error: fields that make a message malformed, or a protocol that was not offered.
    Invalid(String),
    /// The peer does not accept a header section of that size (RFC 9114 section 4.2.2).
    TooLarge { size: u64, max: u64 },
    /// The server has announced that it accepts no further requests (RFC 9114 section 5.2).
    GoingAway,
    /// The server's limit of sessions at a time, from its SETTINGS, is reached.
    TooMany { max: u64 },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the session is over"),
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
                    "the server takes {max} session{s} on a connection at once"
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
