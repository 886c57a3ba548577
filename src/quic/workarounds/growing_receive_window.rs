//! A connection's receive window that begins small, grows when the peer uses it, and can be taken back.
//!
//! quinn-proto announces the whole window at once. `set_receive_window` can grow it at once, but shrinks it by a
//! debt: the next bytes that are read pay the debt, and give the peer no credit. If the window grew again before the
//! debt is paid, the peer would get credit twice. So the debt is counted here as well, and the window does not grow
//! before it is paid.
//!
//! Assumed of quinn-proto: the above, and that bytes which are read, stopped or reset pay the debt.

use std::time::{Duration, Instant};

use quinn_proto::{self as quinn, VarInt};

/// The initial window of a connection that may have a window of `allowed` bytes later.
pub fn first(allowed: u64) -> u64 {
    allowed.min(FIRST)
}

/// The receive window of one connection, in bytes.
#[derive(Debug)]
pub struct Credit {
    allowed: u64,
    window: u64,
    /// The debt: this many bytes will be read without giving the peer credit.
    owed: u64,
    is_withheld: bool,
    /// How many bytes the peer had sent at the last call that saw a change, and the time of that call.
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

    /// By how much the window may grow for a peer that has sent `received` bytes in all. It grows once, to its full
    /// size, after half of the first window has arrived. `None` if it must not grow.
    pub fn growth(&self, received: u64) -> Option<u64> {
        let may_grow = !self.is_withheld && self.owed == 0 && received > first(self.allowed) / 2;
        (may_grow && self.window < self.allowed).then_some(self.allowed - self.window)
    }

    pub fn grow(&mut self, quinn: &mut quinn::Connection) {
        self.set(quinn, self.allowed);
    }

    /// Counts bytes that were read, or that will never be read.
    pub fn released(&mut self, bytes: u64) {
        self.owed = self.owed.saturating_sub(bytes);
    }

    /// Reduces the peer's credit to the least with which it can continue.
    pub fn withhold(&mut self, quinn: &mut quinn::Connection) {
        self.is_withheld = true;
        self.set(quinn, self.window.min(LEAST));
    }

    /// Records that the peer has sent `received` bytes in all. Returns the time until which memory is reserved for its
    /// unused credit. Packets that only keep the connection alive do not change it.
    pub fn kept_until(&mut self, received: u64, now: Instant) -> Instant {
        let since = match self.used {
            Some((before, since)) if before == received => since,
            _ => now,
        };
        self.used = Some((received, since));
        since + KEPT_FOR
    }

    /// Reduces the window to its first size again, because the peer does not use the larger one.
    pub fn take_back(&mut self, quinn: &mut quinn::Connection) {
        if self.window > first(self.allowed) {
            self.set(quinn, first(self.allowed));
        }
    }

    /// True if the window is no larger than at first, and the peer has used up all credit that exceeds it (`owed`).
    pub fn is_taken_back(&self) -> bool {
        self.window <= first(self.allowed) && self.owed == 0
    }

    /// Restores the first window after credit was withheld. Returns false, and changes nothing, while the peer has
    /// announced credit beyond its window (`owed`); then the caller must try again later.
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

/// The first window in bytes. A slow start needs less in its first flights, so the window grows before the peer is
/// blocked.
const FIRST: u64 = 1 << 20;
/// The smallest window in bytes, with which the peer can still proceed slowly. Without a window, a stream of which a
/// part was read could not deliver its remaining data.
const LEAST: u64 = 64 << 10;
/// The time for which memory stays reserved for the unused credit of a peer that sends nothing. After it the memory may
/// be given to others; if the peer then uses its credit and no memory is left, its streams are reset.
const KEPT_FOR: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use quinn::{Dir, StreamId, TransportConfig};

    use super::*;
    use crate::workarounds::bare_quinn::BareQuinn;

    const WINDOW: u64 = 100_000;

    fn bare() -> (BareQuinn, StreamId) {
        let mut transport = TransportConfig::default();
        transport.receive_window(VarInt::from_u64(WINDOW).unwrap());
        let mut bare = BareQuinn::connected(transport);
        let id = bare.client.connection().streams().open(Dir::Uni).unwrap();
        (bare, id)
    }

    /// How many bytes the client can send until its credit is used up.
    fn fill(bare: &mut BareQuinn, id: StreamId) -> u64 {
        let part = Bytes::from(vec![1; 10_000]);
        let mut sent = 0;
        for _ in 0..100 {
            let client = bare.client.connection();
            sent += client.send_stream(id).write(&part).unwrap_or(0) as u64;
            bare.exchange();
        }
        sent
    }

    fn read(bare: &mut BareQuinn, id: StreamId) -> u64 {
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
    fn bare_quinn_shrinks_a_window_by_a_debt_and_grows_it_at_once() {
        let (mut bare, id) = bare();
        assert_eq!(fill(&mut bare, id), WINDOW);
        let small = VarInt::from_u32(20_000);
        bare.server.connection().set_receive_window(small);
        bare.exchange();
        assert_eq!(read(&mut bare, id), WINDOW);
        assert_eq!(
            fill(&mut bare, id),
            20_000,
            "the other bytes have paid the debt"
        );
        let large = VarInt::from_u64(WINDOW).unwrap();
        bare.server.connection().set_receive_window(large);
        bare.exchange();
        assert_eq!(fill(&mut bare, id), WINDOW - 20_000);
    }

    #[test]
    fn bare_quinn_pays_the_debt_with_dropped_data_of_stopped_and_reset_streams() {
        let (mut bare, id) = bare();
        let write = |bare: &mut BareQuinn, id, size: usize| {
            let client = bare.client.connection();
            let data = vec![1; size];
            assert_eq!(client.send_stream(id).write(&data).unwrap(), size);
        };
        write(&mut bare, id, 40_000);
        bare.exchange();
        let small = VarInt::from_u32(20_000);
        bare.server.connection().set_receive_window(small);
        // The announced credit exceeds the new window by 80,000 bytes. The 40,000 bytes that have arrived reduce that
        // to 40,000.
        let server = bare.server.connection();
        server.recv_stream(id).stop(VarInt::from_u32(0)).unwrap();
        // STOP_SENDING has not arrived at the client yet, so it continues to send.
        write(&mut bare, id, 60_000);
        bare.exchange();
        let other = bare.client.connection().streams().open(Dir::Uni).unwrap();
        assert_eq!(fill(&mut bare, other), 20_000);
    }

    #[test]
    fn credit_that_is_taken_back_is_not_granted_twice() {
        let (mut bare, id) = bare();
        let mut credit = Credit::new(WINDOW, WINDOW);
        credit.withhold(bare.server.connection());
        assert!(!credit.restore(bare.server.connection()));
        // Credit that was announced is not revoked.
        assert_eq!(fill(&mut bare, id), WINDOW);
        let count = read(&mut bare, id);
        credit.released(count);
        assert!(credit.restore(bare.server.connection()));
        bare.exchange();
        assert_eq!(fill(&mut bare, id), WINDOW);
    }

    #[test]
    fn a_peer_without_credit_can_still_proceed_slowly() {
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
    fn a_window_grows_once_the_peer_has_used_half_of_the_first() {
        let allowed = 8 * FIRST;
        let mut credit = Credit::new(allowed, first(allowed));
        assert_eq!(credit.growth(FIRST / 2), None);
        assert_eq!(credit.growth(FIRST), Some(7 * FIRST));
        let (mut bare, _) = bare();
        credit.grow(bare.server.connection());
        assert_eq!(credit.growth(FIRST), None);
        let now = Instant::now();
        assert_eq!(credit.kept_until(FIRST, now), now + KEPT_FOR);
        credit.take_back(bare.server.connection());
        // The connection has received no more data, so the time stays what it was.
        let later = now + Duration::from_secs(7);
        assert_eq!(credit.kept_until(FIRST, later), now + KEPT_FOR);
        assert_eq!(credit.kept_until(FIRST + 1, later), later + KEPT_FOR);
        assert_eq!(
            credit.growth(FIRST),
            None,
            "the window must not grow before the debt is paid"
        );
        credit.released(7 * FIRST);
        assert_eq!(credit.growth(FIRST), Some(7 * FIRST));
    }
}
