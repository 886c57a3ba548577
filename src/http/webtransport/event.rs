//! The events of sessions for their host.

use uringcore_h3::Field;
use uringcore_quic as quic;

use super::{Draft, SessionStats};

/// An event of a session. Events of one session are in order. After [`EventKind::Refused`] and [`EventKind::Ended`]
/// only [`EventKind::Released`] follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The session identifier, which is the stream identifier of its CONNECT stream.
    pub session_id: u64,
    pub what: EventKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// Client: the server has accepted the session. `fields` are those of the response, without pseudo-header fields.
    Accepted {
        fields: Vec<Field>,
        protocol: Option<String>,
        draft: Draft,
    },
    /// Client: the server has refused the session.
    Refused { status: u16, fields: Vec<Field> },
    /// The peer has opened a stream. A `StreamReadable` event follows, even if there is no data.
    Opened {
        stream_id: u64,
        unidirectional: bool,
    },
    /// An event of QUIC about one of the session's streams, about the number of streams that may be opened, or about a
    /// datagram. Error codes are those of the application (`NO_CODE` if the peer's code is outside their range).
    Quic(quic::Event),
    /// The peer has sent WT_DRAIN_SESSION or GOAWAY. This event comes once.
    Draining,
    /// This side or the peer has ended the session, and the session's streams were reset. `is_clean` is true if the
    /// session was closed by a capsule or by the end of its CONNECT stream, with this code and reason. `stats` are the
    /// final counters.
    Ended {
        code: u32,
        reason: String,
        is_clean: bool,
        stats: SessionStats,
    },
    /// Comes after a clean end and after a refusal, when this side's last data on the CONNECT stream was acknowledged,
    /// or never will be. From then on closing the connection loses no data.
    Released,
}
