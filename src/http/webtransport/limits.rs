//! The limits of one peer for the sessions on its connection.

use std::time::Duration;

use super::Draft;

/// The limits of one connection. The comment of each limit says what happens above it.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The drafts to announce, in any order.
    pub drafts: Vec<Draft>,
    /// The maximum number of sessions at a time. A request for another one is reset with H3_REQUEST_REJECTED.
    pub sessions: usize,
    /// The maximum number of streams that the peer may have open in a session: bidirectional, and (next field)
    /// unidirectional ones. When the first session begins, QUIC's limit is raised by these numbers, for all sessions
    /// together; above it the peer waits for credit. With flow control of sessions each session has these limits, and
    /// a stream above them ends the session with WT_FLOW_CONTROL_ERROR.
    pub streams_bidi: u64,
    pub streams_uni: u64,
    /// With flow control of sessions, the maximum number of bytes that the peer may send on a session's streams before
    /// they are read. Above it the peer has to wait for credit; otherwise its session ends with WT_FLOW_CONTROL_ERROR.
    /// QUIC's windows bound the stored bytes in any case.
    pub window: u64,
    /// The maximum number of streams that wait until their session is requested or accepted. Others are rejected with
    /// WT_BUFFERED_STREAM_REJECTED. Their data stays in QUIC.
    pub early_streams: usize,
    /// The maximum number of bytes of datagrams that wait until their session is accepted. Others are dropped and
    /// counted.
    pub early_datagram_bytes: usize,
    /// The maximum number of bytes of capsules that wait until their session is accepted. Above it the session is
    /// reset with H3_EXCESSIVE_LOAD.
    pub early_capsule_bytes: usize,
    /// The time that a stream may wait for its header, or for the request of its session, before it is rejected. Also
    /// the time that a closed session waits until the peer ends the CONNECT stream.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            drafts: Draft::ALL.to_vec(),
            sessions: 1024,
            streams_bidi: 256,
            streams_uni: 256,
            window: 16 << 20,
            early_streams: 64,
            early_datagram_bytes: 64 << 10,
            early_capsule_bytes: 4 << 10,
            patience: Duration::from_secs(10),
        }
    }
}
