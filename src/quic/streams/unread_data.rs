//! Counts the memory of unread data on streams, and finds streams to shed (to end, to free memory).
//!
//! Not here: the share of memory that a client may use (`endpoint::memory_shedding`).

use quinn_proto::{self as quinn, VarInt};
use rustc_hash::FxHashMap;

use super::Streams;
use super::stream::{Receive, SendState, stream_id};
use crate::workarounds::received_offsets::Arrived;

/// The unread data on all streams of a connection.
#[derive(Debug, Default)]
pub(crate) struct UnreadData {
    /// The memory of unread data in bytes, with quinn-proto's overhead.
    bytes: usize,
    /// The sums over all streams: the bytes that have arrived, and the bytes for which the peer has got credit.
    received: u64,
    released: u64,
    /// The released bytes of each stream that is not read any more and whose final size is unknown. quinn-proto gives
    /// credit for their dropped data, too. At most as many entries as streams are open.
    stopped: FxHashMap<u64, u64>,
    /// True after counting has begun. Until then arriving data is not counted.
    is_counted: bool,
}

/// A stream that could be shed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShedCandidate {
    pub stream_id: u64,
    /// The stream's unread and unsent bytes.
    pub bytes: usize,
    /// The stream's bytes that were read and sent since the last search.
    pub progress: u64,
}

impl UnreadData {
    /// Counts data that has arrived on a stream.
    fn arrived(&mut self, receive: &mut Receive, arrived: Arrived) {
        let before = receive.held_bytes();
        let end = arrived.end();
        receive.is_end_known |= arrived.is_final();
        // quinn-proto rejects data beyond its flow-control windows, but only after this call.
        self.received = self
            .received
            .saturating_add(end.saturating_sub(receive.end));
        receive.end = receive.end.max(end);
        receive.packet_bytes = match receive.unread() {
            0 => 0,
            _ => receive.packet_bytes.saturating_add(arrived.packet_bytes),
        };
        self.bytes = self.bytes + receive.held_bytes() - before;
    }

    /// Counts `count` bytes that were read from a stream.
    pub fn read(&mut self, receive: &mut Receive, count: usize) {
        if count == 0 {
            return;
        }
        let (before, unread) = (receive.held_bytes(), receive.unread());
        receive.read += count as u64;
        self.released += count as u64;
        // Data may be read before its arrival is counted.
        self.received += receive.read.saturating_sub(receive.end);
        receive.end = receive.end.max(receive.read);
        let left = receive.unread();
        receive.packet_bytes = match left {
            0 => 0,
            _ if unread == 0 => 0,
            _ => (receive.packet_bytes as u128 * u128::from(left) / u128::from(unread)) as usize,
        };
        self.bytes = self.bytes + receive.held_bytes() - before;
    }

    /// Releases the memory of a stream that is not read any more.
    pub fn close(&mut self, receive: &mut Receive) {
        self.bytes -= receive.held_bytes();
        self.released = self.released.saturating_add(receive.unread());
        receive.open = false;
    }

    /// Releases the memory of a stream that is not read any more, and on which data may still arrive.
    pub fn stop(&mut self, stream_id: u64, receive: &mut Receive) {
        self.close(receive);
        if self.is_counted && !receive.is_end_known {
            self.stopped.insert(stream_id, receive.end);
        }
    }

    /// Counts data of a stopped stream, which quinn-proto drops.
    fn dropped(&mut self, arrived: Arrived) {
        let Some(end) = self.stopped.get_mut(&arrived.stream_id) else {
            return;
        };
        let count = arrived.end().saturating_sub(*end);
        *end += count;
        self.received = self.received.saturating_add(count);
        self.released = self.released.saturating_add(count);
        if arrived.is_final() {
            self.stopped.remove(&arrived.stream_id);
        }
    }
}

impl Receive {
    /// The number of bytes between the last read byte and the end of the arrived data, gaps included.
    pub(super) fn unread(&self) -> u64 {
        self.end - self.read
    }

    /// The memory of the unread data in bytes: the packets that quinn-proto keeps (`workarounds::received_offsets`).
    fn held_bytes(&self) -> usize {
        if !self.open || self.unread() == 0 {
            return 0;
        }
        let unread = usize::try_from(self.unread()).unwrap_or(usize::MAX);
        let most = unread.saturating_mul(5) / 2;
        self.packet_bytes.min(most.saturating_add(SMALL_FRAMES_MAX))
    }
}

impl Streams {
    /// The memory of unread data on all streams, in bytes.
    pub fn unread_bytes(&self) -> usize {
        self.unread.bytes
    }

    /// Starts to count data that [arrives](Self::arrived).
    pub fn count_arrivals(&mut self) {
        self.unread.is_counted = true;
    }

    /// The number of all stream bytes that have ever arrived.
    pub fn received_bytes(&self) -> u64 {
        self.unread.received
    }

    /// The number of bytes that were read or dropped since the last call.
    pub fn take_released(&mut self) -> u64 {
        std::mem::take(&mut self.unread.released)
    }

    pub fn arrived(&mut self, arrived: Arrived) {
        match self.table.get_mut(&arrived.stream_id) {
            Some(stream) if stream.receive.open => {
                self.unread.arrived(&mut stream.receive, arrived)
            }
            _ => self.unread.dropped(arrived),
        }
    }

    /// Drops data that is not sent or not acknowledged, after the end of the connection.
    pub fn release_sending(&mut self, conn: &mut quinn::Connection) {
        for (&id, stream) in &mut self.table {
            if stream.send.state != SendState::Absent {
                // A stream that waits to be opened does not exist in quinn-proto, which returns an error.
                let _ = conn.send_stream(stream_id(id)).reset(VarInt::from_u32(0));
            }
            stream.send.queue.clear();
            stream.send.head = None;
            stream.send.early = None;
        }
        self.queued_bytes = 0;
    }

    /// Drops unread data, after the application has polled `Closed`.
    pub fn release_receiving(&mut self, conn: &mut quinn::Connection) {
        for (&id, stream) in &mut self.table {
            if stream.receive.open {
                // A stream that waits to be opened does not exist in quinn-proto, and a unidirectional stream has no
                // receiving part.
                let _ = conn.recv_stream(stream_id(id)).stop(VarInt::from_u32(0));
                stream.receive.packet_bytes = 0;
            }
        }
        self.unread.bytes = 0;
    }

    /// The streams that hold data, or for which the application may hold some: `application_bytes` in all, for
    /// bidirectional streams. Unidirectional streams with very little data are excluded. Among them are HTTP/3's
    /// critical streams (RFC 9114 section 6.2.1), whose data is read in the loop iteration in which it arrives.
    pub fn sheddable(&mut self, application_bytes: usize) -> Vec<ShedCandidate> {
        let may_be_applications =
            |stream_id: u64| application_bytes > 0 && stream_id & UNIDIRECTIONAL == 0;
        let hosts = self
            .table
            .keys()
            .filter(|&&id| may_be_applications(id))
            .count();
        let part = application_bytes / hosts.max(1);
        let mut found = Vec::new();
        for (&stream_id, stream) in &mut self.table {
            let own = stream.receive.held_bytes() + stream.send.queue.len();
            let of_host = if may_be_applications(stream_id) {
                part
            } else {
                0
            };
            let bytes = own + of_host;
            let least = match stream_id & UNIDIRECTIONAL {
                0 => 1,
                _ => UNIDIRECTIONAL_LEAST,
            };
            if bytes < least {
                continue;
            }
            let moved = stream.receive.read + stream.send.handed_over;
            let progress = moved - std::mem::replace(&mut stream.moved, moved);
            found.push(ShedCandidate {
                stream_id,
                bytes,
                progress,
            });
        }
        found
    }

    /// Ends both directions of a stream. Returns how many bytes of this side were not sent.
    pub fn shed(&mut self, conn: &mut quinn::Connection, stream_id: u64, code: u64) -> usize {
        let unsent = self.queued_bytes_of(stream_id);
        // An error shows that the direction has ended or never existed.
        let _ = self.stop(conn, stream_id, code);
        let _ = self.reset(conn, stream_id, code);
        unsent
    }
}

/// The bit of unidirectional streams in a stream ID (RFC 9000 section 2.1).
const UNIDIRECTIONAL: u64 = 0x02;
/// In bytes. More than the first flight of a connection has on one of HTTP/3's critical streams.
const UNIDIRECTIONAL_LEAST: usize = 8 << 10;
/// The overhead of small frames in quinn-proto in bytes, besides two and a half times their data.
const SMALL_FRAMES_MAX: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use quinn_proto::{Dir, Side};

    use super::*;
    use crate::streams::Readiness;
    use crate::workarounds::bare_quinn::BareQuinn;

    fn arrived(end: u64, packet_bytes: usize) -> Arrived {
        Arrived::new(0, end, false, packet_bytes)
    }

    #[test]
    fn unread_data_is_counted_and_read_data_is_released() {
        let (mut unread, mut receive) = (UnreadData::default(), Receive::new(true));
        unread.arrived(&mut receive, arrived(1_000, 1_200));
        // The packet repeats a range of data that has arrived before. So its bytes are not counted again.
        unread.arrived(&mut receive, arrived(1_000, 0));
        assert_eq!((unread.bytes, unread.received), (1_200, 1_000));
        unread.read(&mut receive, 500);
        assert_eq!((unread.bytes, unread.released), (600, 500));
        unread.read(&mut receive, 500);
        assert_eq!((unread.bytes, unread.released), (0, 1_000));
    }

    #[test]
    fn small_frames_count_with_their_packets_up_to_a_bound() {
        let (mut unread, mut receive) = (UnreadData::default(), Receive::new(true));
        for end in 1..=10 {
            unread.arrived(&mut receive, arrived(end, 1_200));
        }
        assert_eq!(unread.bytes, 12_000);
        for end in 11..=1_000 {
            unread.arrived(&mut receive, arrived(end, 1_200));
        }
        assert_eq!(unread.bytes, SMALL_FRAMES_MAX + 2_500);
    }

    #[test]
    fn data_behind_a_gap_counts_without_the_gap() {
        let (mut unread, mut receive) = (UnreadData::default(), Receive::new(true));
        unread.arrived(&mut receive, arrived(100_000, 1_200));
        assert_eq!(unread.bytes, 1_200);
        unread.close(&mut receive);
        assert_eq!((unread.bytes, unread.released), (0, 100_000));
    }

    #[test]
    fn data_of_a_stopped_stream_is_released_up_to_its_final_size() {
        let mut unread = UnreadData {
            is_counted: true,
            ..UnreadData::default()
        };
        let mut receive = Receive::new(true);
        unread.arrived(&mut receive, arrived(1_000, 1_200));
        unread.stop(0, &mut receive);
        assert_eq!((unread.bytes, unread.released), (0, 1_000));
        unread.dropped(arrived(3_000, 2_400));
        unread.dropped(arrived(2_000, 1_200));
        // A RESET_STREAM. The data before its final size was lost, or never sent.
        unread.dropped(Arrived::new(0, 9_000, true, 0));
        unread.dropped(Arrived::new(0, 9_000, true, 0));
        assert_eq!((unread.received, unread.released), (9_000, 9_000));
        assert!(unread.stopped.is_empty());
    }

    #[test]
    fn a_reset_releases_the_whole_stream() {
        let mut unread = UnreadData {
            is_counted: true,
            ..UnreadData::default()
        };
        let mut receive = Receive::new(true);
        unread.arrived(&mut receive, arrived(1_000, 1_200));
        unread.arrived(&mut receive, Arrived::new(0, 9_000, true, 0));
        unread.stop(0, &mut receive);
        assert_eq!((unread.bytes, unread.released), (0, 9_000));
        assert!(unread.stopped.is_empty());
    }

    #[test]
    fn data_that_is_read_before_it_is_counted_counts_once() {
        let (mut unread, mut receive) = (UnreadData::default(), Receive::new(true));
        unread.read(&mut receive, 300);
        unread.arrived(&mut receive, arrived(300, 400));
        assert_eq!(
            (unread.bytes, unread.received, unread.released),
            (0, 300, 300)
        );
    }

    #[test]
    fn a_reset_of_a_paused_stream_releases_data_that_is_counted_later() {
        let mut bare = BareQuinn::connected(quinn::TransportConfig::default());
        let mut streams = Streams::new(Side::Server, 1 << 20);
        streams.count_arrivals();
        let client = bare.client.connection();
        let id = client.streams().open(Dir::Uni).unwrap();
        client.send_stream(id).write(&[1; 1_000]).unwrap();
        bare.exchange();
        let server = bare.server.connection();
        assert_eq!(server.streams().accept(Dir::Uni), Some(id));
        streams.accepted(id.into());
        streams.pause(id.into());
        let client = bare.client.connection();
        client.send_stream(id).reset(VarInt::from_u32(7)).unwrap();
        bare.exchange();
        let readiness = streams.readable(bare.server.connection(), id.into(), false);
        assert_eq!(readiness, Readiness::Reset { error_code: 7 });
        // The reset and the arrival are handled in one loop iteration.
        streams.arrived(Arrived::new(id.into(), 1_000, true, 0));
        assert_eq!(
            (streams.take_released(), streams.received_bytes()),
            (1_000, 1_000)
        );
        assert!(streams.unread.stopped.is_empty());
    }
}
