//! [`PacketOptions`]: extensions of RFC 9000 that a client or a server uses, and the recording of packets.

use std::sync::Arc;

use quinn_proto::transport_parameters::TransportParameters;

use crate::{
    qlog::Recorder,
    tls::keys::packet_hook::PacketHook,
    workarounds::{max_datagram_frame_size::DatagramLimit, reset_stream_at},
};

/// Extensions that transport parameters announce, and the recording of packets, for all connections of an endpoint.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PacketOptions {
    /// True to record packets for qlog.
    pub is_recorded: bool,
    /// True to announce and process RESET_STREAM_AT.
    pub accepts_reset_at: bool,
    /// The largest DATAGRAM frame that is accepted (RFC 9221 section 3).
    pub datagram_limit: DatagramLimit,
}

impl PacketOptions {
    /// Encodes the transport parameters, including those of extensions.
    pub(super) fn encode(&self, params: &TransportParameters) -> Vec<u8> {
        let mut bytes = Vec::new();
        params.write(&mut bytes);
        self.datagram_limit.announce(&mut bytes);
        if self.accepts_reset_at {
            reset_stream_at::append_parameters(&mut bytes);
        }
        bytes
    }

    /// Creates the hook of a connection's packet keys.
    pub(super) fn hook(&self, recorder: Option<Arc<Recorder>>) -> Arc<PacketHook> {
        let mut hook = match recorder {
            Some(recorder) => PacketHook::recorded(recorder),
            None => PacketHook::default(),
        };
        if self.accepts_reset_at {
            hook.resets().enable();
        }
        hook.set_datagram_limit(self.datagram_limit);
        Arc::new(hook)
    }
}
