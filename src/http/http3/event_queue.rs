//! The events for the host, in order. Events of requests that wait for the handshake are held until it is complete.

use std::collections::VecDeque;

use bytes::Bytes;
use rustc_hash::FxHashSet;
use uringcore_quic::Chunks;

use super::event::Event;

/// A queue of events. QUIC limits the number of streams whose events can be held. For each, the header section and the
/// content that arrived with it are held.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    ready: VecDeque<Event>,
    /// The streams whose events are held back until the handshake is complete.
    streams: FxHashSet<u64>,
    held: VecDeque<Event>,
    held_bytes: usize,
}

impl EventQueue {
    pub fn pop(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    /// Queues an event for the host at once.
    pub fn push(&mut self, event: Event) {
        self.ready.push_back(event);
    }

    /// Queues an event of a request: at once, or held until the handshake is complete.
    pub fn push_of(&mut self, stream_id: u64, event: Event) {
        if !self.holds(stream_id) {
            return self.ready.push_back(event);
        }
        if let Event::Request { head, .. } = &event {
            self.held_bytes += head.size();
        }
        self.held.push_back(event);
    }

    /// Queues content of a request. If the last event in the queue is content of the same request, the content is
    /// joined to it.
    pub fn push_content(&mut self, stream_id: u64, data: Bytes, ended: bool) {
        let queue = match self.holds(stream_id) {
            true => {
                self.held_bytes += data.len();
                &mut self.held
            }
            false => &mut self.ready,
        };
        match queue.back_mut() {
            Some(Event::Body {
                stream_id: last,
                pieces,
                ended: has_ended,
            }) if *last == stream_id => {
                pieces.push(data);
                *has_ended = ended;
            }
            _ => queue.push_back(Event::Body {
                stream_id,
                pieces: Chunks::from(data),
                ended,
            }),
        }
    }

    /// Holds all further events of a stream until the handshake is complete.
    pub fn hold(&mut self, stream_id: u64) {
        self.streams.insert(stream_id);
    }

    pub fn holds(&self, stream_id: u64) -> bool {
        // After the handshake no stream is in the set, so it is not searched.
        !self.streams.is_empty() && self.streams.contains(&stream_id)
    }

    pub fn holds_any(&self) -> bool {
        !self.streams.is_empty()
    }

    /// The bytes in events that are held back.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Queues all events that were held back, because the handshake is complete. Returns the streams that they belong
    /// to.
    pub fn release(&mut self) -> Vec<u64> {
        self.ready.append(&mut self.held);
        self.held_bytes = 0;
        let mut streams = Vec::from_iter(std::mem::take(&mut self.streams));
        streams.sort_unstable();
        streams
    }

    /// Frees the queue's unused capacity.
    pub fn free_capacity(&mut self) {
        self.ready.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(stream_id: u64, pieces: &[&'static [u8]], ended: bool) -> Event {
        Event::Body {
            stream_id,
            pieces: pieces.iter().copied().map(Bytes::from_static).collect(),
            ended,
        }
    }

    #[test]
    fn adjacent_pieces_of_content_are_one_event() {
        let mut queue = EventQueue::default();
        queue.push_content(0, Bytes::from_static(b"a"), false);
        queue.push_content(0, Bytes::from_static(b"b"), false);
        queue.push_content(4, Bytes::new(), true);
        queue.push_content(0, Bytes::new(), true);
        assert_eq!(queue.pop(), Some(content(0, &[b"a", b"b"], false)));
        assert_eq!(queue.pop(), Some(content(4, &[], true)));
        assert_eq!(queue.pop(), Some(content(0, &[], true)));
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn events_of_a_held_stream_are_counted_until_its_release() {
        let mut queue = EventQueue::default();
        queue.hold(4);
        queue.push_content(4, Bytes::from_static(b"late"), true);
        queue.push_of(4, Event::Aborted { stream_id: 4 });
        queue.push_of(0, Event::Aborted { stream_id: 0 });
        assert!(queue.holds_any() && queue.holds(4) && !queue.holds(0));
        assert_eq!(queue.held_bytes(), 4);
        assert_eq!(queue.pop(), Some(Event::Aborted { stream_id: 0 }));
        assert_eq!(queue.pop(), None);
        assert_eq!(queue.release(), [4]);
        assert_eq!((queue.held_bytes(), queue.holds_any()), (0, false));
        assert_eq!(queue.pop(), Some(content(4, &[b"late"], true)));
        assert_eq!(queue.pop(), Some(Event::Aborted { stream_id: 4 }));
    }
}
