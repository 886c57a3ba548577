//! Detects if a received datagram was authentic.
//!
//! An authentic packet that arrives on a path proves that the path works. quinn-proto does not report what it has
//! done with a datagram.
//!
//! Assumed of quinn-proto: its counters of received frames grow with each packet that it opens, and with no other;
//! duplicates do not count.

use quinn_proto as quinn;

/// A counter that grows with each authentic packet, except duplicates.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workarounds::bare_quinn::BareQuinn;

    #[test]
    fn bare_quinn_counts_the_frames_of_packets_that_it_opens_and_no_others() {
        let mut bare = BareQuinn::connected(quinn::TransportConfig::default());
        let before = frames_received(bare.server.connection());
        bare.client.connection().ping();
        let datagram = bare.client.transmit(bare.now).remove(0);
        let mut forged = datagram.clone();
        *forged.last_mut().unwrap() ^= 1;
        bare.server_gets(&forged);
        assert_eq!(frames_received(bare.server.connection()), before);
        bare.server_gets(&datagram);
        let after = frames_received(bare.server.connection());
        assert!(after > before, "a PING");
        bare.server_gets(&datagram);
        assert_eq!(frames_received(bare.server.connection()), after, "a copy");
    }
}
