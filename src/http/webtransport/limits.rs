//! The limits of one peer for the sessions on its connection.

use std::time::Duration;

use super::Draft;

/// The bounds of one connection, each with the reaction above it.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The announced drafts, in any order.
    pub drafts: Vec<Draft>,
    /// Sessions at a time. A request for another is reset (H3_REQUEST_REJECTED).
    pub sessions: usize,
    /// Streams that the peer may have open in a session, bidirectional and unidirectional. QUIC lets the peer open
    /// this many for all sessions together once there is one; above it the peer waits for credit. With flow control
    /// each session has this limit, and a stream above it ends the session (WT_FLOW_CONTROL_ERROR).
    pub streams_bidi: u64,
    pub streams_uni: u64,
    /// Bytes that the peer may send on a session's streams before they are read, with flow control of sessions.
    /// Above it the peer waits for credit, or its session ends (WT_FLOW_CONTROL_ERROR). QUIC's windows bound the
    /// stored bytes in any case.
    pub window: u64,
    /// Streams that wait until their session is requested or accepted. Others are rejected
    /// (WT_BUFFERED_STREAM_REJECTED). Their data stays in QUIC.
    pub early_streams: usize,
    /// Bytes of datagrams that wait for their session. Others are dropped and counted.
    pub early_datagram_bytes: usize,
    /// Bytes of capsules that wait until their session is accepted. With more the session is reset
    /// (H3_EXCESSIVE_LOAD).
    pub early_capsule_bytes: usize,
    /// How long a stream may wait for its header or for its session's request, and how long a closed session waits
    /// for the peer's end. After that they are rejected and stopped.
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
