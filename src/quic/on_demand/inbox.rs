//! What has come on one connection and nobody has asked for, and whom an event concerns.

use std::collections::VecDeque;

use bytes::Bytes;
use rustc_hash::FxHashMap;
use uringcore_limits::budget::Charge;

use super::datagrams::{Datagrams, Overflow};
use crate::{Chunks, Event, Received, StreamEnd};

/// What a host can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Key {
    /// Something to read of this stream.
    Readable(u64),
    /// Room to send on this stream, or that there will be none.
    Writable(u64),
    /// That everything sent on this stream is acknowledged, or will not be.
    Finished(u64),
    /// The same of all streams that are finished.
    AllFinished,
    /// A stream of the peer's.
    Accept {
        unidirectional: bool,
    },
    /// That the peer allows another stream of ours.
    Open {
        unidirectional: bool,
    },
    Datagram,
}

impl Key {
    /// What can be waited for on one stream.
    pub fn of_stream(id: u64) -> [Self; 3] {
        [Self::Readable(id), Self::Writable(id), Self::Finished(id)]
    }
}

/// The streams of the peer's that wait to be taken, codes of those that it stopped, and datagrams.
///
/// Bounds: streams in waiting by the number of streams that may be open, which is the settings'. Codes by
/// those in waiting and those that the program has, from [`accept`](Self::accept) or
/// [`opened`](Self::opened) until it [forgets](Self::forget) them. Datagrams by a number of bytes. Data of
/// streams only comes here when the connection ends, or came before it was read on demand, and is bounded
/// by its windows.
#[derive(Debug)]
pub struct Inbox {
    /// By direction: bidirectional first.
    waiting: [VecDeque<u64>; 2],
    numbers: Numbers,
    /// The streams that the program has, and others' that wait, with the code if it was stopped.
    stopped: FxHashMap<u64, Option<u64>>,
    rest: FxHashMap<u64, Received>,
    datagrams: Datagrams,
}

/// How it is known that the peer has opened a stream.
#[derive(Debug)]
enum Numbers {
    /// All streams of the connection are the program's, and a stream opens those of its kind with lower
    /// numbers (RFC 9000 section 2.1): so many of each direction were heard of.
    All { is_client: bool, heard: [u64; 2] },
    /// Some of them are: each is [announced](Arrivals::announced).
    Some,
}

impl Inbox {
    /// For all streams of a connection.
    pub fn new(is_client: bool, datagram_bytes_max: usize) -> Self {
        let heard = [0; 2];
        Self::of(Numbers::All { is_client, heard }, datagram_bytes_max)
    }

    /// For streams of a connection of which each is announced.
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

    /// Which datagrams are dropped when there is no room for all; else the oldest.
    pub fn set_overflow(&mut self, overflow: Overflow) {
        self.datagrams.set_overflow(overflow);
    }

    /// Has somebody charged with the datagrams that wait.
    pub fn set_charge(&mut self, charge: Charge) {
        self.datagrams.set_charge(charge);
    }

    /// The connection is gone, and with it the use of datagrams.
    pub fn drop_datagrams(&mut self) {
        self.datagrams.clear();
    }

    /// Takes one event in, and names those who are to look again.
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
                // Behind what is here: it may be what the peer has promised in spite of the reset
                // (RESET_STREAM_AT).
                let end = Some(StreamEnd::Reset { error_code });
                self.leave(stream_id, Chunks::default(), end);
                self.readable(stream_id, &mut wake);
            }
            Event::StopSending {
                stream_id,
                error_code,
                ..
            } => {
                self.hear_of(stream_id, &mut wake);
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
            // The others are nobody's here.
            _ => {}
        }
    }

    /// The peer has opened a stream, of which nothing was told before.
    pub fn announced(&mut self, stream_id: u64, mut wake: impl FnMut(Key)) {
        let unidirectional = is_unidirectional(stream_id);
        self.waiting[usize::from(unidirectional)].push_back(stream_id);
        // Its code is found without a search of those that wait.
        self.stopped.entry(stream_id).or_default();
        wake(Key::Accept { unidirectional });
    }

    /// The next stream of the peer's that nobody has taken.
    pub fn accept(&mut self, unidirectional: bool) -> Option<u64> {
        let stream_id = self.waiting[usize::from(unidirectional)].pop_front()?;
        self.stopped.entry(stream_id).or_default();
        Some(stream_id)
    }

    /// The program has opened this stream.
    pub fn opened(&mut self, stream_id: u64) {
        self.stopped.insert(stream_id, None);
    }

    /// The code with which the peer has asked for no more data on a stream.
    pub fn stopped(&self, stream_id: u64) -> Option<u64> {
        self.stopped.get(&stream_id).copied().flatten()
    }

    /// Takes what is here of a stream's data, at most `max` bytes, and its end with the last of it.
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

    /// Nobody has this stream any more.
    pub fn forget(&mut self, stream_id: u64) {
        self.stopped.remove(&stream_id);
        self.rest.remove(&stream_id);
    }

    pub fn pop_datagram(&mut self) -> Option<Bytes> {
        self.datagrams.pop()
    }

    /// Datagrams that came and were dropped, because newer ones needed their room.
    pub fn datagrams_dropped(&self) -> u64 {
        self.datagrams.dropped()
    }

    /// A peer can stop a stream for as long as it has not acknowledged all of it, which may be long after
    /// the program has dropped that: nobody asks for the code then.
    fn keep_code(&mut self, stream_id: u64, error_code: u64) {
        let waiting = &self.waiting[usize::from(is_unidirectional(stream_id))];
        let is_waiting = match &self.numbers {
            Numbers::All { is_client, .. } => {
                let is_peers = is_peers(stream_id, *is_client);
                is_peers && waiting.front().is_some_and(|first| stream_id >= *first)
            }
            // It has its place since it was announced.
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
        self.hear_of(stream_id, wake);
        wake(Key::Readable(stream_id));
    }

    /// RFC 9000 section 2.1: a stream opens all of its kind with lower numbers.
    fn hear_of(&mut self, stream_id: u64, wake: &mut impl FnMut(Key)) {
        let Numbers::All { is_client, heard } = &mut self.numbers else {
            return;
        };
        if !is_peers(stream_id, *is_client) {
            return;
        }
        let unidirectional = is_unidirectional(stream_id);
        let heard = &mut heard[usize::from(unidirectional)];
        let kind = stream_id & 3;
        while *heard <= stream_id >> 2 {
            self.waiting[usize::from(unidirectional)].push_back(*heard << 2 | kind);
            *heard += 1;
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
        // One of ours.
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
