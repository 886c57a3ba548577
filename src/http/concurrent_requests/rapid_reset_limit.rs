//! Limits how many requests a client may abandon before they are answered (CVE-2023-44487, "Rapid Reset").

use std::time::Instant;

use uringcore_limits::token_bucket::{Rate, TokenBucket};

use super::limits::Limits;

/// The limit of abandoned requests of one connection.
pub(crate) struct RapidResetLimit {
    allowed: TokenBucket,
    /// The highest request stream identifier on which data or a reset has arrived, plus one.
    arrived_below: u64,
}

impl RapidResetLimit {
    pub fn new(limits: &Limits) -> Self {
        Self {
            allowed: TokenBucket::new(Rate {
                per_second: limits.early_resets_per_second,
                burst: limits.early_resets,
            }),
            arrived_below: 0,
        }
    }

    /// Records that data or a reset has arrived on a request stream.
    pub fn arrived(&mut self, stream_id: u64) {
        self.arrived_below = self.arrived_below.max(stream_id + 1);
    }

    /// True if nothing has arrived on this request stream or on a later one.
    pub fn is_new(&self, stream_id: u64) -> bool {
        stream_id >= self.arrived_below
    }

    /// Counts an abandoned request. False if the client has abandoned too many.
    pub fn count(&mut self, now: Instant) -> bool {
        self.allowed.try_take(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_client_may_reset_a_burst_of_requests_and_more_at_the_rate() {
        let now = Instant::now();
        let limits = Limits {
            early_resets: 2,
            early_resets_per_second: 1.0,
            ..Limits::default()
        };
        let mut resets = RapidResetLimit::new(&limits);
        assert!(resets.count(now) && resets.count(now) && !resets.count(now));
        let later = now + Duration::from_secs(1);
        assert!(resets.count(later) && !resets.count(later));
    }

    #[test]
    fn a_stream_is_new_until_data_arrives_on_it_or_on_a_later_one() {
        let mut resets = RapidResetLimit::new(&Limits::default());
        assert!(resets.is_new(0));
        resets.arrived(4);
        assert!(!resets.is_new(0) && !resets.is_new(4) && resets.is_new(8));
        resets.arrived(0);
        assert!(!resets.is_new(4));
    }
}
