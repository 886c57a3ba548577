//! Recovery metrics (RFC 9002) as `recovery:` events with aioquic's fields. Only changes are logged.

use std::time::Duration;

use super::json_writer::Object;
use crate::workarounds::congestion_controller_wrapper::{Cause, Phase};

/// Values that quinn-proto has now. The counters begin at zero with the connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Metrics {
    pub congestion_window: u64,
    pub ssthresh: Option<u64>,
    pub smoothed_rtt: Duration,
    pub min_rtt: Duration,
    /// The newest sample of the round-trip time. `None` before the first sample.
    pub latest_rtt: Option<Duration>,
    pub rtt_variance: Duration,
    pub packets_lost: u64,
    pub probes_lost: u64,
    pub mtu: u16,
    pub congestion: Option<Phase>,
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::SlowStart => "slow_start",
        Phase::Avoidance => "congestion_avoidance",
        Phase::Recovery(_) => "recovery",
    }
}

/// The last values that were logged.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    before: Option<(Metrics, u64)>,
}

impl Recovery {
    /// Returns the events for metrics that have changed since the last call, each with its name and data.
    pub fn changed(&mut self, now: Metrics, in_flight: u64) -> Vec<(&'static str, String)> {
        let before = self.before.replace((now, in_flight));
        let old = before.map(|(metrics, _)| metrics);
        let mut events = Vec::new();
        let visible = |metrics: &Metrics| Metrics {
            // The members that are set to zero here are logged as events of their own, so they do not count as changes.
            packets_lost: 0,
            probes_lost: 0,
            mtu: 0,
            congestion: None,
            ..*metrics
        };
        if before.is_none_or(|(old, bytes)| bytes != in_flight || visible(&old) != visible(&now)) {
            let data = metrics(old.as_ref(), &now, in_flight);
            events.push(("recovery:metrics_updated", data));
        }
        let old_state = old.and_then(|old| old.congestion);
        if let Some(state) = now.congestion
            && old_state != now.congestion
        {
            let data = congestion_state(old_state, state);
            events.push(("recovery:congestion_state_updated", data));
        }
        if let Some(old) = old.filter(|old| old.mtu != now.mtu) {
            let mut data = Object::new();
            data.number("old", old.mtu.into());
            data.number("new", now.mtu.into());
            events.push(("connectivity:mtu_updated", data.finish()));
        }
        events
    }

    /// The numbers of packets and MTU probes that were lost since the last values.
    pub fn lost(&self, now: &Metrics) -> (u64, u64) {
        let (packets, probes) = self
            .before
            .map_or((0, 0), |(old, _)| (old.packets_lost, old.probes_lost));
        (
            now.packets_lost.saturating_sub(packets),
            now.probes_lost.saturating_sub(probes),
        )
    }
}

fn metrics(old: Option<&Metrics>, now: &Metrics, in_flight: u64) -> String {
    let mut data = Object::new();
    data.number("cwnd", now.congestion_window);
    data.number("bytes_in_flight", in_flight);
    if let Some(bytes) = now.ssthresh {
        data.number("ssthresh", bytes);
    }
    let rtt = |metrics: &Metrics| {
        let smoothed = (metrics.smoothed_rtt, metrics.min_rtt);
        (smoothed, metrics.latest_rtt, metrics.rtt_variance)
    };
    if let Some(latest) = now.latest_rtt
        && old.map(rtt) != Some(rtt(now))
    {
        data.milliseconds("latest_rtt", latest);
        data.milliseconds("min_rtt", now.min_rtt);
        data.milliseconds("smoothed_rtt", now.smoothed_rtt);
        data.milliseconds("rtt_variance", now.rtt_variance);
    }
    data.finish()
}

fn congestion_state(old: Option<Phase>, new: Phase) -> String {
    let mut data = Object::new();
    if let Some(old) = old {
        data.unescaped("old", phase_name(old));
    }
    data.unescaped("new", phase_name(new));
    match new {
        Phase::Recovery(Cause::Persistent) => data.unescaped("trigger", "persistent_congestion"),
        Phase::Recovery(Cause::Ecn) => data.unescaped("trigger", "ecn"),
        Phase::Recovery(Cause::Loss) | Phase::SlowStart | Phase::Avoidance => {}
    }
    data.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_metrics_are_events() {
        let mut recovery = Recovery::default();
        let first = Metrics {
            congestion_window: 12_000,
            smoothed_rtt: Duration::from_millis(333),
            min_rtt: Duration::from_millis(333),
            mtu: 1_200,
            congestion: Some(Phase::SlowStart),
            ..Metrics::default()
        };
        // The initial round-trip time is not a measurement, so it is not logged as one.
        assert_eq!(
            recovery.changed(first, 0),
            [
                (
                    "recovery:metrics_updated",
                    "{\"cwnd\":12000,\"bytes_in_flight\":0}".to_owned()
                ),
                (
                    "recovery:congestion_state_updated",
                    "{\"new\":\"slow_start\"}".to_owned()
                ),
            ]
        );
        assert!(recovery.changed(first, 0).is_empty());
        let second = Metrics {
            ssthresh: Some(6_000),
            smoothed_rtt: Duration::from_millis(20),
            min_rtt: Duration::from_millis(20),
            latest_rtt: Some(Duration::from_millis(20)),
            rtt_variance: Duration::from_millis(10),
            packets_lost: 3,
            probes_lost: 1,
            mtu: 1_452,
            congestion: Some(Phase::Recovery(Cause::Ecn)),
            ..first
        };
        assert_eq!(recovery.lost(&second), (3, 1));
        let data: Vec<String> = recovery
            .changed(second, 1_200)
            .into_iter()
            .map(|(_, data)| data)
            .collect();
        assert_eq!(
            data,
            [
                "{\"cwnd\":12000,\"bytes_in_flight\":1200,\"ssthresh\":6000,\"latest_rtt\":20,\
                 \"min_rtt\":20,\"smoothed_rtt\":20,\"rtt_variance\":10}",
                "{\"old\":\"slow_start\",\"new\":\"recovery\",\"trigger\":\"ecn\"}",
                "{\"old\":1200,\"new\":1452}",
            ]
        );
        assert_eq!(recovery.lost(&second), (0, 0));
        let more = recovery.changed(second, 0);
        assert_eq!(
            more[0].1,
            "{\"cwnd\":12000,\"bytes_in_flight\":0,\"ssthresh\":6000}"
        );
    }
}
