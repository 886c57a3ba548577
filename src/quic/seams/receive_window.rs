//! A connection's receive window that begins small, grows when the peer uses it, and can be taken back.
//!
//! quinn-proto announces the whole window at first. Its `set_receive_window` grows the window at once, but shrinks it
//! by a debt: bytes that are read pay the debt before the peer gets credit again. A window that shrinks and grows again
//! would give the peer both. So the debt is tracked here as well, and the window does not grow before the debt is paid.
//!
//! Assumed of quinn-proto: the above, and that bytes which are read, stopped or reset pay the debt.

use std::time::{Duration, Instant};

use quinn_proto::{self as quinn, VarInt};

/// The initial window of a connection that may have `allowed`.
pub fn first(allowed: u64) -> u64 {
    allowed.min(FIRST)
}

/// The receive window of one connection.
#[derive(Debug)]
pub struct Credit {
    allowed: u64,
    window: u64,
    /// The debt: this many read bytes give the peer no credit.
    owed: u64,
    is_withheld: bool,
    /// How much the peer had sent at its last change, and when that was seen.
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

    /// How much the window would grow for a peer that has sent `received` bytes in all. It grows in one step, when half
    /// of the first window has arrived.
    pub fn growth(&self, received: u64) -> Option<u64> {
        let may_grow = !self.is_withheld && self.owed == 0 && received > first(self.allowed) / 2;
        (may_grow && self.window < self.allowed).then_some(self.allowed - self.window)
    }

    pub fn grow(&mut self, quinn: &mut quinn::Connection) {
        self.set(quinn, self.allowed);
    }

    /// Records bytes that were read, or never will be.
    pub fn released(&mut self, bytes: u64) {
        self.owed = self.owed.saturating_sub(bytes);
    }

    /// Reduces the peer's credit to the minimum that lets it continue.
    pub fn withhold(&mut self, quinn: &mut quinn::Connection) {
        self.is_withheld = true;
        self.set(quinn, self.window.min(LEAST));
    }

    /// Records how much the peer has sent in all. Returns until when room should be kept for its unused credit. Packets
    /// without stream data, sent to keep the connection alive, do not count.
    pub fn kept_until(&mut self, received: u64, now: Instant) -> Instant {
        let since = match self.used {
            Some((before, since)) if before == received => since,
            _ => now,
        };
        self.used = Some((received, since));
        since + KEPT_FOR
    }

    /// Takes back the credit beyond the first window, because the peer does not use it.
    pub fn rest(&mut self, quinn: &mut quinn::Connection) {
        if self.window > first(self.allowed) {
            self.set(quinn, first(self.allowed));
        }
    }

    /// True if the peer has no more than the initial credit, and the debt is paid.
    pub fn is_taken_back(&self) -> bool {
        self.window <= first(self.allowed) && self.owed == 0
    }

    /// Restores the initial window. False if a debt is left and the caller must try again.
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

/// More than the first flights of a slow start, so the window grows before the peer is blocked.
const FIRST: u64 = 1 << 20;
/// A peer with this little credit at a time proceeds slowly. With none, a stream of which a part was read could not
/// deliver its rest.
const LEAST: u64 = 64 << 10;
/// How long a quiet peer's unused credit reserves room. Later there may be no room for it, and its streams are reset.
const KEPT_FOR: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use quinn::{Dir, StreamId, TransportConfig};

    use super::*;
    use crate::seams::bare_quinn::BareQuinn;

    const WINDOW: u64 = 100_000;

    fn bare() -> (BareQuinn, StreamId) {
        let mut transport = TransportConfig::default();
        transport.receive_window(VarInt::from_u64(WINDOW).unwrap());
        let mut bare = BareQuinn::connected(transport);
        let id = bare.client.connection().streams().open(Dir::Uni).unwrap();
        (bare, id)
    }

    /// How much the client may send until it has no credit.
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
    fn bare_quinn_owes_what_a_window_shrinks_by_and_grows_at_once() {
        let (mut bare, id) = bare();
        assert_eq!(fill(&mut bare, id), WINDOW);
        let small = VarInt::from_u32(20_000);
        bare.server.connection().set_receive_window(small);
        bare.exchange();
        assert_eq!(read(&mut bare, id), WINDOW);
        assert_eq!(fill(&mut bare, id), 20_000, "the rest paid the debt");
        let large = VarInt::from_u64(WINDOW).unwrap();
        bare.server.connection().set_receive_window(large);
        bare.exchange();
        assert_eq!(fill(&mut bare, id), WINDOW - 20_000);
    }

    #[test]
    fn bare_quinn_pays_with_what_it_drops_of_a_stopped_stream_and_what_its_reset_leaves_out() {
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
        // The debt is 80,000. Of that 40,000 are paid by the data that has arrived.
        let server = bare.server.connection();
        server.recv_stream(id).stop(VarInt::from_u32(0)).unwrap();
        // The client has not received STOP_SENDING yet and continues.
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
        // Credit that was given is not revoked.
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
        // Without more data the time stays.
        let later = now + Duration::from_secs(7);
        assert_eq!(credit.kept_until(FIRST, later), now + KEPT_FOR);
        assert_eq!(credit.kept_until(FIRST + 1, later), later + KEPT_FOR);
        assert_eq!(credit.growth(FIRST), None, "there is a debt");
        credit.released(7 * FIRST);
        assert_eq!(credit.growth(FIRST), Some(7 * FIRST));
    }
}
