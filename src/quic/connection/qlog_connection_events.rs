//! Log entries of a connection that do not belong to one packet: addresses, recovery metrics, and dropped or lost
//! packets. The packet keys log the packets.
//!
//! Without a log, the cost is one check of an `Option` for each datagram and batch. Not here: the format (`qlog`).

use std::{net::SocketAddr, sync::Arc, time::Instant};

use quinn_proto as quinn;
use uringcore_wire::coalesced_packets::CoalescedPacket;

use crate::{
    qlog::{Metrics, Recorder, Started},
    workarounds::congestion_controller_wrapper,
};

/// The log of one connection. `None` unless the settings enable it.
pub(crate) struct PacketLog(Option<Arc<Recorder>>);

/// quinn-proto's counters before a batch is sent.
pub(super) struct Before {
    tracked: u64,
    probes: u64,
}

impl PacketLog {
    pub(super) fn new(recorder: Option<Arc<Recorder>>) -> Self {
        Self(recorder)
    }

    /// Continues the log of a client that restarts with another version.
    pub(super) fn begin_again(&mut self, recorder: Option<Arc<Recorder>>) {
        self.0 = recorder;
        if let Some(log) = &self.0 {
            log.begin_again();
        }
    }

    pub fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.0.as_ref()
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn started(&self, started: &Started<'_>) {
        if let Some(log) = &self.0 {
            log.started(started);
        }
    }

    /// Sets the time of the next entries.
    pub fn set_time(&self, now: Instant) {
        if let Some(log) = &self.0 {
            log.set_time(now);
        }
    }

    /// Called before a received datagram of `length` bytes is handled. `length` is `None` for another piece of the last
    /// datagram.
    pub fn arrival(&self, now: Instant, length: Option<usize>, packets: Vec<CoalescedPacket>) {
        if let Some(log) = &self.0 {
            log.set_time(now);
            log.receiving(length, packets);
        }
    }

    /// Called when the datagram was handled. `dropped` is the reason for which quinn-proto has dropped it, if it has.
    pub(super) fn received(&self, conn: &quinn::Connection, dropped: Option<&'static str>) {
        if let Some(log) = &self.0 {
            log.received_all(dropped);
            self.recovery(conn);
        }
    }

    pub(super) fn before_batch(&self, conn: &quinn::Connection, now: Instant) -> Option<Before> {
        let log = self.0.as_ref()?;
        log.sending(now);
        let path = conn.stats().path;
        Some(Before {
            tracked: path.sent_packets,
            probes: path.sent_plpmtud_probes,
        })
    }

    pub(super) fn batch(
        &self,
        conn: &quinn::Connection,
        before: Option<Before>,
        transmit: &quinn::Transmit,
    ) {
        if let (Some(log), Some(before)) = (&self.0, before) {
            let path = conn.stats().path;
            let size = transmit.segment_size.unwrap_or(transmit.size);
            let tracked = path.sent_packets - before.tracked;
            let has_probe = path.sent_plpmtud_probes > before.probes;
            log.datagrams_sent(transmit.size, size, tracked as usize, has_probe);
            self.recovery(conn);
        }
    }

    /// Logs recovery metrics. Received packets, sent packets and timers may have changed them.
    pub(super) fn recovery(&self, conn: &quinn::Connection) {
        if let Some(log) = &self.0 {
            let path = conn.stats().path;
            let gauge = congestion_controller_wrapper::read(conn.congestion_state());
            log.recovery(Metrics {
                congestion_window: gauge.window,
                ssthresh: gauge.ssthresh,
                smoothed_rtt: path.rtt,
                min_rtt: path.min_rtt,
                latest_rtt: gauge.has_sample.then_some(gauge.latest_rtt),
                rtt_variance: gauge.rtt_variance,
                packets_lost: path.lost_packets,
                probes_lost: path.lost_plpmtud_probes,
                mtu: path.current_mtu,
                congestion: gauge.phase,
            });
        }
    }

    pub(super) fn migration(&self, state: &'static str, remote: SocketAddr) {
        if let Some(log) = &self.0 {
            log.migration(state, remote);
        }
    }

    pub(super) fn early_data_rejected(&self) {
        if let Some(log) = &self.0 {
            log.early_data_rejected();
        }
    }
}

#[cfg(test)]
mod tests {
    use quinn_proto::TransportConfig;

    use super::*;
    use crate::{qlog::ConnectionIds, workarounds::bare_quinn::BareQuinn};

    fn names(log: &PacketLog) -> Vec<String> {
        let recorder = log.recorder().unwrap();
        let events = recorder.take().into_iter();
        events.map(|event| event.name.into_owned()).collect()
    }

    #[test]
    fn a_connection_without_a_log_records_nothing() {
        let mut bare = BareQuinn::connected(TransportConfig::default());
        let log = PacketLog::new(None);
        assert!(!log.is_enabled() && log.recorder().is_none());
        let conn = bare.client.connection();
        assert!(log.before_batch(conn, Instant::now()).is_none());
        log.received(conn, Some("unknown_server_address"));
    }

    #[test]
    fn batches_and_path_changes_are_logged_in_order() {
        let mut bare = BareQuinn::connected(TransportConfig::default());
        let now = bare.now;
        let conn = bare.client.connection();
        let log = PacketLog::new(Some(Arc::new(Recorder::new(true))));
        let remote = SocketAddr::from(([192, 0, 2, 1], 443));
        let ids = ConnectionIds::default();
        log.set_time(now);
        log.started(&Started {
            remote,
            local: None,
            ids: &ids,
        });
        let begin = names(&log);
        let before = log.before_batch(conn, now);
        conn.ping();
        let transmit = conn.poll_transmit(now, 1, &mut Vec::new()).unwrap();
        log.batch(conn, before, &transmit);
        let batch = names(&log);
        log.migration("migration_started", remote);
        let migration = names(&log);
        assert_eq!(begin, ["connectivity:connection_started"]);
        assert_eq!(
            batch,
            ["transport:datagrams_sent", "recovery:metrics_updated"]
        );
        assert_eq!(migration, ["connectivity:migration_state_updated"]);
    }
}
