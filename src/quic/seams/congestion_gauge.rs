//! Wraps a congestion controller to read values that the state machine does not report: bytes in flight, the newest
//! round-trip time and its variance. For a closed connection it also opens the congestion window.
//!
//! Assumed of quinn-proto: it reports each sent packet, with its size, to the controller before the packet's
//! acknowledgement or loss; it reports the packets of one ACK in the order of their numbers, and then the bytes left in
//! flight; losses that shrink the window are reported with their bytes, ECN with none; and the last packet of a closed
//! connection waits for room in the window as long as data does.

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

/// Observed values of a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauge {
    /// Exact after an acknowledgement. In between, sent packets are added if they are larger than an ACK-only packet
    /// can be, because those are never acknowledged.
    pub in_flight: u64,
    pub latest_rtt: Duration,
    /// RFC 9002 section 5.3's `rttvar`, without subtracting the peer's delay from the samples.
    pub rtt_variance: Duration,
    pub ssthresh: Option<u64>,
    pub window: u64,
    /// The controller's phase. `None` for BBR, which has no slow start in this sense.
    pub phase: Option<Phase>,
    smoothed_rtt: Duration,
    pub has_sample: bool,
    /// The start and cause of the last reduction of the window.
    recovery: Option<(Instant, Cause)>,
    is_recovering: bool,
}

/// The values of the current path.
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

/// Opens the window for good. A closed connection has one packet left to send, and the state machine would hold it back
/// as long as data waits behind a full window, which nothing will ever open.
pub fn open_window(controller: &dyn Controller) {
    if let Some(observed) = observed(controller) {
        observed.is_open.store(true, Ordering::Relaxed);
    }
}

/// Excludes the next `bytes` of lost data from congestion control: they were never sent on the path.
pub fn forgive(controller: &dyn Controller, bytes: u64) {
    if let Some(observed) = observed(controller) {
        observed.forgiven.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A copy of the controller, sharing the switches of the original.
fn observed(controller: &dyn Controller) -> Option<Box<Observed>> {
    controller.clone_box().into_any().downcast().ok()
}

/// The phase of a congestion controller, if known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    SlowStart,
    Avoidance,
    Recovery(Cause),
}

/// Why a controller entered recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    Loss,
    Persistent,
    Ecn,
}

/// Wraps the controllers of `inner` with a gauge each.
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
            forgiven: Arc::default(),
        })
    }
}

struct Observed {
    inner: Box<dyn Controller>,
    gauge: Gauge,
    /// The RTT sample of the newest packet that the current ACK acknowledges.
    sample: Option<Duration>,
    is_open: Arc<AtomicBool>,
    /// Bytes that are reported as lost but must not count.
    forgiven: Arc<AtomicU64>,
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
        // The packets of one ACK are reported in the order of their numbers.
        self.sample = Some(now.saturating_duration_since(sent));
        self.gauge.smoothed_rtt = rtt.get();
        // RFC 9002 section 7.3.2: recovery ends with a packet sent after it began.
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
        let forgiven = self.forgiven.load(Ordering::Relaxed);
        if !is_persistent_congestion && lost_bytes > 0 && lost_bytes <= forgiven {
            self.forgiven
                .store(forgiven - lost_bytes, Ordering::Relaxed);
            return;
        }
        if self.gauge.recovery.is_none_or(|(start, _)| sent > start) {
            let cause = match (is_persistent_congestion, lost_bytes) {
                (true, _) => Cause::Persistent,
                // Only ECN reports come without lost bytes.
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
            forgiven: self.forgiven.clone(),
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

/// More than a packet with nothing but an ACK: 64 ranges of 4 bytes, headers and a tag.
const ACK_MAX: u64 = 600;
/// More than any connection has in flight; and above 4 GiB nothing is paced.
const WINDOW_OPEN: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    use quinn_proto::{Dir, EcnCodepoint, TransportConfig, VarInt};

    use crate::seams::bare_quinn::BareQuinn;

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Heard {
        Sent(u64),
        Acked(Instant),
        AcksEnded(u64),
        Congestion(u64),
    }

    /// A controller with a constant window that records its calls.
    #[derive(Clone)]
    struct Plain {
        window: u64,
        heard: Arc<Mutex<Vec<Heard>>>,
    }

    impl Plain {
        fn hears(&self, heard: Heard) {
            self.heard.lock().unwrap().push(heard);
        }
    }

    impl ControllerFactory for Plain {
        fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn Controller> {
            Box::new((*self).clone())
        }
    }

    impl Controller for Plain {
        fn on_sent(&mut self, _: Instant, bytes: u64, _: u64) {
            self.hears(Heard::Sent(bytes));
        }

        fn on_ack(&mut self, _: Instant, sent: Instant, _: u64, _: bool, _: &RttEstimator) {
            self.hears(Heard::Acked(sent));
        }

        fn on_end_acks(&mut self, _: Instant, in_flight: u64, _: bool, _: Option<u64>) {
            self.hears(Heard::AcksEnded(in_flight));
        }

        fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, lost: u64) {
            self.hears(Heard::Congestion(lost));
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

    /// A connection whose ends have such a controller each, with or without a gauge.
    fn connected(window: u64, has_gauge: bool) -> (BareQuinn, Arc<Mutex<Vec<Heard>>>) {
        let heard: Arc<Mutex<Vec<Heard>>> = Arc::default();
        let plain = Arc::new(Plain {
            window,
            heard: heard.clone(),
        });
        let mut transport = TransportConfig::default();
        transport.congestion_controller_factory(match has_gauge {
            true => gauged(plain),
            false => plain,
        });
        let mut bare = BareQuinn::begin(1, transport);
        bare.server.mark = Some(EcnCodepoint::Ect0);
        bare.complete();
        heard.lock().unwrap().clear();
        (bare, heard)
    }

    #[test]
    fn bare_quinn_tells_a_controller_of_packets_in_order_and_of_the_bytes_that_are_left() {
        let (mut bare, heard) = connected(100_000, false);
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
            .map(|datagram| Heard::Sent(datagram.len() as u64))
            .collect();
        assert_eq!(*heard.lock().unwrap(), sizes);
        // The first packet is lost, as the fourth packet after it shows.
        sent[1..]
            .iter()
            .for_each(|datagram| bare.server_gets(datagram));
        let answer = bare.server.transmit(bare.now);
        heard.lock().unwrap().clear();
        answer
            .iter()
            .for_each(|datagram| bare.client_gets(datagram));
        let heard = heard.lock().unwrap();
        let times: Vec<Instant> = heard
            .iter()
            .filter_map(|heard| match heard {
                Heard::Acked(sent) => Some(*sent),
                _ => None,
            })
            .collect();
        assert!(times.len() == 5 && times.is_sorted(), "{heard:?}");
        let first = sent[0].len() as u64;
        assert_eq!(
            heard[5..],
            [Heard::AcksEnded(first), Heard::Congestion(first)]
        );
    }

    #[test]
    fn bare_quinn_tells_a_controller_of_ecn_reports_without_bytes() {
        let (mut bare, heard) = connected(100_000, false);
        bare.server.mark = Some(EcnCodepoint::Ce);
        bare.client.connection().ping();
        bare.exchange();
        bare.sleep(Duration::from_millis(30));
        bare.exchange();
        let is_report = |heard: &&Heard| matches!(heard, Heard::Congestion(_));
        let heard = heard.lock().unwrap();
        let reports: Vec<_> = heard.iter().filter(is_report).collect();
        assert_eq!(reports, [&Heard::Congestion(0)], "{heard:?}");
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
    fn a_loss_of_what_was_never_sent_says_nothing_about_the_path() {
        let heard: Arc<Mutex<Vec<Heard>>> = Arc::default();
        let plain = Plain {
            window: 10_000,
            heard: heard.clone(),
        };
        let now = Instant::now();
        let mut controller = gauged(Arc::new(plain)).build(now, 1_200);
        forgive(&*controller, 1_200);
        controller.on_congestion_event(now, now, false, 1_200);
        assert!(heard.lock().unwrap().is_empty());
        controller.on_congestion_event(now, now, false, 1_200);
        assert_eq!(*heard.lock().unwrap(), [Heard::Congestion(1_200)]);
    }
}
