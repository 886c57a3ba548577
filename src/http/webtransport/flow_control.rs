//! Flow control of one session (draft-ietf-webtrans-http3 section 5): limits of streams and bytes, in both directions.
//!
//! Counters start with the session. In arrays the first number is for bidirectional streams, the second for
//! unidirectional ones. Not here: data that waits for credit (`data_streams`), and QUIC's own flow control.

use super::session_capsule;

/// The error WT_FLOW_CONTROL_ERROR: the peer has exceeded a limit, or has sent an invalid limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation;

#[derive(Debug)]
pub struct FlowControl {
    ours: Allowance,
    peers: Grant,
    /// The WT_STREAMS_BLOCKED and WT_DATA_BLOCKED capsules to send, as types and values.
    blocked: Vec<(u64, u64)>,
}

/// The limits that the peer has set for this side, and the streams and bytes that this side has used of them.
#[derive(Debug)]
struct Allowance {
    streams: [u64; 2],
    opened: [u64; 2],
    data: u64,
    sent: u64,
    /// For each of the three limits, its value when a BLOCKED capsule was last sent. `None` if none was sent.
    blocked_at: [Option<u64>; 3],
}

/// The limits that this side has set for the peer, and what the peer has used.
#[derive(Debug)]
struct Grant {
    streams: [u64; 2],
    opened: [u64; 2],
    over: [u64; 2],
    streams_window: [u64; 2],
    data: u64,
    received: u64,
    /// An upper bound of the bytes on abandoned streams that the peer may have sent and that will not be read.
    abandoned: u64,
    window: u64,
}

impl FlowControl {
    /// `allowed` is from the peer's SETTINGS; `streams_window` and `window` are from this side's.
    pub fn new(allowed: ([u64; 2], u64), streams_window: [u64; 2], window: u64) -> Self {
        Self {
            ours: Allowance {
                streams: allowed.0,
                opened: [0; 2],
                data: allowed.1,
                sent: 0,
                blocked_at: [None; 3],
            },
            peers: Grant {
                streams: streams_window,
                opened: [0; 2],
                over: [0; 2],
                streams_window,
                data: window,
                received: 0,
                abandoned: 0,
                window,
            },
            blocked: Vec::new(),
        }
    }

    /// True if this side may open another stream. If not, a WT_STREAMS_BLOCKED capsule is queued.
    pub fn may_open(&mut self, unidirectional: bool) -> bool {
        let at = usize::from(unidirectional);
        let may = self.ours.opened[at] < self.ours.streams[at];
        if !may {
            let kind = session_capsule::STREAMS_BLOCKED[at];
            self.queue_blocked(at, kind, self.ours.streams[at]);
        }
        may
    }

    pub fn opened(&mut self, unidirectional: bool) {
        self.ours.opened[usize::from(unidirectional)] += 1;
    }

    /// The number of bytes that this side may send.
    pub fn room(&self) -> usize {
        let room = self.ours.data.saturating_sub(self.ours.sent);
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    pub fn sent(&mut self, count: usize) {
        self.ours.sent += count as u64;
    }

    /// Returns the credit of `count` bytes that were not sent after all.
    pub fn not_sent(&mut self, count: usize) {
        self.ours.sent = self.ours.sent.saturating_sub(count as u64);
    }

    /// Queues a WT_DATA_BLOCKED capsule, because data waits for credit.
    pub fn note_blocked(&mut self) {
        self.queue_blocked(2, session_capsule::DATA_BLOCKED, self.ours.data);
    }

    fn queue_blocked(&mut self, at: usize, kind: u64, limit: u64) {
        if self.ours.blocked_at[at].replace(limit) != Some(limit) {
            self.blocked.push((kind, limit));
        }
    }

    /// Handles the peer's WT_MAX_STREAMS, which raises the number of streams that this side may open.
    pub fn allow_streams(&mut self, unidirectional: bool, limit: u64) -> Result<(), Violation> {
        let known = &mut self.ours.streams[usize::from(unidirectional)];
        if limit > STREAMS_MAX {
            return Err(Violation);
        }
        raise(known, limit)
    }

    /// Handles the peer's WT_MAX_DATA, which raises the number of bytes that this side may send.
    pub fn allow_data(&mut self, limit: u64) -> Result<(), Violation> {
        raise(&mut self.ours.data, limit)
    }

    /// Counts a stream that the peer has opened. Fails if the peer's limit is exceeded.
    pub fn peer_opened(&mut self, unidirectional: bool) -> Result<(), Violation> {
        let at = usize::from(unidirectional);
        self.peers.opened[at] += 1;
        match self.peers.opened[at] <= self.peers.streams[at] {
            true => Ok(()),
            false => Err(Violation),
        }
    }

    /// Counts bytes of the peer that were read. Fails if the peer's limit is exceeded.
    pub fn received(&mut self, count: usize) -> Result<(), Violation> {
        self.peers.received += count as u64;
        match self.peers.received <= self.peers.data {
            true => Ok(()),
            false => Err(Violation),
        }
    }

    /// Counts a stream of the peer that has ended.
    pub fn peer_closed(&mut self, unidirectional: bool) {
        self.peers.over[usize::from(unidirectional)] += 1;
    }

    /// Counts an abandoned stream, of which at most `unread_max` bytes were not read.
    pub fn abandoned(&mut self, unread_max: u64) {
        self.peers.abandoned = self.peers.abandoned.saturating_add(unread_max);
    }

    /// Takes the capsules to send, as types and values. A limit is raised when half of its window is used, so that one
    /// capsule covers many streams.
    pub fn take_due(&mut self) -> Vec<(u64, u64)> {
        let mut due = std::mem::take(&mut self.blocked);
        let peers = &mut self.peers;
        for at in 0..2 {
            let limit = peers.over[at].saturating_add(peers.streams_window[at]);
            let limit = limit.min(STREAMS_MAX);
            let step = (peers.streams_window[at] / 2).max(1);
            if limit >= peers.streams[at].saturating_add(step) {
                peers.streams[at] = limit;
                due.push((session_capsule::MAX_STREAMS[at], limit));
            }
        }
        let limit = peers.received.saturating_add(peers.abandoned);
        let limit = limit.saturating_add(peers.window).min(DATA_MAX);
        if limit >= peers.data + (peers.window / 2).max(1) {
            peers.data = limit;
            due.push((session_capsule::MAX_DATA, limit));
        }
        due
    }
}

/// Checks that the value of a WT_STREAMS_BLOCKED capsule is a possible limit. Otherwise the capsule has no effect.
pub(super) fn check_blocked(streams: Option<u64>) -> Result<(), Violation> {
    match streams {
        Some(limit) if limit > STREAMS_MAX => Err(Violation),
        _ => Ok(()),
    }
}

/// Raises a limit. Capsules arrive in order, so no limit may be lower than the one before. draft-16 requires each to
/// be higher; draft-15 does not, and the two cannot be distinguished.
fn raise(known: &mut u64, limit: u64) -> Result<(), Violation> {
    if limit < *known {
        return Err(Violation);
    }
    *known = limit;
    Ok(())
}

/// The highest possible number of streams (RFC 9000 section 4.6).
const STREAMS_MAX: u64 = 1 << 60;
const DATA_MAX: u64 = (1 << 62) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_bytes_are_bounded_both_ways() {
        let mut flow = FlowControl::new(([1, 0], 10), [2, 4], 100);
        assert!(flow.may_open(false) && !flow.may_open(true) && !flow.may_open(true));
        flow.opened(false);
        assert!(!flow.may_open(false));
        // Each limit causes one BLOCKED capsule.
        let blocked = [
            (session_capsule::STREAMS_BLOCKED[1], 0),
            (session_capsule::STREAMS_BLOCKED[0], 1),
        ];
        assert_eq!(flow.take_due(), blocked);
        assert_eq!(flow.allow_streams(false, 0), Err(Violation));
        assert_eq!(flow.allow_streams(false, STREAMS_MAX + 1), Err(Violation));
        // An equal limit may be sent again.
        assert_eq!(flow.allow_streams(false, 1), Ok(()));
        assert!(!flow.may_open(false));
        assert_eq!(flow.allow_streams(false, 2), Ok(()));
        assert!(flow.may_open(false));
        flow.sent(10);
        assert_eq!(flow.room(), 0);
        flow.not_sent(4);
        assert_eq!(flow.room(), 4);
        assert_eq!(flow.allow_data(9), Err(Violation));
        assert_eq!(flow.allow_data(10), Ok(()));
        assert_eq!(flow.room(), 4);
        assert_eq!(flow.allow_data(11), Ok(()));
        assert_eq!(flow.room(), 5);
    }

    #[test]
    fn credit_is_granted_for_finished_streams_and_read_bytes() {
        let mut flow = FlowControl::new(([0, 0], 0), [2, 4], 100);
        assert_eq!(flow.peer_opened(false), Ok(()));
        assert_eq!(flow.peer_opened(false), Ok(()));
        assert_eq!(flow.peer_opened(false), Err(Violation));
        flow.peer_closed(false);
        assert_eq!(flow.take_due(), [(session_capsule::MAX_STREAMS[0], 3)]);
        flow.peer_closed(true);
        assert_eq!(flow.take_due(), []);
        flow.peer_closed(true);
        assert_eq!(flow.take_due(), [(session_capsule::MAX_STREAMS[1], 6)]);
        assert_eq!(flow.received(49), Ok(()));
        assert_eq!(flow.take_due(), []);
        assert_eq!(flow.received(1), Ok(()));
        assert_eq!(flow.take_due(), [(session_capsule::MAX_DATA, 150)]);
        flow.abandoned(100);
        assert_eq!(flow.take_due(), [(session_capsule::MAX_DATA, 250)]);
        assert_eq!(flow.received(201), Err(Violation));
    }

    #[test]
    fn credit_stops_at_the_protocols_maximum() {
        let mut flow = FlowControl::new(([0, 0], 0), [2, 4], DATA_MAX - 1_000);
        for _ in 0..9 {
            flow.abandoned(DATA_MAX - 1_000);
        }
        assert_eq!(flow.take_due(), []);
        let mut flow = FlowControl::new(([0, 0], 0), [2, 4], DATA_MAX / 2);
        for _ in 0..9 {
            flow.abandoned(DATA_MAX / 2);
        }
        assert_eq!(flow.take_due(), [(session_capsule::MAX_DATA, DATA_MAX)]);
    }
}
