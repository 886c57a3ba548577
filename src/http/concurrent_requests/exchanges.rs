//! The open exchanges of a connection, and the counts that the limits of a client apply to.

use std::time::Instant;

use rustc_hash::{FxHashMap, FxHashSet};
use uringcore_h3::Priority;

use super::exchange::Exchange;
use super::limits::Limits;
use super::slowly_read_responses::Writing;

/// Open exchanges by stream identifier. An exchange begins with the request's header section, and ends when the host
/// has finished it.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    table: FxHashMap<u64, Exchange>,
    /// The number of exchanges whose response is not complete.
    unanswered: usize,
    /// The number of exchanges that the client has abandoned and whose application is still running.
    abandoned: usize,
    /// Streams that the host has paused.
    paused: FxHashSet<u64>,
    /// True if the client has sent a priority signal.
    uses_priorities: bool,
}

/// The result of asking for room for another request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Free,
    Full,
    /// There is no room, and most running applications work for requests that the client has abandoned.
    FullOfAbandoned,
}

/// An exchange whose response is not complete.
pub(crate) struct Unanswered<'a> {
    pub exchange: &'a mut Exchange,
    uses_priorities: bool,
    count: &'a mut usize,
}

impl Unanswered<'_> {
    /// Records that the whole response is in QUIC's queues. Returns the response's priority.
    pub fn answer(self) -> Priority {
        self.exchange.answered = true;
        *self.count -= 1;
        self.exchange.priority.rank(self.uses_priorities)
    }
}

impl Exchanges {
    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Checks if another request may be open. An application may run on after its response, and an application whose
    /// client has gone cannot be stopped. So there are two limits: `open_requests` exchanges without a complete
    /// response, and [`AT_WORK_FACTOR`] times as many running applications.
    pub fn room(&self, open_requests: usize) -> Room {
        let at_work_max = open_requests.saturating_mul(AT_WORK_FACTOR);
        match self.table.len() >= at_work_max {
            true if self.abandoned > at_work_max / 2 => Room::FullOfAbandoned,
            true => Room::Full,
            false if self.unanswered >= open_requests => Room::Full,
            false => Room::Free,
        }
    }

    pub fn open(&mut self, stream_id: u64, exchange: Exchange) {
        self.table.insert(stream_id, exchange);
        self.unanswered += 1;
    }

    pub fn get(&self, stream_id: u64) -> Option<&Exchange> {
        self.table.get(&stream_id)
    }

    pub fn get_mut(&mut self, stream_id: u64) -> Option<&mut Exchange> {
        self.table.get_mut(&stream_id)
    }

    pub fn is_unanswered(&self, stream_id: u64) -> bool {
        let exchange = self.table.get(&stream_id);
        exchange.is_some_and(|exchange| !exchange.answered)
    }

    pub fn unanswered(&mut self, stream_id: u64) -> Option<Unanswered<'_>> {
        let exchange = self.table.get_mut(&stream_id)?;
        (!exchange.answered).then_some(Unanswered {
            exchange,
            uses_priorities: self.uses_priorities,
            count: &mut self.unanswered,
        })
    }

    /// Records that the response is not needed any more or was refused. False if the response was complete before.
    pub fn answered(&mut self, stream_id: u64) -> bool {
        let unanswered = self.unanswered(stream_id);
        unanswered.map(Unanswered::answer).is_some()
    }

    /// Records that the client has abandoned a request. False if the response was complete before.
    pub fn abandon(&mut self, stream_id: u64) -> bool {
        let Some(open) = self.unanswered(stream_id) else {
            return false;
        };
        open.exchange.reading = None;
        open.exchange.writing = None;
        open.exchange.is_abandoned = true;
        open.answer();
        self.abandoned += 1;
        true
    }

    /// Removes an exchange that the host has finished.
    pub fn finish(&mut self, stream_id: u64) {
        self.answered(stream_id);
        if let Some(exchange) = self.table.remove(&stream_id) {
            self.abandoned -= usize::from(exchange.is_abandoned);
        }
        self.paused.remove(&stream_id);
    }

    pub fn pause(&mut self, stream_id: u64) {
        self.paused.insert(stream_id);
    }

    pub fn resume(&mut self, stream_id: u64) {
        self.paused.remove(&stream_id);
    }

    // Priorities ---------------------------------------------------------------------------------

    pub fn uses_priorities(&self) -> bool {
        self.uses_priorities
    }

    pub fn set_uses_priorities(&mut self) {
        self.uses_priorities = true;
    }

    /// The priority of a response.
    pub fn rank(&self, stream_id: u64) -> Priority {
        let priority = self.table.get(&stream_id).map(|it| it.priority);
        priority.unwrap_or_default().rank(self.uses_priorities)
    }

    // Waiting ------------------------------------------------------------------------------------

    /// Returns the exchanges whose content did not arrive in time. Each is returned only once, because its time-out is
    /// removed.
    pub fn take_overdue(&mut self, limits: &Limits, now: Instant) -> Vec<u64> {
        // While content of another stream waits for the host, the connection's flow-control window may be used up.
        // Then it is not the client's fault that content is late.
        if !self.paused.is_empty() {
            return Vec::new();
        }
        let overdue = |(&stream_id, exchange): (&u64, &mut Exchange)| {
            let reading = exchange.reading.as_ref()?;
            let is_over = !exchange.has_begun
                && !exchange.answered
                && reading.is_over(limits.body_timeout, limits.body_rate, now);
            is_over.then(|| {
                exchange.reading = None;
                stream_id
            })
        };
        self.table.iter_mut().filter_map(overdue).collect()
    }

    /// Responses whose host waits for the client to read, with their current priorities.
    pub fn waiting(&mut self) -> Vec<(u64, &mut Writing)> {
        let uses_priorities = self.uses_priorities;
        let exchanges = self.table.iter_mut();
        let waiting = exchanges.filter_map(|(&stream_id, exchange)| {
            let writing = exchange.writing.as_mut()?;
            writing.priority = exchange.priority.rank(uses_priorities);
            Some((stream_id, writing))
        });
        waiting.collect()
    }

    /// Responses that wait for room in the queues of the connection, in the order in which they began to wait.
    pub fn waiting_for_connection(&self) -> Vec<u64> {
        let place = |(&stream_id, exchange): (&u64, &Exchange)| {
            Some((exchange.writing.as_ref()?.place?, stream_id))
        };
        let mut waiting: Vec<(u64, u64)> = self.table.iter().filter_map(place).collect();
        waiting.sort_unstable();
        waiting
            .into_iter()
            .map(|(_, stream_id)| stream_id)
            .collect()
    }

    /// Called when a response no longer waits for room. Returns false if it did not wait.
    pub fn stop_waiting(&mut self, stream_id: u64) -> bool {
        let exchange = self.table.get_mut(&stream_id);
        exchange.is_some_and(|exchange| exchange.writing.take().is_some())
    }

    /// Frees the table's unused capacity.
    pub fn free_capacity(&mut self) {
        self.table.shrink_to_fit();
        self.paused.shrink_to_fit();
    }
}

/// The limit of running applications, as a multiple of the requests that may be open. It includes applications whose
/// response is complete, and those whose client has left.
const AT_WORK_FACTOR: usize = 8;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn opened(stream_ids: &[u64]) -> Exchanges {
        let mut exchanges = Exchanges::default();
        for &stream_id in stream_ids {
            exchanges.open(stream_id, Exchange::new(true));
        }
        exchanges
    }

    #[test]
    fn a_request_counts_until_it_is_answered_and_its_application_until_it_has_finished() {
        let mut exchanges = opened(&[0, 4]);
        assert_eq!(exchanges.room(3), Room::Free);
        assert_eq!(exchanges.room(2), Room::Full);
        assert!(exchanges.answered(0) && !exchanges.answered(0));
        assert_eq!(exchanges.room(2), Room::Free);
        assert_eq!(exchanges.len(), 2);
        exchanges.finish(0);
        exchanges.finish(4);
        exchanges.finish(4);
        assert!(exchanges.is_empty());
        assert_eq!(exchanges.room(1), Room::Free);
    }

    #[test]
    fn applications_of_abandoned_requests_count_against_the_limit() {
        let stream_ids = Vec::from_iter((0..8).map(|index| index * 4));
        let mut exchanges = opened(&stream_ids);
        for stream_id in &stream_ids[..4] {
            assert!(exchanges.abandon(*stream_id) && !exchanges.abandon(*stream_id));
        }
        assert_eq!(exchanges.room(1), Room::Full);
        assert!(exchanges.abandon(stream_ids[4]));
        assert_eq!(exchanges.room(1), Room::FullOfAbandoned);
        exchanges.finish(stream_ids[4]);
        assert_eq!(exchanges.room(1), Room::Full);
    }

    #[test]
    fn a_paused_stream_stops_the_body_time_out_of_all_requests() {
        let (begin, limits) = (Instant::now(), Limits::default());
        let mut exchanges = Exchanges::default();
        exchanges.open(0, Exchange::new(false));
        exchanges.get_mut(0).unwrap().wait(begin);
        exchanges.pause(4);
        let late = begin + limits.body_timeout + Duration::from_secs(1);
        assert_eq!(exchanges.take_overdue(&limits, late), []);
        exchanges.resume(4);
        assert_eq!(exchanges.take_overdue(&limits, begin), []);
        assert_eq!(exchanges.take_overdue(&limits, late), [0]);
        assert_eq!(exchanges.take_overdue(&limits, late), []);
    }

    #[test]
    fn responses_that_wait_for_connection_credit_continue_in_order() {
        let (now, limits) = (Instant::now(), Limits::default());
        let mut exchanges = opened(&[0, 4, 8, 12]);
        for (stream_id, place) in [(8, Some(0)), (0, Some(1)), (4, None)] {
            let mut writing = Writing::new(1, Priority::default(), &limits, now);
            writing.place = place;
            exchanges.get_mut(stream_id).unwrap().writing = Some(writing);
        }
        assert_eq!(exchanges.waiting_for_connection(), [8, 0]);
        assert!(exchanges.stop_waiting(8) && !exchanges.stop_waiting(8));
        assert!(!exchanges.stop_waiting(12));
        assert_eq!(exchanges.waiting_for_connection(), [0]);
        assert_eq!(exchanges.waiting().len(), 2);
    }
}
