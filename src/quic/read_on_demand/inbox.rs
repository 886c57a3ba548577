//! Input of one connection that the program has not read yet, and the waiters that an event concerns.

use std::collections::VecDeque;

use bytes::Bytes;
use rustc_hash::FxHashMap;
use uringcore_limits::memory_budget::Charge;

use super::datagrams::{Datagrams, Overflow};
use crate::{Chunks, Event, Received, StreamEnd};

/// A condition that a host can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Key {
    /// The stream has something to read.
    Readable(u64),
    /// The stream has room to send, or never will.
    Writable(u64),
    /// Everything sent on the stream is acknowledged, or never will be.
    Finished(u64),
    /// All finished streams are acknowledged.
    AllFinished,
    /// The peer has opened a stream.
    Accept {
        unidirectional: bool,
    },
    /// The peer allows another stream of ours.
    Open {
        unidirectional: bool,
    },
    Datagram,
}

impl Key {
    /// The conditions of one stream.
    pub fn of_stream(id: u64) -> [Self; 3] {
        [Self::Readable(id), Self::Writable(id), Self::Finished(id)]
    }
}

/// Streams of the peer that wait to be accepted, error codes of streams that it stopped, and datagrams.
///
/// Bounds: waiting streams by the limit of open streams in the settings. Codes by the waiting streams and the
/// program's, from [`accept`](Self::accept) or [`opened`](Self::opened) until [`forget`](Self::forget). Datagrams
/// by a number of bytes. Stream data is stored here only when the connection ends, or when it arrived before it was
/// read on demand; its flow-control windows bound it.
#[derive(Debug)]
pub struct Inbox {
    /// Indexed by direction, bidirectional first.
    waiting: [VecDeque<u64>; 2],
    numbers: Numbers,
    /// The program's streams, and others that wait, each with the error code if the peer has stopped it.
    stopped: FxHashMap<u64, Option<u64>>,
    rest: FxHashMap<u64, Received>,
    datagrams: Datagrams,
}

/// How streams of the peer are detected.
#[derive(Debug)]
enum Numbers {
    /// All streams of the connection are the program's. A stream opens those of its kind with lower numbers (RFC
    /// 9000 section 2.1); `opened` counts the open ones of each direction.
    All { is_client: bool, opened: [u64; 2] },
    /// Some streams of the connection are the program's; each is [announced](Self::announced).
    Some,
}

impl Inbox {
    /// Creates an inbox for all streams of a connection.
    pub fn new(is_client: bool, datagram_bytes_max: usize) -> Self {
        let opened = [0; 2];
        Self::of(Numbers::All { is_client, opened }, datagram_bytes_max)
    }

    /// Creates an inbox for the streams of a session, each of which is announced.
    pub fn of_session(datagram_bytes_max: usize) -> Self {
        Self::of(Numbers::Some, datagram_bytes_max)
    }

    fn of(numbers: Numbers, datagram_bytes_max: usize) -> Self {
        Self {
            waiting: Default::default(),
            numbers,
            stopped: FxHashMap::default(),
            rest: FxHashMap::default(),
            datagrams: Datagrams::new(datagram_bytes_max),
        }
    }

    /// Sets which datagrams are dropped when the queue is full. The default is the oldest.
    pub fn set_overflow(&mut self, overflow: Overflow) {
        self.datagrams.set_overflow(overflow);
    }

    /// Charges the waiting datagrams to `charge`.
    pub fn set_charge(&mut self, charge: Charge) {
        self.datagrams.set_charge(charge);
    }

    /// Drops the datagrams when the connection has ended.
    pub fn drop_datagrams(&mut self) {
        self.datagrams.clear();
    }

    /// Applies one event, and calls `wake` for each condition that may now hold.
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
                // The reset is stored behind the data held here: with RESET_STREAM_AT the peer may have promised
                // that data in spite of the reset.
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
            // Other events do not concern streams or datagrams.
            _ => {}
        }
    }

    /// Records that the peer has opened this stream, in `Numbers::Some`.
    pub fn announced(&mut self, stream_id: u64, mut wake: impl FnMut(Key)) {
        let unidirectional = is_unidirectional(stream_id);
        self.waiting[usize::from(unidirectional)].push_back(stream_id);
        // The entry lets `keep_code` find the stream without a search of the waiting ones.
        self.stopped.entry(stream_id).or_default();
        wake(Key::Accept { unidirectional });
    }

    /// The next stream of the peer that the program has not accepted.
    pub fn accept(&mut self, unidirectional: bool) -> Option<u64> {
        let stream_id = self.waiting[usize::from(unidirectional)].pop_front()?;
        self.stopped.entry(stream_id).or_default();
        Some(stream_id)
    }

    /// Records that the program has opened this stream.
    pub fn opened(&mut self, stream_id: u64) {
        self.stopped.insert(stream_id, None);
    }

    /// The error code of the peer's STOP_SENDING on a stream.
    pub fn stopped(&self, stream_id: u64) -> Option<u64> {
        self.stopped.get(&stream_id).copied().flatten()
    }

    /// Takes at most `max` bytes of a stream's stored data, and its end with the last of them.
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

    /// Stores the code only for streams that wait or that the program holds. A peer may stop a stream until it has
    /// acknowledged all of it, which may be long after the program has dropped the stream.
    fn keep_code(&mut self, stream_id: u64, error_code: u64) {
        let waiting = &self.waiting[usize::from(is_unidirectional(stream_id))];
        let is_waiting = match &self.numbers {
            Numbers::All { is_client, .. } => {
                let is_peers = is_peers(stream_id, *is_client);
                is_peers && waiting.front().is_some_and(|first| stream_id >= *first)
            }
            // The stream has had an entry since it was announced.
            Numbers::Some => false,
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

    /// RFC 9000 section 2.1: a stream opens all of its kind with lower numbers.
    fn count_opened(&mut self, stream_id: u64, wake: &mut impl FnMut(Key)) {
        let Numbers::All { is_client, opened } = &mut self.numbers else {
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
    fn a_stream_opens_those_below_it_and_each_is_accepted_once() {
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
        // A stream of ours is not accepted.
        woken(&mut inbox, event(1));
        assert_eq!(accepted(&mut inbox, false), []);
    }

    #[test]
    fn what_the_end_left_is_read_in_pieces_and_ends() {
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
    fn a_reset_leaves_nothing_but_itself() {
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
    fn a_stop_is_known_until_its_stream_is_forgotten() {
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
    fn a_stop_of_a_stream_in_waiting_is_known_to_who_accepts_it() {
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
    fn a_stop_that_comes_too_late_is_not_kept() {
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
