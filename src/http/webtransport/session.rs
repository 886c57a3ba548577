//! One session: how far it is, and what it has of streams and credit.
//!
//! Not here: what moves it from one state to the next (`sessions`, `on_connect_data`).

use std::collections::VecDeque;
use std::fmt;
use std::time::Instant;

use bytes::BytesMut;
use rustc_hash::FxHashSet;
use uringcore_h3::LocalError;
use uringcore_h3::capsule::Capsules;

use super::Draft;
use super::flow::Flow;

/// A session that is not over.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// The server has answered with 2xx.
    pub is_open: bool,
    /// What is spoken, once the peer's SETTINGS are known.
    pub draft: Option<Draft>,
    /// If both sides want it.
    pub flow: Option<Flow>,
    /// Its data streams.
    pub streams: FxHashSet<u64>,
    pub capsules: Capsules,
    /// What came on the CONNECT stream before the session was accepted: no capsules before that
    /// (section 3.2).
    pub unread: BytesMut,
    /// The host waits for another stream, in both directions or in one.
    pub wants_stream: [bool; 2],
    /// Streams with bytes that wait for the session's credit, in turn.
    pub held_up: VecDeque<u64>,
    /// The peer was asked to bring the session to its end.
    pub has_said_drain: bool,
    /// The peer has asked for that.
    pub has_heard_drain: bool,
    /// The protocols that the client offers.
    pub protocols: Vec<String>,
    /// The client asks for draft-02's word.
    pub asks_for_two: bool,
    pub stats: SessionStats,
}

/// Counters of one session. By direction of streams: bidirectional first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionStats {
    pub streams_opened: [u64; 2],
    pub streams_accepted: [u64; 2],
    /// Not over in either direction.
    pub streams_open: u64,
    /// On streams, headers aside.
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub datagrams_sent: u64,
    pub datagrams_received: u64,
    /// Came before the session was accepted, and there was no room.
    pub datagrams_dropped: u64,
}

/// A session that is over for its host, until its CONNECT stream is.
#[derive(Debug)]
pub(super) struct Closing {
    pub since: Instant,
    /// The peer has said that it closes: only the end of its stream may follow.
    pub expects_end: bool,
    /// Nothing more comes from the peer.
    pub is_ended: bool,
    /// All of ours is acknowledged, or will never be.
    pub is_acknowledged: bool,
    /// The host knows.
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

/// Why something was not done for a session. Nothing was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The session or its connection is over, or the session is not in the state for this.
    Gone,
    /// The host's fault: fields that make a message malformed, a protocol that was not offered.
    Invalid(String),
    /// The peer takes no header section of that size (RFC 9114 section 4.2.2).
    TooLarge { size: u64, max: u64 },
    /// The server has said that it takes no further requests (RFC 9114 section 5.2).
    GoingAway,
    /// There are as many sessions as the server takes at once, says its SETTINGS.
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
                f.write_str("the server is going away: it takes no further sessions here")
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
