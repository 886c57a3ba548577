//! What sessions tell their host.

use uringcore_h3::Field;
use uringcore_quic as quic;

use super::{Draft, SessionStats};

/// Something that happened to a session. Those of one session come in order, and behind
/// [`What::Refused`] and [`What::Ended`] nothing but [`What::Released`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// QUIC's identifier of the session's CONNECT stream.
    pub session_id: u64,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The server has taken the session that we asked for. `fields` are the response's regular ones.
    Accepted {
        fields: Vec<Field>,
        protocol: Option<String>,
        draft: Draft,
    },
    /// It has not.
    Refused { status: u16, fields: Vec<Field> },
    /// The peer has opened a stream. That it can be read is told next, whether or not there is data.
    Opened {
        stream_id: u64,
        unidirectional: bool,
    },
    /// What QUIC says of one of the session's streams, with applications' codes (`NO_CODE` where the peer's
    /// is none), that another may be opened, or a datagram.
    Quic(quic::Event),
    /// The peer asks for the session to be brought to its end, or is going away. Told once.
    Draining,
    /// The session is over, whoever has ended it. Its streams have been reset. `is_clean`: by a word of
    /// either side, whose code and reason these are. `stats` are its last.
    Ended {
        code: u32,
        reason: String,
        is_clean: bool,
        stats: SessionStats,
    },
    /// After an end that was clean, and after a refusal: what we have said last on the CONNECT stream is
    /// acknowledged, or never will be. So the connection can be closed without a loss.
    Released,
}
