//! What one peer may ask of the sessions on its connection.

use std::time::Duration;

use super::Draft;

/// The bounds of one connection, each with what is done beyond it.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The drafts that are offered, in any order.
    pub drafts: Vec<Draft>,
    /// Sessions at once. A request for another is reset (H3_REQUEST_REJECTED).
    pub sessions: usize,
    /// Streams of the peer's that a session may have open, in both directions and in one. QUIC lets the
    /// peer open as many for all sessions together once there is one; beyond it the peer waits for
    /// credit. With flow control of sessions each has so many, and one that is opened all the same
    /// ends its session (WT_FLOW_CONTROL_ERROR).
    pub streams_bidi: u64,
    pub streams_uni: u64,
    /// Bytes that the peer may send on a session's streams before they are read, with flow control of
    /// sessions. Beyond it the peer waits for credit, or ends its session (WT_FLOW_CONTROL_ERROR). What
    /// is kept is bounded by QUIC's windows, with or without.
    pub window: u64,
    /// Streams that wait for their session to be asked for or accepted. Others are rejected
    /// (WT_BUFFERED_STREAM_REJECTED). Their data stays with QUIC.
    pub early_streams: usize,
    /// Bytes of datagrams that wait for their session. Others are dropped and counted.
    pub early_datagram_bytes: usize,
    /// Bytes of capsules that wait for their session to be accepted. With more of them it is reset
    /// (H3_EXCESSIVE_LOAD).
    pub early_capsule_bytes: usize,
    /// How long a stream may wait for its header or for its session to be asked for, and a session that is
    /// over for the peer's end of it: then they are rejected and stopped.
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
