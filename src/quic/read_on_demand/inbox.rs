//! Input of a connection that the program has not read yet. Turns events into the conditions that the program waits
//! for.

use std::collections::VecDeque;

use bytes::Bytes;
use rustc_hash::FxHashMap;
use uringcore_limits::memory_budget::Charge;

use super::unread_datagram_frames::{Datagrams, Overflow};
use crate::{Chunks, Event, Received, StreamEnd};

/// A condition that a part of the program can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Key {
    /// The stream has data, or has ended.
    Readable(u64),
    /// The stream's send queue has room, or the stream was reset.
    Writable(u64),
    /// The peer has acknowledged all data that this side sent on the stream, or the stream was reset.
    Finished(u64),
    /// The peer has acknowledged all data on all streams that this side has finished.
    AllFinished,
    /// The peer has opened a stream.
    Accept {
        unidirectional: bool,
    },
    /// The peer's limit allows another stream of this side.
    Open {
        unidirectional: bool,
    },
    Datagram,
}

impl Key {
    /// The three conditions of one stream.
    pub fn of_stream(id: u64) -> [Self; 3] {
        [Self::Readable(id), Self::Writable(id), Self::Finished(id)]
    }
}

/// Streams of the peer that wait to be accepted, error codes of streams that the peer has stopped, and datagrams.
///
/// Bounds: the settings limit how many streams the peer may open, and so how many wait. There is one error code for
/// each stream that waits, and for each stream of the program from [`accept`](Self::accept) or
/// [`opened`](Self::opened) until [`forget`](Self::forget). Datagrams are bounded in bytes. Stream data is stored
/// here only after the end of the connection, or if it arrived before `read_on_demand` was called; flow control
/// bounds it.
#[derive(Debug)]
pub struct Inbox {
    /// Streams of the peer that wait to be accepted, by direction: bidirectional ones first.
    waiting: [VecDeque<u64>; 2],
    detection: StreamDetection,
    /// The program's streams, and those that wait. The value is the error code if the peer has stopped the stream.
    stopped: FxHashMap<u64, Option<u64>>,
    rest: FxHashMap<u64, Received>,
    datagrams: Datagrams,
}

/// The way in which new streams of the peer are detected.
#[derive(Debug)]
enum StreamDetection {
    /// All streams of the connection belong to the program. A new stream also opens all streams of its kind with lower
    /// numbers (RFC 9000 section 2.1), so a count is enough: `opened` is the number of streams that the peer has opened
    /// so far, bidirectional ones first. It never falls.
    All { is_client: bool, opened: [u64; 2] },
    /// Only some streams of the connection belong to the program. Each of these is added by
    /// [`announced`](Inbox::announced).
    Some,
}

impl Inbox {
    /// Creates an inbox for all streams of a connection.
    pub fn new(is_client: bool, datagram_bytes_max: usize) -> Self {
        let opened = [0; 2];
        Self::of(
            StreamDetection::All { is_client, opened },
            datagram_bytes_max,
        )
    }

    /// Creates an inbox for the streams of a session, each of which is announced.
    pub fn of_session(datagram_bytes_max: usize) -> Self {
        Self::of(StreamDetection::Some, datagram_bytes_max)
    }

    fn of(detection: StreamDetection, datagram_bytes_max: usize) -> Self {
        Self {
            waiting: Default::default(),
            detection,
            stopped: FxHashMap::default(),
            rest: FxHashMap::default(),
            datagrams: Datagrams::new(datagram_bytes_max),
        }
    }

    /// Sets which datagrams are dropped when the queue is full. The default is the oldest ones.
    pub fn set_overflow(&mut self, overflow: Overflow) {
        self.datagrams.set_overflow(overflow);
    }

    /// Charges the bytes of waiting datagrams to `charge`, a part of the memory budget.
    pub fn set_charge(&mut self, charge: Charge) {
        self.datagrams.set_charge(charge);
    }

    /// Drops all datagrams, after the connection has ended.
    pub fn drop_datagrams(&mut self) {
        self.datagrams.clear();
    }

    /// Handles one event, and calls `wake` for each condition that may be true now.
    pub fn handle(&mut self, event: Event, mut wake: impl FnMut(Key)) {
        match event {
            Event::StreamReadable { stream_id } => self.readable(stream_id, &mut wake),
            Event::StreamData {
                stream_id,
                data,
                fin,
            } => {
                let end = fin.then_some(StreamEnd::Finished);
                self.leave(stream_id, data, end);
                self.readable(stream_id, &mut wake);
            }
            Event::StreamReset {
                stream_id,
                error_code,
            } => {
                // The reset follows the data that is stored here: with RESET_STREAM_AT the peer delivers that data in
                // spite of the reset.
                let end = Some(StreamEnd::Reset { error_code });
                self.leave(stream_id, Chunks::default(), end);
                self.readable(stream_id, &mut wake);
            }
            Event::StopSending {
                stream_id,
                error_code,
                ..
            } => {
                self.count_opened(stream_id, &mut wake);
                self.keep_code(stream_id, error_code);
                wake(Key::Writable(stream_id));
                wake(Key::Finished(stream_id));
                wake(Key::AllFinished);
            }
            Event::StreamWritable { stream_id } | Event::StreamAbandoned { stream_id } => {
                wake(Key::Writable(stream_id));
            }
            Event::StreamFinished { stream_id } => {
                wake(Key::Finished(stream_id));
                wake(Key::AllFinished);
            }
            Event::StreamsAvailable { unidirectional } => wake(Key::Open { unidirectional }),
            Event::Datagram { data, .. } => {
                self.datagrams.push(data);
                wake(Key::Datagram);
            }
            // Other events concern neither streams nor datagrams.
            _ => {}
        }
    }

    /// Records that the peer has opened a stream, for an inbox of a session.
    pub fn announced(&mut self, stream_id: u64, mut wake: impl FnMut(Key)) {
        let unidirectional = is_unidirectional(stream_id);
        self.waiting[usize::from(unidirectional)].push_back(stream_id);
        // `keep_code` finds the stream by this entry, without searching the waiting streams.
        self.stopped.entry(stream_id).or_default();
        wake(Key::Accept { unidirectional });
    }

    /// Returns the next stream of the peer that the program has not accepted.
    pub fn accept(&mut self, unidirectional: bool) -> Option<u64> {
        let stream_id = self.waiting[usize::from(unidirectional)].pop_front()?;
        self.stopped.entry(stream_id).or_default();
        Some(stream_id)
    }

    /// Records that the program has opened a stream.
    pub fn opened(&mut self, stream_id: u64) {
        self.stopped.insert(stream_id, None);
    }

    /// The error code of the peer's STOP_SENDING for a stream. `None` if none has arrived.
    pub fn stopped(&self, stream_id: u64) -> Option<u64> {
        self.stopped.get(&stream_id).copied().flatten()
    }

    /// Removes and returns at most `max` bytes of a stream's stored data. The last bytes come with the stream's end.
    pub fn take_rest(&mut self, stream_id: u64, max: usize) -> Option<Received> {
        let rest = self.rest.get_mut(&stream_id)?;
        let data = rest.data.split_to(max);
        if !rest.data.is_empty() {
            return Some(Received { data, end: None });
        }
        let end = rest.end;
        self.rest.remove(&stream_id);
        Some(Received { data, end })
    }

    /// Removes a stream that the program has dropped.
    pub fn forget(&mut self, stream_id: u64) {
        self.stopped.remove(&stream_id);
        self.rest.remove(&stream_id);
    }

    pub fn pop_datagram(&mut self) -> Option<Bytes> {
        self.datagrams.pop()
    }

    /// The number of received datagrams that were dropped because the queue was full.
    pub fn datagrams_dropped(&self) -> u64 {
        self.datagrams.dropped()
    }

    /// Stores the error code of a STOP_SENDING, if the stream waits or belongs to the program. A peer may send one
    /// until it has acknowledged the whole stream, which may be long after the program has dropped the stream.
    fn keep_code(&mut self, stream_id: u64, error_code: u64) {
        let waiting = &self.waiting[usize::from(is_unidirectional(stream_id))];
        let is_waiting = match &self.detection {
            StreamDetection::All { is_client, .. } => {
                let is_peers = is_peers(stream_id, *is_client);
                is_peers && waiting.front().is_some_and(|first| stream_id >= *first)
            }
            // An announced stream has an entry in `stopped` already.
            StreamDetection::Some => false,
        };
        if is_waiting {
            self.stopped.insert(stream_id, Some(error_code));
        } else if let Some(code) = self.stopped.get_mut(&stream_id) {
            *code = Some(error_code);
        }
    }

    fn leave(&mut self, stream_id: u64, data: Chunks, end: Option<StreamEnd>) {
        let rest = self.rest.entry(stream_id).or_default();
        rest.data.append(data);
        rest.end = end;
    }

    fn readable(&mut self, stream_id: u64, wake: &mut impl FnMut(Key)) {
        self.count_opened(stream_id, wake);
        wake(Key::Readable(stream_id));
    }

    /// Counts the streams that `stream_id` opens: all of its kind with lower numbers (RFC 9000 section 2.1).
    fn count_opened(&mut self, stream_id: u64, wake: &mut impl FnMut(Key)) {
        let StreamDetection::All { is_client, opened } = &mut self.detection else {
            return;
        };
        if !is_peers(stream_id, *is_client) {
            return;
        }
        let unidirectional = is_unidirectional(stream_id);
        let opened = &mut opened[usize::from(unidirectional)];
        let kind = stream_id & 3;
        while *opened <= stream_id >> 2 {
            self.waiting[usize::from(unidirectional)].push_back(*opened << 2 | kind);
            *opened += 1;
            wake(Key::Accept { unidirectional });
        }
    }
}

fn is_unidirectional(stream_id: u64) -> bool {
    stream_id & 2 != 0
}

fn is_peers(stream_id: u64, is_client: bool) -> bool {
    let is_clients = stream_id & 1 == 0;
    is_clients != is_client
}

#[cfg(test)]
mod tests {
    use super::*;

    fn woken(inbox: &mut Inbox, event: Event) -> Vec<Key> {
        let mut keys = Vec::new();
        inbox.handle(event, |key| keys.push(key));
        keys
    }

    fn accepted(inbox: &mut Inbox, unidirectional: bool) -> Vec<u64> {
        std::iter::from_fn(|| inbox.accept(unidirectional)).collect()
    }

    #[test]
    fn a_stream_opens_all_below_it_and_each_is_accepted_once() {
        let mut inbox = Inbox::new(false, 1 << 20);
        let accept = Key::Accept {
            unidirectional: false,
        };
        let event = |stream_id| Event::StreamReadable { stream_id };
        assert_eq!(
            woken(&mut inbox, event(8)),
            [accept, accept, accept, Key::Readable(8)]
        );
        assert_eq!(woken(&mut inbox, event(4)), [Key::Readable(4)]);
        assert_eq!(woken(&mut inbox, event(2)).len(), 2);
        assert_eq!(accepted(&mut inbox, false), [0, 4, 8]);
        assert_eq!(accepted(&mut inbox, true), [2]);
        woken(&mut inbox, event(0));
        // The stream was opened by this side, so it must not be accepted.
        woken(&mut inbox, event(1));
        assert_eq!(accepted(&mut inbox, false), []);
    }

    #[test]
    fn data_stored_at_the_end_is_read_in_pieces() {
        let mut inbox = Inbox::new(true, 1 << 20);
        for (data, fin) in [("abc", false), ("defg", true)] {
            let data = Chunks::from(Bytes::from_static(data.as_bytes()));
            let stream_id = 3;
            inbox.handle(
                Event::StreamData {
                    stream_id,
                    data,
                    fin,
                },
                |_| {},
            );
        }
        let mut take = |max| {
            let rest = inbox.take_rest(3, max);
            rest.map(|rest| (rest.data.to_vec(), rest.end))
        };
        assert_eq!(take(2), Some((b"ab".to_vec(), None)));
        assert_eq!(
            take(100),
            Some((b"cdefg".to_vec(), Some(StreamEnd::Finished)))
        );
        assert_eq!(take(100), None);
    }

    #[test]
    fn a_reset_is_stored_behind_the_data() {
        let mut inbox = Inbox::new(true, 1 << 20);
        let stream_id = 0;
        let data = Chunks::from(Bytes::from_static(b"abc"));
        let fin = false;
        inbox.handle(
            Event::StreamData {
                stream_id,
                data,
                fin,
            },
            |_| {},
        );
        let error_code = 7;
        inbox.handle(
            Event::StreamReset {
                stream_id,
                error_code,
            },
            |_| {},
        );
        let rest = inbox.take_rest(0, 2).unwrap();
        assert_eq!((rest.data.len(), rest.end), (2, None));
        let rest = inbox.take_rest(0, 100).unwrap();
        assert!(!rest.data.is_empty());
        assert_eq!(rest.end, Some(StreamEnd::Reset { error_code: 7 }));
    }

    #[test]
    fn a_stop_code_is_kept_until_its_stream_is_forgotten() {
        let mut inbox = Inbox::new(true, 1 << 20);
        inbox.opened(4);
        let event = Event::StopSending {
            stream_id: 4,
            error_code: 9,
            unsent: 0,
        };
        let keys = woken(&mut inbox, event);
        assert_eq!(keys, [Key::Writable(4), Key::Finished(4), Key::AllFinished]);
        assert_eq!(inbox.stopped(4), Some(9));
        inbox.forget(4);
        assert_eq!(inbox.stopped(4), None);
    }

    #[test]
    fn a_stop_code_of_a_waiting_stream_is_kept_for_its_accept() {
        let mut inbox = Inbox::new(false, 1 << 20);
        let stop = |stream_id| Event::StopSending {
            stream_id,
            error_code: 9,
            unsent: 0,
        };
        woken(&mut inbox, stop(4));
        assert_eq!(accepted(&mut inbox, false), [0, 4]);
        assert_eq!([0, 4].map(|id| inbox.stopped(id)), [None, Some(9)]);
        woken(&mut inbox, stop(0));
        assert_eq!(inbox.stopped(0), Some(9));
    }

    #[test]
    fn a_stop_code_of_a_forgotten_stream_is_not_stored() {
        let mut inbox = Inbox::new(false, 1 << 20);
        let stop = |stream_id| Event::StopSending {
            stream_id,
            error_code: 9,
            unsent: 0,
        };
        woken(&mut inbox, Event::StreamReadable { stream_id: 0 });
        inbox.opened(1);
        for stream_id in accepted(&mut inbox, false).into_iter().chain([1]) {
            inbox.forget(stream_id);
            woken(&mut inbox, stop(stream_id));
            assert_eq!(inbox.stopped(stream_id), None);
        }
        assert!(inbox.stopped.is_empty());
    }

    #[test]
    fn streams_of_a_session_wait_in_the_order_in_which_they_are_announced() {
        let mut inbox = Inbox::of_session(1 << 20);
        let event = |stream_id| Event::StreamReadable { stream_id };
        assert_eq!(woken(&mut inbox, event(8)), [Key::Readable(8)]);
        let mut keys = Vec::new();
        for stream_id in [16, 8, 6] {
            inbox.announced(stream_id, |key| keys.push(key));
        }
        let stop = Event::StopSending {
            stream_id: 8,
            error_code: 9,
            unsent: 0,
        };
        woken(&mut inbox, stop);
        assert_eq!(keys.len(), 3);
        assert_eq!(accepted(&mut inbox, false), [16, 8]);
        assert_eq!(accepted(&mut inbox, true), [6]);
        assert_eq!(inbox.stopped(8), Some(9));
    }
}
