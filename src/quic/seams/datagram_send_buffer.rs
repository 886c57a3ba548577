//! The number of bytes of DATAGRAM frames in the state machine.
//!
//! quinn-proto writes DATAGRAM frames before STREAM frames. So it gets no more of them than may leave before
//! stream data (`quic::connection::datagrams`), and the sender needs to know how much is not sent yet.
//! quinn-proto reports only the free room.
//!
//! Assumed of quinn-proto: that order; that the free room is the configured buffer less its content and less
//! the overhead of one datagram; and that sent datagrams leave the buffer.

use bytes::Bytes;
use quinn_proto as quinn;

/// The bytes of datagrams that the state machine holds, or slightly fewer.
pub fn in_hand(conn: &mut quinn::Connection) -> usize {
    SEND_BUFFER.saturating_sub(conn.datagrams().send_buffer_space() + IN_HAND_BY_NONE)
}

/// The overhead that `send_buffer_space` subtracts even if the buffer is empty.
const IN_HAND_BY_NONE: usize = size_of::<Bytes>();
/// The size of the state machine's own buffer: more than a batch ever takes.
pub const SEND_BUFFER: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use uringcore_wire::varint;

    use super::*;
    use crate::seams::bare_quinn::BareQuinn;

    #[test]
    fn bare_quinn_sends_datagrams_before_streams_and_says_how_much_room_is_left() {
        let mut transport = quinn::TransportConfig::default();
        transport
            .datagram_send_buffer_size(SEND_BUFFER)
            .datagram_receive_buffer_size(Some(SEND_BUFFER));
        let mut bare = BareQuinn::connected(transport);
        let client = bare.client.connection();
        assert_eq!(in_hand(client), 0);
        let stream = client.streams().open(quinn::Dir::Uni).unwrap();
        client.send_stream(stream).write(&[0; 4_000]).unwrap();
        for count in 1..=3 {
            let data = Bytes::from(vec![0; 300]);
            client.datagrams().send(data, false).unwrap();
            let least = 300 * count;
            assert!((least..least + 100 * count).contains(&in_hand(client)));
        }
        bare.client.transmit(bare.now);
        assert_eq!(in_hand(bare.client.connection()), 0);
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
