//! The number of bytes of DATAGRAM frames that quinn-proto has not sent yet.
//!
//! quinn-proto writes DATAGRAM frames before STREAM frames, so it must not get more of them than may leave before
//! stream data (`quic::connection::datagram_frame_sender`). But it reports only the free room in its buffer.
//!
//! Assumed of quinn-proto: the order of frames; the free room is the configured buffer less its content and less the
//! overhead of one datagram; and sent datagrams leave the buffer.

use bytes::Bytes;
use quinn_proto as quinn;

/// The bytes of datagrams in quinn-proto's buffer, or slightly fewer.
pub fn buffered_bytes(conn: &mut quinn::Connection) -> usize {
    SEND_BUFFER.saturating_sub(conn.datagrams().send_buffer_space() + OVERHEAD_OF_EMPTY)
}

/// The overhead that `send_buffer_space` subtracts even from an empty buffer.
const OVERHEAD_OF_EMPTY: usize = size_of::<Bytes>();
/// The size of quinn-proto's buffer in bytes: more than a batch needs.
pub const SEND_BUFFER: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use uringcore_wire::varint;

    use super::*;
    use crate::workarounds::bare_quinn::BareQuinn;

    #[test]
    fn bare_quinn_sends_datagrams_before_streams_and_reports_free_room() {
        let mut transport = quinn::TransportConfig::default();
        transport
            .datagram_send_buffer_size(SEND_BUFFER)
            .datagram_receive_buffer_size(Some(SEND_BUFFER));
        let mut bare = BareQuinn::connected(transport);
        let client = bare.client.connection();
        assert_eq!(buffered_bytes(client), 0);
        let stream = client.streams().open(quinn::Dir::Uni).unwrap();
        client.send_stream(stream).write(&[0; 4_000]).unwrap();
        for count in 1..=3 {
            let data = Bytes::from(vec![0; 300]);
            client.datagrams().send(data, false).unwrap();
            let least = 300 * count;
            assert!((least..least + 100 * count).contains(&buffered_bytes(client)));
        }
        bare.client.transmit(bare.now);
        assert_eq!(buffered_bytes(bare.client.connection()), 0);
        let sealed = bare.client.spy.sealed.lock().unwrap();
        let first = |payload: &[u8]| varint::take(&mut &payload[..]).unwrap();
        let types: Vec<u64> = sealed.iter().map(|packet| first(&packet.payload)).collect();
        let datagram = types
            .iter()
            .position(|kind| matches!(kind, 0x30 | 0x31))
            .unwrap();
        let stream = types
            .iter()
            .position(|kind| matches!(kind, 0x08..=0x0f))
            .unwrap();
        assert!(datagram < stream, "{types:x?}");
    }
}
