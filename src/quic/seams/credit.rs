//! A connection's receive window that begins small, grows when its peer makes use of it, and can be taken back.
//!
//! quinn-proto announces the whole window at first, and its `set_receive_window` grows at once but shrinks by
//! owing: what is read pays for it before the peer gets credit again. A window that shrinks and grows again would
//! let the peer have both. So what is owed is kept here as well, and nothing grows before it is paid.
//!
//! Assumed of quinn-proto: that; and what is read, stopped or reset is paid with.

use std::time::{Duration, Instant};

use quinn_proto::{self as quinn, VarInt};

/// What a connection begins with, of what it may have.
pub fn first(allowed: u64) -> u64 {
    allowed.min(FIRST)
}

/// The receive window of one connection.
#[derive(Debug)]
pub struct Credit {
    allowed: u64,
    window: u64,
    /// So much of what is read gives the peer no credit.
    owed: u64,
    is_withheld: bool,
    /// How much the peer had sent when that had last changed, and when it was seen.
    used: Option<(u64, Instant)>,
}

impl Credit {
    pub fn new(allowed: u64, window: u64) -> Self {
        Self {
            allowed,
            window,
            owed: 0,
            is_withheld: false,
            used: None,
        }
    }

    pub fn is_withheld(&self) -> bool {
        self.is_withheld
    }

    /// By how much the window would grow for a peer that has sent so much in all: it grows in one step, when
    /// half of the first window has come.
    pub fn growth(&self, received: u64) -> Option<u64> {
        let may_grow = !self.is_withheld && self.owed == 0 && received > first(self.allowed) / 2;
        (may_grow && self.window < self.allowed).then_some(self.allowed - self.window)
    }

    pub fn grow(&mut self, quinn: &mut quinn::Connection) {
        self.set(quinn, self.allowed);
    }

    /// So many bytes were read, or will not be.
    pub fn released(&mut self, bytes: u64) {
        self.owed = self.owed.saturating_sub(bytes);
    }

    /// The peer gets no more credit than it needs to go on at all.
    pub fn withhold(&mut self, quinn: &mut quinn::Connection) {
        self.is_withheld = true;
        self.set(quinn, self.window.min(LEAST));
    }

    /// The peer has sent so much in all. Returns until when room should be kept for the credit that it has not used.
    /// What it sends beside streams, to keep the connection alive, does not count.
    pub fn kept_until(&mut self, received: u64, now: Instant) -> Instant {
        let since = match self.used {
            Some((before, since)) if before == received => since,
            _ => now,
        };
        self.used = Some((received, since));
        since + KEPT_FOR
    }

    /// The peer does not use its credit: what it was given beyond the first window is taken back.
    pub fn rest(&mut self, quinn: &mut quinn::Connection) {
        if self.window > first(self.allowed) {
            self.set(quinn, first(self.allowed));
        }
    }

    /// True if the peer has no more than it began with, in its hands too.
    pub fn is_taken_back(&self) -> bool {
        self.window <= first(self.allowed) && self.owed == 0
    }

    /// The peer may go on as it began. False: something is owed yet, and this is to be tried again.
    pub fn restore(&mut self, quinn: &mut quinn::Connection) -> bool {
        let is_paid = self.owed == 0;
        if is_paid {
            self.is_withheld = false;
            self.set(quinn, self.window.max(first(self.allowed)));
        }
        is_paid
    }

    fn set(&mut self, quinn: &mut quinn::Connection, window: u64) {
        if window == self.window {
            return;
        }
        self.owed += self.window.saturating_sub(window);
        self.window = window;
        quinn.set_receive_window(VarInt::from_u64(window).unwrap_or(VarInt::MAX));
    }
}

/// More than the first flights of a slow start fill, so a peer that needs more asks for it in time.
const FIRST: u64 = 1 << 20;
/// A peer that gets so much credit at a time goes on slowly. With none, what is read of one stream could not
/// be followed by its rest.
const LEAST: u64 = 64 << 10;
/// So long a quiet peer's credit takes room from others. Later it may find none, and loses its streams.
const KEPT_FOR: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use quinn::{Dir, StreamId, TransportConfig};

    use super::*;
    use crate::seams::bare::Bare;

    const WINDOW: u64 = 100_000;

    fn bare() -> (Bare, StreamId) {
        let mut transport = TransportConfig::default();
        transport.receive_window(VarInt::from_u64(WINDOW).unwrap());
        let mut bare = Bare::connected(transport);
        let id = bare.client.connection().streams().open(Dir::Uni).unwrap();
        (bare, id)
    }

    /// How much the client may send until it has no credit.
    fn fill(bare: &mut Bare, id: StreamId) -> u64 {
        let part = Bytes::from(vec![1; 10_000]);
        let mut sent = 0;
        for _ in 0..100 {
            let client = bare.client.connection();
            sent += client.send_stream(id).write(&part).unwrap_or(0) as u64;
            bare.exchange();
        }
        sent
    }

    fn read(bare: &mut Bare, id: StreamId) -> u64 {
        let mut stream = bare.server.connection().recv_stream(id);
        let mut chunks = stream.read(true).unwrap();
        let mut count = 0;
        while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
            count += chunk.bytes.len() as u64;
        }
        let _ = chunks.finalize();
        bare.exchange();
        count
    }

    #[test]
    fn bare_quinn_owes_what_a_window_shrinks_by_and_grows_at_once() {
        let (mut bare, id) = bare();
        assert_eq!(fill(&mut bare, id), WINDOW);
        let small = VarInt::from_u32(20_000);
        bare.server.connection().set_receive_window(small);
        bare.exchange();
        assert_eq!(read(&mut bare, id), WINDOW);
        assert_eq!(fill(&mut bare, id), 20_000, "the rest was owed");
        let large = VarInt::from_u64(WINDOW).unwrap();
        bare.server.connection().set_receive_window(large);
        bare.exchange();
        assert_eq!(fill(&mut bare, id), WINDOW - 20_000);
    }

    #[test]
    fn bare_quinn_pays_with_what_it_drops_of_a_stopped_stream_and_what_its_reset_leaves_out() {
        let (mut bare, id) = bare();
        let write = |bare: &mut Bare, id, size: usize| {
            let client = bare.client.connection();
            let data = vec![1; size];
            assert_eq!(client.send_stream(id).write(&data).unwrap(), size);
        };
        write(&mut bare, id, 40_000);
        bare.exchange();
        let small = VarInt::from_u32(20_000);
        bare.server.connection().set_receive_window(small);
        // 80,000 are owed. Of these 40,000 are paid with what has come.
        let server = bare.server.connection();
        server.recv_stream(id).stop(VarInt::from_u32(0)).unwrap();
        // The client does not know yet, and sends on.
        write(&mut bare, id, 60_000);
        bare.exchange();
        let other = bare.client.connection().streams().open(Dir::Uni).unwrap();
        assert_eq!(fill(&mut bare, other), 20_000);
    }

    #[test]
    fn credit_that_is_taken_back_is_not_given_twice() {
        let (mut bare, id) = bare();
        let mut credit = Credit::new(WINDOW, WINDOW);
        credit.withhold(bare.server.connection());
        assert!(!credit.restore(bare.server.connection()));
        // What it had been given stays the peer's.
        assert_eq!(fill(&mut bare, id), WINDOW);
        let count = read(&mut bare, id);
        credit.released(count);
        assert!(credit.restore(bare.server.connection()));
        bare.exchange();
        assert_eq!(fill(&mut bare, id), WINDOW);
    }

    #[test]
    fn a_peer_that_is_withheld_goes_on_slowly() {
        let (mut bare, id) = bare();
        let mut credit = Credit::new(WINDOW, WINDOW);
        fill(&mut bare, id);
        credit.withhold(bare.server.connection());
        let count = read(&mut bare, id);
        credit.released(count);
        assert_eq!(fill(&mut bare, id), LEAST);
        assert!(credit.is_withheld() && credit.growth(WINDOW).is_none());
    }

    #[test]
    fn a_large_window_grows_once_its_peer_makes_use_of_it() {
        let allowed = 8 * FIRST;
        let mut credit = Credit::new(allowed, first(allowed));
        assert_eq!(credit.growth(FIRST / 2), None);
        assert_eq!(credit.growth(FIRST), Some(7 * FIRST));
        let (mut bare, _) = bare();
        credit.grow(bare.server.connection());
        assert_eq!(credit.growth(FIRST), None);
        let now = Instant::now();
        assert_eq!(credit.kept_until(FIRST, now), now + KEPT_FOR);
        credit.rest(bare.server.connection());
        // Without more data it is kept no longer.
        let later = now + Duration::from_secs(7);
        assert_eq!(credit.kept_until(FIRST, later), now + KEPT_FOR);
        assert_eq!(credit.kept_until(FIRST + 1, later), later + KEPT_FOR);
        assert_eq!(credit.growth(FIRST), None, "it is owed");
        credit.released(7 * FIRST);
        assert_eq!(credit.growth(FIRST), Some(7 * FIRST));
    }
}
