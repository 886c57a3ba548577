//! DATAGRAM frames (RFC 9221) that wait before they are passed to quinn-proto.
//!
//! quinn-proto writes DATAGRAM frames before STREAM frames, so a flood of them would starve all streams. While
//! streams have data to send, datagrams therefore need credit: each sent STREAM frame earns about as many bytes for
//! datagrams. quinn-proto does not report if streams have data to send. That is assumed after stream data was passed
//! to it, after it has sent STREAM frames, and after a loss. The assumption ends when a single datagram is sent
//! without any STREAM frame beside it.
//!
//! A client with 0-RTT keys sends datagrams within the limit that its ticket remembers (RFC 9221 section 3), and
//! keeps them until the server has accepted or rejected 0-RTT data. After a rejection or a Retry the server has not
//! processed them, so they are sent again (`workarounds::rejected_early_data`).

use bytes::Bytes;
use quinn_proto::{self as quinn, SendDatagramError};

use crate::{
    DatagramError,
    datagram_frame_queue::{DatagramQueue, cost},
    workarounds::{datagram_frame_send_buffer::buffered_bytes, rejected_early_data},
};

pub(crate) struct DatagramSender {
    /// False if the settings of this side disable DATAGRAM frames.
    enabled: bool,
    queue: DatagramQueue,
    /// True if streams are assumed to have data to send.
    streams_wait: bool,
    /// Bytes of datagrams that may be passed on while streams have data to send. A probe may make it negative.
    credit: i64,
    probe: Probe,
    /// Datagrams that were passed on as 0-RTT data, the oldest first. At most a congestion window and a batch.
    early: Vec<Bytes>,
    /// quinn-proto's counter of sent DATAGRAM frames, as it was before the first datagram in `early` was passed on.
    early_from: u64,
    /// True after the server has sent a Retry. Datagrams that were sent before it are queued again.
    retried: bool,
    /// quinn-proto's counters of sent STREAM frames and of lost packets, as they were when `probed` last read them.
    stream_frames_sent: u64,
    packets_lost: u64,
}

/// A datagram that was passed on to find out if streams have data to send, and that was not sent at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    None,
    /// The datagram is in quinn-proto's buffer.
    Buffered,
    /// The datagram was sent. The next probe waits until more than this many ACK frames have arrived: the room that an
    /// ACK opens belongs to streams first, and a window that opens by single packets would otherwise fill with probes.
    Out {
        acks: u64,
    },
}

impl DatagramSender {
    pub fn new(enabled: bool, bytes_max: usize) -> Self {
        Self {
            enabled,
            queue: DatagramQueue::new(bytes_max),
            streams_wait: false,
            credit: CREDIT_FIRST,
            probe: Probe::None,
            early: Vec::new(),
            early_from: 0,
            retried: false,
            stream_frames_sent: 0,
            packets_lost: 0,
        }
    }

    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    pub fn dropped(&self) -> u64 {
        self.queue.dropped()
    }

    /// The bytes of the queued datagrams, including an overhead for each datagram.
    pub fn queued_bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// The queued datagrams, the oldest first.
    pub fn waiting(&self) -> impl Iterator<Item = &Bytes> {
        self.queue.iter()
    }

    /// See [`Connection::rest`](super::Connection::rest).
    pub fn rest(&mut self) {
        self.queue.rest();
        self.early.shrink_to_fit();
    }

    pub fn is_half_full(&self) -> bool {
        self.queue.bytes() > self.queue.bytes_max() / 2
    }

    pub fn is_nearly_empty(&self) -> bool {
        self.queue.bytes() <= self.queue.bytes_max() / 4
    }

    /// True if a datagram waits to be sent, in this queue or in quinn-proto's.
    pub fn is_waiting(&self, conn: &mut quinn::Connection) -> bool {
        !self.queue.is_empty() || buffered_bytes(conn) > 0
    }

    /// Queues a datagram. `size_max`, the peer's limit, is known once the handshake is complete. A datagram that is
    /// queued before is sent after the handshake if the peer accepts its size.
    pub fn push(
        &mut self,
        data: Bytes,
        established: bool,
        size_max: Option<usize>,
    ) -> Result<(), DatagramError> {
        if !self.enabled || (established && size_max.is_none()) {
            return Err(DatagramError::Unsupported);
        }
        let max = size_max.unwrap_or(SIZE_BEFORE_HANDSHAKE);
        if data.len() > max {
            return Err(DatagramError::TooLarge { max });
        }
        self.queue.push(data);
        Ok(())
    }

    /// Called when stream data was passed to quinn-proto.
    pub fn streams_advance(&mut self) {
        self.streams_wait = true;
    }

    /// Passes datagrams to quinn-proto, at most one batch.
    pub fn feed(&mut self, conn: &mut quinn::Connection, batch_size: usize) {
        self.feed_up_to(conn, batch_size, None);
    }

    /// Passes datagrams to quinn-proto that a client may send as 0-RTT data: no larger than the server's remembered
    /// limit and than a 0-RTT packet. The first datagram that does not fit waits, with all after it.
    pub fn feed_early(&mut self, conn: &mut quinn::Connection, batch_size: usize) {
        if let Some(max) = rejected_early_data::datagram_size_max(conn) {
            self.feed_up_to(conn, batch_size, Some(max));
        }
    }

    /// The server has accepted 0-RTT data.
    pub fn early_accepted(&mut self) {
        self.early = Vec::new();
    }

    /// The server has rejected 0-RTT data.
    pub fn early_rejected(&mut self, conn: &quinn::Connection) {
        self.queue_sent_again(conn);
        self.early.clear();
    }

    /// The server has sent a Retry, so it has dropped all earlier packets.
    pub fn retried(&mut self, conn: &quinn::Connection) {
        if !std::mem::replace(&mut self.retried, true) {
            self.queue_sent_again(conn);
        }
    }

    /// Called when the server rejects 0-RTT data. Queues the datagrams again that quinn-proto has sent. Those that it
    /// has not sent are still in its buffer and will be sent.
    fn queue_sent_again(&mut self, conn: &quinn::Connection) {
        let all = rejected_early_data::datagrams_sent(conn);
        let sent = usize::try_from(all - self.early_from).unwrap_or(usize::MAX);
        let unsent = self.early.split_off(sent.min(self.early.len()));
        self.queue_early_again();
        self.early = unsent;
        self.early_from = all;
    }

    /// Queues all early datagrams again, for a new quinn-proto connection that has sent nothing.
    pub fn begin_again(&mut self) {
        self.queue_early_again();
        self.early_from = 0;
        self.retried = false;
        self.credit = CREDIT_FIRST;
        self.probe = Probe::None;
        self.stream_frames_sent = 0;
        self.packets_lost = 0;
    }

    fn queue_early_again(&mut self) {
        let early = std::mem::take(&mut self.early);
        self.queue.push_all_first(early.into_iter());
    }

    /// Passes datagrams on until the batch is full. With `early_max` they are 0-RTT data, and none may be longer.
    fn feed_up_to(
        &mut self,
        conn: &mut quinn::Connection,
        batch_size: usize,
        early_max: Option<usize>,
    ) {
        if self.queue.is_empty() {
            return;
        }
        self.earn(conn, batch_size);
        if self.probe == Probe::Buffered && buffered_bytes(conn) == 0 {
            let acks = conn.stats().frame_rx.acks;
            self.probe = Probe::Out { acks };
        }
        let mut room = batch_size.saturating_sub(buffered_bytes(conn));
        if self.streams_wait {
            room = room.min(usize::try_from(self.credit).unwrap_or(0));
        }
        while room > 0 {
            let early = match (self.queue.first(), early_max) {
                (Some(data), Some(max)) if data.len() > max => return,
                (data, Some(_)) => data.cloned(),
                (_, None) => None,
            };
            let Some(cost) = self.hand_over(conn) else {
                return;
            };
            room = room.saturating_sub(cost);
            self.early.extend(early);
        }
    }

    /// Called when quinn-proto has returned no packet while datagrams wait. Either streams have no data to send, or the
    /// congestion window is full; quinn-proto does not report which. One datagram is passed on to find out: if it is
    /// sent without a STREAM frame, streams had nothing to send. Returns true if a datagram was passed on, so that the
    /// caller must ask quinn-proto for a packet again.
    pub fn probe(&mut self, conn: &mut quinn::Connection) -> bool {
        let may_probe = match self.probe {
            Probe::None => true,
            Probe::Buffered => false,
            Probe::Out { acks } => conn.stats().frame_rx.acks > acks,
        };
        let is_waiting = self.streams_wait && !self.queue.is_empty();
        is_waiting && may_probe && buffered_bytes(conn) == 0 && self.hand_over(conn).is_some()
    }

    /// Called after quinn-proto was asked for a packet with the datagram of [`probe`](Self::probe). `is_sent` is true
    /// if it has returned a packet. If that packet has no STREAM frame, streams have nothing to send.
    pub fn probed(&mut self, conn: &quinn::Connection, is_sent: bool) {
        if is_sent {
            self.streams_wait = conn.stats().frame_tx.stream != self.stream_frames_sent;
        }
        self.probe = if is_sent {
            Probe::None
        } else {
            Probe::Buffered
        };
    }

    /// Adds credit for the STREAM frames that were sent since the last call, at a full packet's size for each. After
    /// such frames or a loss, streams are assumed to have data to send.
    fn earn(&mut self, conn: &quinn::Connection, batch_size: usize) {
        let stats = conn.stats();
        let frames = stats.frame_tx.stream - self.stream_frames_sent;
        let earned = frames.saturating_mul(stats.path.current_mtu.into());
        let sum = self.credit.saturating_add_unsigned(earned);
        self.credit = sum.clamp(-CREDIT_FIRST, batch_size as i64);
        self.streams_wait |= frames > 0 || stats.path.lost_packets != self.packets_lost;
        self.stream_frames_sent = stats.frame_tx.stream;
        self.packets_lost = stats.path.lost_packets;
    }

    /// Passes one datagram to quinn-proto and returns its cost in bytes. `None` if no datagram waits or quinn-proto's
    /// buffer is full.
    fn hand_over(&mut self, conn: &mut quinn::Connection) -> Option<usize> {
        let data = self.queue.pop()?;
        let cost = cost(&data);
        match conn.datagrams().send(data, false) {
            Ok(()) => {}
            Err(SendDatagramError::Blocked(data)) => {
                self.queue.put_back(data);
                return None;
            }
            // The path's MTU has shrunk, or the peer accepts no DATAGRAM frames.
            Err(_) => self.queue.count_dropped(1),
        }
        self.credit = self.credit.saturating_sub_unsigned(cost as u64);
        Some(cost)
    }

    pub fn clear(&mut self) {
        self.queue.clear();
        self.early.clear();
    }
}

/// The bytes of datagrams that may leave before the first STREAM frame, so that real-time data does not wait at the
/// start.
const CREDIT_FIRST: i64 = 16 << 10;
/// The largest datagram before the handshake: it fits on any path with 1,200 bytes less the headers.
const SIZE_BEFORE_HANDSHAKE: usize = 1_150;

#[cfg(test)]
mod tests {
    use quinn::TransportConfig;

    use super::*;
    use crate::workarounds::bare_quinn::BareQuinn;

    fn data(byte: u8) -> Bytes {
        Bytes::from(vec![byte; 10])
    }

    fn push(queue: &mut DatagramSender, byte: u8) {
        queue.push(data(byte), true, Some(100)).unwrap();
    }

    fn first_bytes(queue: &DatagramSender) -> Vec<u8> {
        queue.waiting().map(|data| data[0]).collect()
    }

    #[test]
    fn a_full_queue_drops_its_oldest_datagrams() {
        let mut queue = DatagramSender::new(true, 3 * cost(&data(0)));
        for byte in 0..5 {
            push(&mut queue, byte);
        }
        assert_eq!((first_bytes(&queue), queue.dropped()), (vec![2, 3, 4], 2));
        assert!(queue.is_half_full() && !queue.is_nearly_empty());
        queue.clear();
        assert_eq!((queue.queued_bytes(), queue.dropped()), (0, 2));
        assert!(queue.is_nearly_empty());
    }

    #[test]
    fn datagrams_are_refused_if_either_side_has_them_disabled() {
        let mut disabled = DatagramSender::new(false, 1_000);
        let unsupported = Err(DatagramError::Unsupported);
        assert_eq!(disabled.push(data(0), true, Some(100)), unsupported);
        let mut queue = DatagramSender::new(true, 10_000);
        assert_eq!(queue.push(data(0), true, None), unsupported);
        let too_large = Err(DatagramError::TooLarge { max: 9 });
        assert_eq!(queue.push(data(0), true, Some(9)), too_large);
        assert_eq!(queue.push(data(0), false, None), Ok(()));
        let max = SIZE_BEFORE_HANDSHAKE;
        let large = Bytes::from(vec![0; max + 1]);
        let too_large = Err(DatagramError::TooLarge { max });
        assert_eq!(queue.push(large, false, None), too_large);
    }

    #[test]
    fn at_most_one_batch_of_datagrams_is_passed_to_quinn() {
        let mut transport = TransportConfig::default();
        transport.datagram_receive_buffer_size(Some(1 << 20));
        let mut bare = BareQuinn::connected(transport);
        let mut queue = DatagramSender::new(true, 1 << 20);
        (0..5).for_each(|byte| push(&mut queue, byte));
        let batch = 2 * cost(&data(0));
        queue.feed(bare.client.connection(), batch);
        assert_eq!(first_bytes(&queue), [2, 3, 4]);
        assert_eq!(queue.queued_bytes(), 3 * cost(&data(0)));
        bare.exchange();
        queue.feed(bare.client.connection(), 1_000);
        bare.exchange();
        let server = bare.server.connection();
        let received = std::iter::from_fn(|| server.datagrams().recv());
        assert_eq!(
            received.map(|data| data[0]).collect::<Vec<_>>(),
            [0, 1, 2, 3, 4]
        );
    }

    #[test]
    fn datagrams_of_rejected_0rtt_data_are_queued_again_at_the_front() {
        let mut transport = TransportConfig::default();
        transport.datagram_receive_buffer_size(Some(1 << 20));
        let mut bare = BareQuinn::resuming(transport);
        let mut queue = DatagramSender::new(true, 1 << 20);
        (0..2).for_each(|byte| push(&mut queue, byte));
        queue.feed_early(bare.client.connection(), 1_000);
        assert_eq!(first_bytes(&queue), [0; 0]);
        bare.client.transmit(bare.now);
        push(&mut queue, 2);
        queue.early_rejected(bare.client.connection());
        assert_eq!(first_bytes(&queue), [0, 1, 2]);
        queue.early_rejected(bare.client.connection());
        assert_eq!(first_bytes(&queue), [0, 1, 2], "once");
    }
}
