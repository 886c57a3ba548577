//! The limit of streams that the peer may have open (RFC 9000 section 4.6), announced in two steps.
//!
//! quinn-proto allocates an entry for every stream that the peer may open, and most peers open few. So a high limit
//! is not announced at first, but a lower one; the full limit follows as soon as half of the lower one is open. A
//! peer that opens more streams at once waits for one round trip, once.
//!
//! Assumed of quinn-proto: it does not announce a rise of at most an eighth of the new limit; it counts the streams
//! that the peer has open, even if nothing has arrived on them yet. A later quinn-proto
//! that allocates entries only as streams are opened would make this file unnecessary, but not wrong. Its allocations
//! cannot be observed from outside, so no test would show that.

use quinn_proto::{self as quinn, Dir, VarInt};

/// The limits that are announced first, for bidirectional and unidirectional streams. RFC 9114 recommends a hundred
/// streams for requests (section 6.1), and needs three unidirectional ones (section 6.2).
const FIRST: [u64; 2] = [100, 12];

/// The limits of a peer that gets no more streams. HTTP/3's unidirectional streams (RFC 9114 section 6.2) fit in
/// them.
const WITHHELD: [u64; 2] = [8, 8];

/// The limit in the transport parameters, if `allowed` streams of a direction are configured.
pub fn first(dir: Dir, allowed: u64) -> u64 {
    let first = FIRST[dir as usize];
    // quinn-proto would not announce a rise of an eighth or less, so the full limit is announced at once.
    match allowed.saturating_sub(first) > allowed / 8 {
        true => first,
        false => allowed,
    }
}

/// The configured limits of the peer's streams, by direction.
pub struct PeersLimits {
    allowed: [u64; 2],
    /// True while a lower limit than the configured one is announced.
    is_less: [bool; 2],
    is_withheld: bool,
}

impl PeersLimits {
    pub fn new(allowed: [u64; 2]) -> Self {
        let is_less = [Dir::Bi, Dir::Uni].map(|dir| {
            let allowed = allowed[dir as usize];
            first(dir, allowed) < allowed
        });
        Self {
            allowed,
            is_less,
            is_withheld: false,
        }
    }

    pub fn allowed(&self, dir: Dir) -> u64 {
        self.allowed[dir as usize]
    }

    /// Changes the limit of streams to `count`, and announces it to the peer.
    pub fn allow(&mut self, quinn: &mut quinn::Connection, dir: Dir, count: u64) {
        self.allowed[dir as usize] = count;
        self.announce(quinn, dir);
    }

    /// Called when the peer has opened streams. Announces the full limit if the peer has opened half of the first one.
    pub fn opened(&mut self, quinn: &mut quinn::Connection, dir: Dir) {
        if self.is_less[dir as usize]
            && quinn.streams().remote_open_streams(dir) > FIRST[dir as usize] / 2
        {
            self.announce(quinn, dir);
        }
    }

    pub fn is_withheld(&self) -> bool {
        self.is_withheld
    }

    /// With `is_withheld` the peer may open no more streams. Otherwise the configured limits are announced again.
    pub fn withhold(&mut self, quinn: &mut quinn::Connection, dir: Dir, is_withheld: bool) {
        self.is_withheld = is_withheld;
        self.announce(quinn, dir);
    }

    fn announce(&mut self, quinn: &mut quinn::Connection, dir: Dir) {
        self.is_less[dir as usize] = false;
        let allowed = self.allowed(dir);
        let count = match self.is_withheld {
            true => allowed.min(WITHHELD[dir as usize]),
            false => allowed,
        };
        quinn.set_max_concurrent_streams(dir, VarInt::from_u64(count).unwrap_or(VarInt::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quinn::TransportConfig;

    use crate::workarounds::bare_quinn::BareQuinn;

    #[test]
    fn a_low_limit_is_announced_at_once_and_a_high_one_in_two_steps() {
        for (dir, allowed, announced) in [
            (Dir::Bi, 0, 0),
            (Dir::Bi, 100, 100),
            // The new limit of 114 exceeds the old one of 100 by more than an eighth, so it is announced at once.
            (Dir::Bi, 114, 114),
            (Dir::Bi, 115, 100),
            (Dir::Bi, 1 << 20, 100),
            (Dir::Uni, 13, 13),
            (Dir::Uni, 14, 12),
            (Dir::Uni, 128, 12),
        ] {
            assert_eq!(first(dir, allowed), announced, "{dir:?} {allowed}");
        }
    }

    #[test]
    fn bare_quinn_does_not_announce_a_rise_by_an_eighth() {
        for (raised, is_announced) in [(114, false), (115, true)] {
            let mut transport = TransportConfig::default();
            transport.max_concurrent_bidi_streams(VarInt::from_u32(100));
            let mut bare = BareQuinn::connected(transport);
            let server = bare.server.connection();
            server.set_max_concurrent_streams(Dir::Bi, VarInt::from_u32(raised));
            bare.exchange();
            let sent = bare.server.connection().stats().frame_tx;
            assert_eq!(sent.max_streams_bidi > 0, is_announced, "{raised}");
        }
    }

    #[test]
    fn bare_quinn_counts_streams_opened_by_a_later_one() {
        let mut bare = BareQuinn::connected(TransportConfig::default());
        let client = bare.client.connection();
        let opened = [(); 3].map(|()| client.streams().open(Dir::Uni).unwrap());
        client.send_stream(opened[2]).write(b"one").unwrap();
        bare.exchange();
        let streams = bare.server.connection().streams();
        assert_eq!(streams.remote_open_streams(Dir::Uni), 3);
    }
}
