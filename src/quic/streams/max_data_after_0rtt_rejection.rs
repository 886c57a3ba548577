//! The server's limit on the data of all streams (MAX_DATA), after it has rejected 0-RTT data.
//!
//! quinn-proto keeps the larger of two limits: the ticket's and the server's. But the server's replaces the ticket's
//! (RFC 9000 section 7.4.1). So while the server's limit is the smaller one, it is counted here.

#[derive(Debug, Default)]
pub(crate) struct EarlyLimit {
    /// The ticket's limit in bytes, with which 0-RTT data was sent and which quinn-proto keeps.
    assumed: u64,
    counted: Option<Counted>,
}

#[derive(Debug)]
struct Counted {
    allowed: u64,
    /// The bytes of the limit that are not used up.
    room: u64,
}

impl EarlyLimit {
    pub fn new(assumed: u64) -> Self {
        Self {
            assumed,
            counted: None,
        }
    }

    /// The number of bytes that may still be sent on all streams. `u64::MAX` if quinn-proto's own limit is right, so
    /// that no limit applies here.
    pub fn room(&self) -> u64 {
        self.counted.as_ref().map_or(u64::MAX, |it| it.room)
    }

    /// Counts data that is passed to quinn-proto.
    pub fn take(&mut self, bytes: u64) {
        if let Some(counted) = &mut self.counted {
            counted.room = counted.room.saturating_sub(bytes);
        }
    }

    /// Starts counting after the server has rejected 0-RTT data and allows `allowed` bytes in all. Returns false if
    /// quinn-proto's own limit is right, because the server allows as much as the ticket.
    pub fn rejected(&mut self, allowed: u64) -> bool {
        let is_less = allowed < self.assumed;
        self.counted = is_less.then_some(Counted {
            allowed,
            room: allowed,
        });
        is_less
    }

    /// True if this object counts data, because quinn-proto's count is wrong.
    pub fn is_counted(&self) -> bool {
        self.counted.is_some()
    }

    /// Raises the limit to `allowed` bytes. Returns true if quinn-proto's own limit is right from now on.
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
    fn a_limit_as_large_as_the_tickets_is_not_counted() {
        let mut limit = EarlyLimit::new(100);
        assert!(!limit.rejected(100) && !limit.is_counted());
        assert!(!EarlyLimit::default().rejected(0));
        limit.take(1_000);
        assert_eq!(limit.room(), u64::MAX);
    }
}
