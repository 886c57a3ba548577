//! DATAGRAM frames (RFC 9221) that wait before the state machine.
//!
//! quinn-proto writes DATAGRAM frames before STREAM frames, so a host that saturates the connection with them would
//! starve its streams, control streams included. So while streams have data to send, datagrams are passed on only
//! for credit that sent STREAM frames earn: about as many bytes each. The state machine does not report if streams
//! have data to send. That is assumed after data was passed on, after STREAM frames were sent and after packets
//! were lost, and disproved when a single datagram is sent while nothing else was.
//!
//! A client with 0-RTT keys sends within the limit that its ticket remembers (RFC 9221 section 3). Early datagrams
//! are kept until the server has accepted or rejected them. After a rejection, and after a Retry, the server has
//! not processed them, and they are sent again (`seams::early_data`).

use bytes::Bytes;
use quinn_proto::{self as quinn, SendDatagramError};

use crate::{
    DatagramError,
    datagram_queue::{DatagramQueue, cost},
    seams::{datagram_send_buffer::in_hand, early_data},
};

pub(crate) struct DatagramSender {
    /// False if this side has DATAGRAM frames disabled.
    enabled: bool,
    queue: DatagramQueue,
    /// True if streams are assumed to have data to send.
    streams_wait: bool,
    /// Bytes of datagrams that may be passed on while they do. Probes may make it negative.
    credit: i64,
    probe: Probe,
    /// Datagrams passed on as 0-RTT data, the oldest first. At most a congestion window and a batch.
    early: Vec<Bytes>,
    /// How many DATAGRAM frames had been sent before the first of those.
    early_from: u64,
    /// The server sent a Retry, and datagrams sent before are queued again.
    retried: bool,
    /// The last values of the state machine's counters.
    stream_frames_sent: u64,
    packets_lost: u64,
}

/// The last probe that was not sent at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    None,
    /// The state machine holds it.
    InHand,
    /// The probe was sent. The next one waits for an ACK after this many, because the room that an ACK opens
    /// belongs to the streams first. Otherwise probes alone could fill a window that opens by single packets.
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

    /// Queued bytes, including an overhead for each datagram.
    pub fn queued_bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// Queued datagrams, oldest first.
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

    /// `size_max` is known once the handshake is complete. Datagrams queued before are sent then, if the peer
    /// accepts their size.
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

    /// Stream data was passed to the state machine.
    pub fn streams_advance(&mut self) {
        self.streams_wait = true;
    }

    /// Passes datagrams on, at most one batch.
    pub fn feed(&mut self, conn: &mut quinn::Connection, batch_size: usize) {
        self.feed_up_to(conn, batch_size, None);
    }

    /// Passes on datagrams that a client may send as 0-RTT data: within the remembered limit of the server, and
    /// within the size of a 0-RTT packet. The first that does not fit waits, and so do those after it.
    pub fn feed_early(&mut self, conn: &mut quinn::Connection, batch_size: usize) {
        if let Some(max) = early_data::datagram_size_max(conn) {
            self.feed_up_to(conn, batch_size, Some(max));
        }
    }

    /// The server accepted the early datagrams.
    pub fn early_accepted(&mut self) {
        self.early = Vec::new();
    }

    /// The server rejected the early datagrams.
    pub fn early_rejected(&mut self, conn: &quinn::Connection) {
        self.queue_sent_again(conn);
        self.early.clear();
    }

    /// The server sent a Retry: it has dropped the packets before it.
    pub fn retried(&mut self, conn: &quinn::Connection) {
        if !std::mem::replace(&mut self.retried, true) {
            self.queue_sent_again(conn);
        }
    }

    /// Queues sent datagrams again. The state machine still sends those that it had not sent yet.
    fn queue_sent_again(&mut self, conn: &quinn::Connection) {
        let all = early_data::datagrams_sent(conn);
        let sent = usize::try_from(all - self.early_from).unwrap_or(usize::MAX);
        let unsent = self.early.split_off(sent.min(self.early.len()));
        self.queue_early_again();
        self.early = unsent;
        self.early_from = all;
    }

    /// A new connection of the state machine, which has sent nothing, replaces the old one.
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

    /// With `early_max` all datagrams are 0-RTT data, and no longer datagram is passed on.
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
        if self.probe == Probe::InHand && in_hand(conn) == 0 {
            let acks = conn.stats().frame_rx.acks;
            self.probe = Probe::Out { acks };
        }
        let mut room = batch_size.saturating_sub(in_hand(conn));
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

    /// The state machine has nothing to send, or is blocked. If datagrams wait, one is passed on to find out which.
    /// Returns true if the caller must try again.
    pub fn probe(&mut self, conn: &mut quinn::Connection) -> bool {
        let may_probe = match self.probe {
            Probe::None => true,
            Probe::InHand => false,
            Probe::Out { acks } => conn.stats().frame_rx.acks > acks,
        };
        let is_waiting = self.streams_wait && !self.queue.is_empty();
        is_waiting && may_probe && in_hand(conn) == 0 && self.hand_over(conn).is_some()
    }

    /// `is_sent` is true if the probe was sent. If it was sent without stream data, no stream had any.
    pub fn probed(&mut self, conn: &quinn::Connection, is_sent: bool) {
        if is_sent {
            self.streams_wait = conn.stats().frame_tx.stream != self.stream_frames_sent;
        }
        self.probe = if is_sent { Probe::None } else { Probe::InHand };
    }

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

    /// Passes one datagram on and returns its cost. `None` if the queue is empty or the state machine is full.
    fn hand_over(&mut self, conn: &mut quinn::Connection) -> Option<usize> {
        let data = self.queue.pop()?;
        let cost = cost(&data);
        match conn.datagrams().send(data, false) {
            Ok(()) => {}
            Err(SendDatagramError::Blocked(data)) => {
                self.queue.put_back(data);
                return None;
            }
            // The path's MTU shrank, or the peer accepts no datagrams.
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

/// Credit before any stream has earned some: real-time data should not wait at the start.
const CREDIT_FIRST: i64 = 16 << 10;
/// Fits on any path: 1,200 bytes less packet and frame headers.
const SIZE_BEFORE_HANDSHAKE: usize = 1_150;

#[cfg(test)]
mod tests {
    use quinn::TransportConfig;

    use super::*;
    use crate::seams::bare_quinn::BareQuinn;

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
    fn datagrams_that_neither_side_could_send_are_refused() {
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
    fn a_batch_is_passed_on_and_the_rest_waits() {
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
    fn datagrams_of_a_rejected_flight_are_queued_again_before_the_others() {
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
