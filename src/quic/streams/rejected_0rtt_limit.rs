//! The peer's limit on all streams' data, after it has rejected 0-RTT data.
//!
//! The state machine keeps the larger of two limits: the ticket's and the server's. The server's replaces the
//! ticket's (RFC 9000 section 7.4.1). So while it is the smaller one it is counted here.

#[derive(Debug, Default)]
pub(crate) struct EarlyLimit {
    /// The limit that 0-RTT data was sent with, which the state machine keeps.
    assumed: u64,
    counted: Option<Counted>,
}

#[derive(Debug)]
struct Counted {
    allowed: u64,
    /// The part of it that is not used up.
    room: u64,
}

impl EarlyLimit {
    pub fn new(assumed: u64) -> Self {
        Self {
            assumed,
            counted: None,
        }
    }

    /// The rest of the limit; `u64::MAX` if only the state machine counts.
    pub fn room(&self) -> u64 {
        self.counted.as_ref().map_or(u64::MAX, |it| it.room)
    }

    /// Counts data that is passed to the state machine.
    pub fn take(&mut self, bytes: u64) {
        if let Some(counted) = &mut self.counted {
            counted.room = counted.room.saturating_sub(bytes);
        }
    }

    /// The peer has rejected the 0-RTT data, and allows `allowed` bytes in all. Returns true if they are counted
    /// here.
    pub fn rejected(&mut self, allowed: u64) -> bool {
        let is_less = allowed < self.assumed;
        self.counted = is_less.then_some(Counted {
            allowed,
            room: allowed,
        });
        is_less
    }

    /// True if data is counted here.
    pub fn is_counted(&self) -> bool {
        self.counted.is_some()
    }

    /// The peer allows `allowed` bytes now. Returns true if the state machine's own count is right from here on.
    pub fn raise(&mut self, allowed: u64) -> bool {
        let Some(counted) = &mut self.counted else {
            return true;
        };
        counted.room += allowed.saturating_sub(counted.allowed);
        counted.allowed = counted.allowed.max(allowed);
        self.counted
            .take_if(|it| it.allowed >= self.assumed)
            .is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_limit_is_counted_until_the_peer_allows_as_much_as_the_ticket_did() {
        let mut limit = EarlyLimit::new(100);
        assert_eq!((limit.room(), limit.is_counted()), (u64::MAX, false));
        assert!(limit.rejected(40));
        limit.take(30);
        assert_eq!((limit.room(), limit.is_counted()), (10, true));
        assert!(!limit.raise(40) && !limit.raise(30));
        assert_eq!(limit.room(), 10);
        assert!(!limit.raise(99));
        assert_eq!(limit.room(), 69);
        limit.take(70);
        assert_eq!(limit.room(), 0);
        assert!(limit.raise(100));
        assert_eq!((limit.room(), limit.is_counted()), (u64::MAX, false));
    }

    #[test]
    fn a_limit_as_large_as_the_tickets_is_the_state_machines() {
        let mut limit = EarlyLimit::new(100);
        assert!(!limit.rejected(100) && !limit.is_counted());
        assert!(!EarlyLimit::default().rejected(0));
        limit.take(1_000);
        assert_eq!(limit.room(), u64::MAX);
    }
}
