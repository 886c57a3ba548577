//! Log entries of a connection beside its packets, which their keys log: addresses, recovery metrics, and dropped
//! or lost packets.
//!
//! A connection without a log pays one check of an `Option` for a datagram or batch. Not here: the format (`qlog`).

use std::{net::SocketAddr, sync::Arc, time::Instant};

use quinn_proto as quinn;
use uringcore_wire::datagram::Arrival;

use super::Connection;
use crate::{
    qlog::{Metrics, Recorder, Started},
    seams::congestion_gauge,
};

/// The state machine's counters before a batch.
pub(super) struct Before {
    tracked: u64,
    probes: u64,
}

impl Connection {
    /// Sent and received packets and their fate, if the settings enable it.
    pub fn packet_log(&self) -> Option<&Arc<Recorder>> {
        self.packet_log.as_ref()
    }

    pub(super) fn log_started(&self) {
        if let Some(log) = &self.packet_log {
            log.started(&Started {
                remote: self.remote_addr(),
                local: self.quinn.local_ip(),
                ids: &self.ids,
            });
        }
    }

    /// Sets the time of the log.
    pub(crate) fn log_time(&self, now: Instant) {
        if let Some(log) = &self.packet_log {
            log.set_time(now);
        }
    }

    /// A datagram of this length is about to be handled, or, without a length, more of the last one.
    pub(crate) fn log_arrival(&self, now: Instant, length: Option<usize>, packets: Vec<Arrival>) {
        if let Some(log) = &self.packet_log {
            log.set_time(now);
            log.receiving(length, packets);
        }
    }

    /// The announced datagram was handled.
    pub(super) fn log_received(&self, is_from_stranger: bool) {
        if let Some(log) = &self.packet_log {
            log.received_all(is_from_stranger.then(|| match self.is_client() {
                true => "unknown_server_address",
                false => "unknown_client_address",
            }));
            self.log_recovery();
        }
    }

    /// True if the state machine accepts nothing from there: clients never do, and servers not before the handshake
    /// is complete (RFC 9000 section 9).
    pub(super) fn is_stranger(&self, remote: SocketAddr) -> bool {
        let known = self.quinn.remote_address();
        let is_known = remote == known || remote == self.path.remote(known);
        !is_known && (self.is_client() || self.quinn.is_handshaking())
    }

    pub(super) fn log_before_batch(&self, now: Instant) -> Option<Before> {
        let log = self.packet_log.as_ref()?;
        log.sending(now);
        let path = self.quinn.stats().path;
        Some(Before {
            tracked: path.sent_packets,
            probes: path.sent_plpmtud_probes,
        })
    }

    pub(super) fn log_batch(&self, before: Option<Before>, transmit: &quinn::Transmit) {
        if let (Some(log), Some(before)) = (&self.packet_log, before) {
            let path = self.quinn.stats().path;
            let size = transmit.segment_size.unwrap_or(transmit.size);
            let tracked = path.sent_packets - before.tracked;
            let has_probe = path.sent_plpmtud_probes > before.probes;
            log.datagrams_sent(transmit.size, size, tracked as usize, has_probe);
            self.log_recovery();
        }
    }

    /// Logs recovery metrics, which received or sent packets and timers may have changed.
    pub(super) fn log_recovery(&self) {
        if let Some(log) = &self.packet_log {
            let path = self.quinn.stats().path;
            let gauge = congestion_gauge::read(self.quinn.congestion_state());
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

    pub(super) fn log_migration(&self, state: &'static str) {
        if let Some(log) = &self.packet_log {
            log.migration(state, self.remote_addr());
        }
    }
}
