//! A token bucket: limits the rate of events, and allows a burst of events after an idle time.

use std::time::{Duration, Instant};

/// The rate of a token bucket: events per second, and the number of events at once after an idle time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    pub per_second: f64,
    pub burst: u32,
}

/// Tokens are added at `per_second` and taken one by one. The bucket holds at most `burst` tokens.
pub struct TokenBucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled_at: Option<Instant>,
}

impl TokenBucket {
    pub fn new(rate: Rate) -> Self {
        let burst = f64::from(rate.burst);
        Self {
            per_second: rate.per_second,
            burst,
            tokens: burst,
            filled_at: None,
        }
    }

    /// Adds the tokens for the time since the last call, and returns the number of tokens.
    fn filled(&mut self, now: Instant) -> f64 {
        let since = self
            .filled_at
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.filled_at = Some(now);
        self.tokens = (self.tokens + since.as_secs_f64() * self.per_second).min(self.burst);
        self.tokens
    }

    /// Takes a token. If none is left, the number of tokens becomes negative.
    pub fn take(&mut self, now: Instant) {
        self.tokens = self.filled(now) - 1.0;
    }

    /// True if fewer tokens than half a burst are left.
    pub fn is_half_empty(&mut self, now: Instant) -> bool {
        self.filled(now) < self.burst / 2.0
    }

    /// True if at least one token is left.
    pub fn has_one(&mut self, now: Instant) -> bool {
        self.filled(now) >= 1.0
    }

    /// Takes a token. False, without an effect, if none is left.
    pub fn try_take(&mut self, now: Instant) -> bool {
        let is_there = self.filled(now) >= 1.0;
        if is_there {
            self.tokens -= 1.0;
        }
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket() -> (TokenBucket, Instant) {
        let rate = Rate {
            per_second: 10.0,
            burst: 4,
        };
        (TokenBucket::new(rate), Instant::now())
    }

    #[test]
    fn a_burst_is_available_at_once_and_later_tokens_at_the_rate() {
        let (mut bucket, begin) = bucket();
        let taken = |bucket: &mut TokenBucket, at| (0..9).filter(|_| bucket.try_take(at)).count();
        assert_eq!(taken(&mut bucket, begin), 4);
        assert!(!bucket.has_one(begin + Duration::from_millis(99)));
        assert_eq!(taken(&mut bucket, begin + Duration::from_millis(301)), 3);
    }

    #[test]
    fn an_idle_time_fills_the_bucket_with_one_burst() {
        let (mut bucket, begin) = bucket();
        let later = begin + Duration::from_secs(3600);
        assert_eq!((0..9).filter(|_| bucket.try_take(later)).count(), 4);
    }

    #[test]
    fn a_negative_count_is_refilled_before_a_token_is_available() {
        let (mut bucket, begin) = bucket();
        for _ in 0..5 {
            bucket.take(begin);
        }
        assert!(!bucket.has_one(begin + Duration::from_millis(199)));
        assert!(bucket.has_one(begin + Duration::from_millis(201)));
    }

    #[test]
    fn the_bucket_is_half_empty_below_half_a_burst() {
        let (mut bucket, begin) = bucket();
        bucket.take(begin);
        bucket.take(begin);
        assert!(!bucket.is_half_empty(begin));
        bucket.take(begin);
        assert!(bucket.is_half_empty(begin));
        assert!(!bucket.is_half_empty(begin + Duration::from_millis(101)));
    }
}
