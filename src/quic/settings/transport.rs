//! Limits and timings of a connection.
//!
//! Not here: the time in which a handshake must be complete (`settings::endpoint`).

use std::{
    net::{SocketAddrV4, SocketAddrV6},
    sync::Arc,
    time::Duration,
};

use quinn_proto::{self as quinn, Dir, Side};

use super::congestion::{self, Congestion};
use crate::{
    tls::{ConfigError, PacketOptions},
    workarounds::{
        datagram_frame_send_buffer,
        growing_receive_window::{self, Credit},
        large_udp_payload_panic::UDP_PAYLOAD_WITHOUT_PANIC_MAX,
        max_datagram_frame_size::DatagramLimit,
        two_step_stream_limit,
    },
};

/// How the peer should delay its ACKs (draft-ietf-quic-ack-frequency).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckFrequency {
    /// How many ack-eliciting packets may arrive without an ACK. 0 requests an ACK for each packet.
    pub packets: u64,
    /// How long an ACK may be delayed. `None`: the peer's own max_ack_delay.
    pub max_delay: Option<Duration>,
    /// The reordering threshold at which an ACK is sent at once. 0: reordering causes no ACK.
    pub reordering: u64,
}

/// Limits and timings of a connection. Sizes are in bytes.
#[derive(Debug, Clone)]
pub struct TransportSettings {
    /// The idle time-out. Zero disables it.
    pub idle_timeout: Duration,
    /// The receive windows: of all streams together, and of one stream. A server's client gets one MiB for all streams
    /// at first, and the rest after it has used half of that (`workarounds::growing_receive_window`).
    pub max_data: u64,
    pub max_stream_data: u64,
    /// How many streams the peer may have open. High limits are announced in two steps
    /// (`workarounds::two_step_stream_limit`).
    pub max_streams_bidi: u64,
    pub max_streams_uni: u64,
    /// The largest number of sent bytes that are not acknowledged. The congestion window may allow fewer.
    pub send_window: u64,
    /// The UDP payload size of the first datagrams that are sent. MTU discovery may raise it.
    pub max_datagram_size: u16,
    /// True to find out if the path carries larger datagrams (RFC 8899).
    pub mtu_discovery: bool,
    pub initial_rtt: Duration,
    pub congestion: Congestion,
    /// The largest number of bytes of received datagrams that wait for the application. Above it the oldest are
    /// dropped. `None` disables DATAGRAM frames (RFC 9221 section 3).
    pub datagram_recv_bytes: Option<usize>,
    /// The largest DATAGRAM frame that the peer may send, type and length included, 65,535 at most. Unused if DATAGRAM
    /// frames are disabled.
    pub datagram_frame_bytes: u64,
    /// The largest number of bytes of datagrams that wait to be sent.
    pub datagram_send_bytes: usize,
    /// The interval of PINGs on an idle connection. `None`: there are none.
    pub keep_alive: Option<Duration>,
    /// True if a client migrates to its server's preferred address (RFC 9000 section 9.6).
    pub use_preferred_address: bool,
    /// A server's preferred addresses, to which its clients migrate after the handshake. The endpoint must receive
    /// packets there.
    pub preferred_v4: Option<SocketAddrV4>,
    pub preferred_v6: Option<SocketAddrV6>,
    /// The ACK frequency that is requested from the peer. Ignored if the peer does not support the extension.
    pub ack_frequency: Option<AckFrequency>,
    /// The number of packets after which the keys are updated (RFC 9001 section 6). `None`: near the limit of the
    /// cipher.
    pub key_update_packets: Option<u64>,
    /// True to record packets for a qlog trace (`Connection::qlog_recorder`).
    pub packet_log: bool,
    /// True to announce support of RESET_STREAM_AT (draft-ietf-quic-reliable-stream-reset), so that the peer may reset
    /// streams but keep their first bytes. This side never sends the frame.
    pub reset_stream_at: bool,
}

impl Default for TransportSettings {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(60),
            max_data: 1 << 20,
            max_stream_data: 1 << 20,
            max_streams_bidi: 128,
            max_streams_uni: 128,
            send_window: 8 << 20,
            max_datagram_size: 1_200,
            mtu_discovery: true,
            initial_rtt: Duration::from_millis(100),
            congestion: Congestion::Cubic,
            datagram_recv_bytes: None,
            datagram_frame_bytes: 65_535,
            datagram_send_bytes: 1 << 20,
            keep_alive: None,
            use_preferred_address: true,
            preferred_v4: None,
            preferred_v6: None,
            ack_frequency: None,
            key_update_packets: None,
            packet_log: false,
            reset_stream_at: false,
        }
    }
}

impl TransportSettings {
    /// The receive window of all streams, which is smaller at the beginning of a server's connection.
    pub(crate) fn credit(&self, side: Side) -> Credit {
        let window = match side {
            Side::Server => growing_receive_window::first(self.max_data),
            Side::Client => self.max_data,
        };
        Credit::new(self.max_data, window)
    }

    /// The options of the packet keys. If DATAGRAM frames are disabled, quinn-proto itself rejects them.
    pub(super) fn packet_options(&self) -> PacketOptions {
        let room = self.datagram_recv_bytes.unwrap_or_default();
        PacketOptions {
            is_recorded: self.packet_log,
            accepts_reset_at: self.reset_stream_at,
            datagram_limit: DatagramLimit::new(self.datagram_frame_bytes, room),
        }
    }

    /// The limits that clients remember for 0-RTT data (RFC 9000 section 7.4.1), as bytes that can be compared.
    pub(super) fn limits(&self) -> Vec<u8> {
        let datagrams = self
            .datagram_recv_bytes
            .map_or(0, |_| self.datagram_frame_bytes);
        [
            growing_receive_window::first(self.max_data),
            self.max_stream_data,
            two_step_stream_limit::first(Dir::Bi, self.max_streams_bidi),
            two_step_stream_limit::first(Dir::Uni, self.max_streams_uni),
            datagrams,
        ]
        .iter()
        .flat_map(|limit| limit.to_be_bytes())
        .collect()
    }

    /// Builds quinn-proto's configuration for a server.
    pub(crate) fn build_server(&self) -> Result<quinn::TransportConfig, ConfigError> {
        let mut config = self.build()?;
        config.receive_window(varint(
            "max_data",
            growing_receive_window::first(self.max_data),
        )?);
        Ok(config)
    }

    pub(crate) fn build(&self) -> Result<quinn::TransportConfig, ConfigError> {
        let mut config = quinn::TransportConfig::default();
        config
            .max_idle_timeout(idle_timeout(self.idle_timeout)?)
            .receive_window(varint("max_data", self.max_data)?)
            .stream_receive_window(varint("max_stream_data", self.max_stream_data)?)
            .max_concurrent_bidi_streams(stream_count(
                "max_streams_bidi",
                Dir::Bi,
                self.max_streams_bidi,
            )?)
            .max_concurrent_uni_streams(stream_count(
                "max_streams_uni",
                Dir::Uni,
                self.max_streams_uni,
            )?)
            .send_window(self.send_window)
            .initial_rtt(nonzero("initial_rtt", self.initial_rtt)?)
            .initial_mtu(self.udp_payload_size()?)
            .keep_alive_interval(self.keep_alive)
            .datagram_receive_buffer_size(self.datagram_recv_bytes)
            .datagram_send_buffer_size(datagram_frame_send_buffer::SEND_BUFFER);
        if self.send_window == 0 {
            return Err(ConfigError::new("send_window", "must not be zero"));
        }
        if let Some(wanted) = &self.ack_frequency {
            let mut frequency = quinn::AckFrequencyConfig::default();
            frequency
                .ack_eliciting_threshold(varint("ack_packets_max", wanted.packets)?)
                .max_ack_delay(wanted.max_delay)
                .reordering_threshold(varint("ack_reordering", wanted.reordering)?);
            config.ack_frequency_config(Some(frequency));
        }
        if self.key_update_packets == Some(0) {
            return Err(ConfigError::new("key_update_packets", "must not be zero"));
        }
        if !self.mtu_discovery {
            config.mtu_discovery_config(None);
        }
        config.congestion_controller_factory(self.congestion_factory());
        Ok(config)
    }

    /// RFC 9000 section 14: each path carries datagrams of 1,200 bytes.
    fn udp_payload_size(&self) -> Result<u16, ConfigError> {
        match self.max_datagram_size {
            1_200..=UDP_PAYLOAD_WITHOUT_PANIC_MAX => Ok(self.max_datagram_size),
            size => {
                let message = format!(
                    "must be from 1200 to {UDP_PAYLOAD_WITHOUT_PANIC_MAX} bytes, not {size}"
                );
                Err(ConfigError::new("max_datagram_size", message))
            }
        }
    }

    /// RFC 9002 section 7.2: the initial window has ten datagrams, at most 14,720 bytes, and at least two datagrams.
    /// With a window below one datagram, nothing would ever be sent.
    fn congestion_factory(&self) -> Arc<dyn quinn::congestion::ControllerFactory + Send + Sync> {
        let size = u64::from(self.max_datagram_size);
        let window = (10 * size).min(14_720.max(2 * size));
        congestion::factory(self.congestion, window)
    }
}

fn varint(field: &'static str, value: u64) -> Result<quinn::VarInt, ConfigError> {
    quinn::VarInt::from_u64(value).map_err(|_| ConfigError::new(field, "must be below 2^62"))
}

/// The limit is bounded, because quinn-proto has a map entry for every stream that the peer may open.
fn stream_count(field: &'static str, dir: Dir, value: u64) -> Result<quinn::VarInt, ConfigError> {
    match value {
        0..=1_000_000 => varint(field, two_step_stream_limit::first(dir, value)),
        _ => Err(ConfigError::new(
            field,
            format!("must be at most 1000000, not {value}"),
        )),
    }
}

fn nonzero(field: &'static str, value: Duration) -> Result<Duration, ConfigError> {
    match value.is_zero() {
        true => Err(ConfigError::new(field, "must not be zero")),
        false => Ok(value),
    }
}

fn idle_timeout(value: Duration) -> Result<Option<quinn::IdleTimeout>, ConfigError> {
    match value.is_zero() {
        true => Ok(None),
        false => value
            .try_into()
            .map(Some)
            .map_err(|_| ConfigError::new("idle_timeout", "must be below 2^62 milliseconds")),
    }
}
