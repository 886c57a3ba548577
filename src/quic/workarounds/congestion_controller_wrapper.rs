//! Wraps a congestion controller, to read values that quinn-proto does not report: bytes in flight, the newest
//! round-trip time and its variance. It can also open the congestion window of a closed connection.
//!
//! Assumed of quinn-proto: it reports each sent packet, with its size, to the controller before the packet's
//! acknowledgement or loss; it reports the packets of one ACK in the order of their numbers, and then the bytes left
//! in flight; losses that shrink the window are reported with their bytes, ECN with none; and the last packet of a
//! closed connection waits for room in the window as long as data does.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use quinn_proto::{
    RttEstimator,
    congestion::{Controller, ControllerFactory, ControllerMetrics},
};

/// Measured values of one path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauge {
    /// Bytes that were sent and are neither acknowledged nor lost. Exact after an ACK. In between, sent packets are
    /// added if they are larger than a packet with nothing but an ACK, because such packets are never acknowledged.
    pub in_flight: u64,
    pub latest_rtt: Duration,
    /// `rttvar` of RFC 9002 section 5.3. The peer's delay is not subtracted from the samples.
    pub rtt_variance: Duration,
    pub ssthresh: Option<u64>,
    pub window: u64,
    /// The phase of the controller. `None` for BBR, which has no slow start of this kind.
    pub phase: Option<Phase>,
    smoothed_rtt: Duration,
    pub has_sample: bool,
    /// The time and the cause of the last reduction of the congestion window.
    recovery: Option<(Instant, Cause)>,
    is_recovering: bool,
}

/// The congestion window, the phase and the round-trip times of the path that `controller` controls.
pub fn read(controller: &dyn Controller) -> Gauge {
    let Some(observed) = observed(controller) else {
        return Gauge::default();
    };
    let ssthresh = controller.metrics().ssthresh;
    let window = observed.inner.window();
    Gauge {
        window,
        ssthresh: ssthresh.filter(|bytes| *bytes < u64::MAX),
        phase: ssthresh.map(|ssthresh| match observed.gauge.recovery {
            Some((_, cause)) if observed.gauge.is_recovering => Phase::Recovery(cause),
            _ if window < ssthresh => Phase::SlowStart,
            _ => Phase::Avoidance,
        }),
        ..observed.gauge
    }
}

/// Opens the congestion window of a closed connection for ever. quinn-proto would hold back its CONNECTION_CLOSE
/// while data waits behind a full window, and no ACK would open that window any more.
pub fn open_window(controller: &dyn Controller) {
    if let Some(observed) = observed(controller) {
        observed.is_open.store(true, Ordering::Relaxed);
    }
}

/// Ignores the next `bytes` bytes that are reported as lost, because they were never sent.
pub fn ignore_loss(controller: &dyn Controller, bytes: u64) {
    if let Some(observed) = observed(controller) {
        observed.ignored_loss.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A copy of the controller that shares the switches (`is_open`, `ignored_loss`) with the original.
fn observed(controller: &dyn Controller) -> Option<Box<Observed>> {
    controller.clone_box().into_any().downcast().ok()
}

/// The phase of a congestion controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    SlowStart,
    Avoidance,
    Recovery(Cause),
}

/// The event after which a controller entered recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    Loss,
    Persistent,
    Ecn,
}

/// Returns a factory that adds a gauge to each controller of `inner`.
pub fn gauged(
    inner: Arc<dyn ControllerFactory + Send + Sync>,
) -> Arc<dyn ControllerFactory + Send + Sync> {
    Arc::new(Gauged { inner })
}

struct Gauged {
    inner: Arc<dyn ControllerFactory + Send + Sync>,
}

impl ControllerFactory for Gauged {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Observed {
            inner: self.inner.clone().build(now, current_mtu),
            gauge: Gauge::default(),
            sample: None,
            is_open: Arc::default(),
            ignored_loss: Arc::default(),
        })
    }
}

struct Observed {
    inner: Box<dyn Controller>,
    gauge: Gauge,
    /// The round-trip time of the newest packet that the current ACK acknowledges.
    sample: Option<Duration>,
    is_open: Arc<AtomicBool>,
    /// Bytes that will be reported as lost and must be ignored.
    ignored_loss: Arc<AtomicU64>,
}

impl Controller for Observed {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        if bytes > ACK_MAX {
            self.gauge.in_flight += bytes;
        }
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        // quinn-proto reports the packets of one ACK in ascending order, so the last one is the newest.
        self.sample = Some(now.saturating_duration_since(sent));
        self.gauge.smoothed_rtt = rtt.get();
        // RFC 9002 section 7.3.2: recovery ends when a packet is acknowledged that was sent after recovery began.
        self.gauge.is_recovering &= self.gauge.recovery.is_some_and(|(start, _)| sent <= start);
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.gauge.in_flight = in_flight;
        if let Some(sample) = self.sample.take() {
            self.gauge.take_sample(sample);
        }
        self.inner
            .on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.gauge.in_flight = self.gauge.in_flight.saturating_sub(lost_bytes);
        let ignored_loss = self.ignored_loss.load(Ordering::Relaxed);
        if !is_persistent_congestion && lost_bytes > 0 && lost_bytes <= ignored_loss {
            self.ignored_loss
                .store(ignored_loss - lost_bytes, Ordering::Relaxed);
            return;
        }
        if self.gauge.recovery.is_none_or(|(start, _)| sent > start) {
            let cause = match (is_persistent_congestion, lost_bytes) {
                (true, _) => Cause::Persistent,
                // quinn-proto reports zero lost bytes only for ECN.
                (false, 0) => Cause::Ecn,
                (false, _) => Cause::Loss,
            };
            self.gauge.recovery = Some((now, cause));
            self.gauge.is_recovering = true;
        }
        self.inner
            .on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        match self.is_open.load(Ordering::Relaxed) {
            true => WINDOW_OPEN,
            false => self.inner.window(),
        }
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            inner: self.inner.clone_box(),
            gauge: self.gauge,
            sample: self.sample,
            is_open: self.is_open.clone(),
            ignored_loss: self.ignored_loss.clone(),
        })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Gauge {
    fn take_sample(&mut self, sample: Duration) {
        self.latest_rtt = sample;
        self.rtt_variance = match self.has_sample {
            true => (3 * self.rtt_variance + self.smoothed_rtt.abs_diff(sample)) / 4,
            false => sample / 2,
        };
        self.has_sample = true;
    }
}

/// Larger than a packet with nothing but an ACK: 64 ranges of 4 bytes, headers and a tag.
const ACK_MAX: u64 = 600;
/// More than any connection has in flight. Above 4 GiB, quinn-proto does not pace packets.
const WINDOW_OPEN: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    use quinn_proto::{Dir, EcnCodepoint, TransportConfig, VarInt};

    use crate::workarounds::bare_quinn::BareQuinn;

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Call {
        Sent(u64),
        Acked(Instant),
        AcksEnded(u64),
        Congestion(u64),
    }

    /// A controller with a constant window that records its calls.
    #[derive(Clone)]
    struct Plain {
        window: u64,
        calls: Arc<Mutex<Vec<Call>>>,
    }

    impl Plain {
        fn records(&self, calls: Call) {
            self.calls.lock().unwrap().push(calls);
        }
    }

    impl ControllerFactory for Plain {
        fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn Controller> {
            Box::new((*self).clone())
        }
    }

    impl Controller for Plain {
        fn on_sent(&mut self, _: Instant, bytes: u64, _: u64) {
            self.records(Call::Sent(bytes));
        }

        fn on_ack(&mut self, _: Instant, sent: Instant, _: u64, _: bool, _: &RttEstimator) {
            self.records(Call::Acked(sent));
        }

        fn on_end_acks(&mut self, _: Instant, in_flight: u64, _: bool, _: Option<u64>) {
            self.records(Call::AcksEnded(in_flight));
        }

        fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, lost: u64) {
            self.records(Call::Congestion(lost));
        }

        fn on_mtu_update(&mut self, _: u16) {}

        fn window(&self) -> u64 {
            self.window
        }

        fn clone_box(&self) -> Box<dyn Controller> {
            Box::new(self.clone())
        }

        fn initial_window(&self) -> u64 {
            self.window
        }

        fn into_any(self: Box<Self>) -> Box<dyn Any> {
            self
        }
    }

    /// A connection whose two endpoints have a `Plain` controller each, with or without a gauge.
    fn connected(window: u64, has_gauge: bool) -> (BareQuinn, Arc<Mutex<Vec<Call>>>) {
        let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
        let plain = Arc::new(Plain {
            window,
            calls: calls.clone(),
        });
        let mut transport = TransportConfig::default();
        transport.congestion_controller_factory(match has_gauge {
            true => gauged(plain),
            false => plain,
        });
        let mut bare = BareQuinn::begin(1, transport);
        bare.server.mark = Some(EcnCodepoint::Ect0);
        bare.complete();
        calls.lock().unwrap().clear();
        (bare, calls)
    }

    #[test]
    fn bare_quinn_reports_acked_packets_in_order_and_then_bytes_in_flight() {
        let (mut bare, calls) = connected(100_000, false);
        let stream = bare.client.connection().streams().open(Dir::Uni).unwrap();
        let mut sent = Vec::new();
        for _ in 0..6 {
            bare.client
                .connection()
                .send_stream(stream)
                .write(&[0; 700])
                .unwrap();
            sent.extend(bare.client.transmit(bare.now));
            bare.sleep(Duration::from_millis(1));
        }
        let sizes: Vec<_> = sent
            .iter()
            .map(|datagram| Call::Sent(datagram.len() as u64))
            .collect();
        assert_eq!(*calls.lock().unwrap(), sizes);
        // The first packet is lost. The ACK of the fourth packet after it shows that.
        sent[1..]
            .iter()
            .for_each(|datagram| bare.server_gets(datagram));
        let answer = bare.server.transmit(bare.now);
        calls.lock().unwrap().clear();
        answer
            .iter()
            .for_each(|datagram| bare.client_gets(datagram));
        let calls = calls.lock().unwrap();
        let times: Vec<Instant> = calls
            .iter()
            .filter_map(|calls| match calls {
                Call::Acked(sent) => Some(*sent),
                _ => None,
            })
            .collect();
        assert!(times.len() == 5 && times.is_sorted(), "{calls:?}");
        let first = sent[0].len() as u64;
        assert_eq!(
            calls[5..],
            [Call::AcksEnded(first), Call::Congestion(first)]
        );
    }

    #[test]
    fn bare_quinn_reports_ecn_to_a_controller_without_lost_bytes() {
        let (mut bare, calls) = connected(100_000, false);
        bare.server.mark = Some(EcnCodepoint::Ce);
        bare.client.connection().ping();
        bare.exchange();
        bare.sleep(Duration::from_millis(30));
        bare.exchange();
        let is_report = |calls: &&Call| matches!(calls, Call::Congestion(_));
        let calls = calls.lock().unwrap();
        let reports: Vec<_> = calls.iter().filter(is_report).collect();
        assert_eq!(reports, [&Call::Congestion(0)], "{calls:?}");
    }

    #[test]
    fn bare_quinn_holds_back_a_close_behind_a_full_window() {
        for is_opened in [false, true] {
            let (mut bare, _) = connected(3_000, true);
            let stream = bare.client.connection().streams().open(Dir::Uni).unwrap();
            bare.client
                .connection()
                .send_stream(stream)
                .write(&[0; 20_000])
                .unwrap();
            let now = bare.now;
            assert!(!bare.client.transmit(now).is_empty());
            bare.client
                .connection()
                .close(now, VarInt::from_u32(7), bytes::Bytes::new());
            if is_opened {
                open_window(bare.client.connection().congestion_state());
            }
            assert_eq!(bare.client.transmit(now).is_empty(), !is_opened);
        }
    }

    #[test]
    fn the_loss_of_unsent_bytes_does_not_shrink_the_window() {
        let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
        let plain = Plain {
            window: 10_000,
            calls: calls.clone(),
        };
        let now = Instant::now();
        let mut controller = gauged(Arc::new(plain)).build(now, 1_200);
        ignore_loss(&*controller, 1_200);
        controller.on_congestion_event(now, now, false, 1_200);
        assert!(calls.lock().unwrap().is_empty());
        controller.on_congestion_event(now, now, false, 1_200);
        assert_eq!(*calls.lock().unwrap(), [Call::Congestion(1_200)]);
    }
}
