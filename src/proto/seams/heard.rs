//! Whether a datagram was authentic.
//!
//! The state machine does not say what became of a datagram that it was given. What proves a path,
//! though, is that something authentic arrives there.
//!
//! Assumed of quinn-proto: its counters of received frames grow with each packet that it opens, and
//! with no other; a copy of one that came before is passed over.

use quinn_proto as quinn;

/// Grows with every authentic packet that is not a copy.
pub fn frames_received(conn: &quinn::Connection) -> u64 {
    let frames = conn.stats().frame_rx;
    [
        frames.acks,
        frames.ack_frequency,
        frames.crypto,
        frames.connection_close,
        frames.data_blocked,
        frames.datagram,
        u64::from(frames.handshake_done),
        frames.immediate_ack,
        frames.max_data,
        frames.max_stream_data,
        frames.max_streams_bidi,
        frames.max_streams_uni,
        frames.new_connection_id,
        frames.new_token,
        frames.path_challenge,
        frames.path_response,
        frames.ping,
        frames.reset_stream,
        frames.retire_connection_id,
        frames.stream_data_blocked,
        frames.streams_blocked_bidi,
        frames.streams_blocked_uni,
        frames.stop_sending,
        frames.stream,
    ]
    .iter()
    .sum()
}
