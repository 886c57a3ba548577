//! The events of sessions for their host.

use uringcore_h3::Field;
use uringcore_quic as quic;

use super::{Draft, SessionStats};

/// An event of a session. Events of one session are in order, and after [`EventKind::Refused`] and [`EventKind::Ended`] only
/// [`EventKind::Released`] follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// QUIC's identifier of the session's CONNECT stream.
    pub session_id: u64,
    pub what: EventKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// The server has accepted the session that we requested. `fields` are the response's regular ones.
    Accepted {
        fields: Vec<Field>,
        protocol: Option<String>,
        draft: Draft,
    },
    /// The server has refused the session that we requested.
    Refused { status: u16, fields: Vec<Field> },
    /// The peer has opened a stream. A readable event follows, even without data.
    Opened {
        stream_id: u64,
        unidirectional: bool,
    },
    /// QUIC's event of one of the session's streams, with applications' codes (`NO_CODE` if the peer's code is
    /// outside their range), or of stream credit, or a datagram.
    Quic(quic::Event),
    /// The peer has sent WT_DRAIN_SESSION, or GOAWAY. Emitted once.
    Draining,
    /// The session has ended, by either side. Its streams have been reset. `is_clean`: it was closed by a capsule
    /// or the end of the stream, with this code and reason. `stats` are the final ones.
    Ended {
        code: u32,
        reason: String,
        is_clean: bool,
        stats: SessionStats,
    },
    /// Follows a clean end and a refusal: our last data on the CONNECT stream is acknowledged, or never will be. So
    /// the connection can be closed without loss.
    Released,
}
