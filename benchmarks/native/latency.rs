//! Round-trip times of one window and their percentiles.

use std::time::Duration;

/// Every sample is kept: a window is seconds long and a sample four bytes, and a percentile of all
/// samples needs no explanation, unlike one of a histogram.
#[derive(Default)]
pub struct Latencies {
    nanoseconds: Vec<u32>,
}

impl Latencies {
    pub fn with_capacity(samples: usize) -> Latencies {
        Latencies {
            nanoseconds: Vec::with_capacity(samples),
        }
    }

    pub fn add(&mut self, elapsed: Duration) {
        let clamped = u32::try_from(elapsed.as_nanos()).unwrap_or(u32::MAX);
        self.nanoseconds.push(clamped);
    }

    pub fn is_empty(&self) -> bool {
        self.nanoseconds.is_empty()
    }

    /// The given percentile in microseconds; 0 without samples.
    pub fn percentile_us(&mut self, percent: f64) -> f64 {
        if self.nanoseconds.is_empty() {
            return 0.0;
        }
        let last = self.nanoseconds.len() - 1;
        let rank = ((last as f64) * percent / 100.0).round() as usize;
        let (_, value, _) = self.nanoseconds.select_nth_unstable(rank.min(last));
        f64::from(*value) / 1000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_known_series() {
        let mut latencies = Latencies::default();
        for us in 0..=100 {
            latencies.add(Duration::from_micros(us));
        }
        assert_eq!(latencies.percentile_us(50.0), 50.0);
        assert_eq!(latencies.percentile_us(99.0), 99.0);
        assert_eq!(Latencies::default().percentile_us(50.0), 0.0);
    }
}
