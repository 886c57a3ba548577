//! [`PacketOptions`]: packets beyond RFC 9000, in both roles.

use std::sync::Arc;

use quinn_proto::transport_parameters::TransportParameters;

use crate::{
    qlog::Recorder,
    seams::{datagram_frame_size::DatagramLimit, reset_stream_at},
    tls::keys::packet_hook::PacketHook,
};

/// The extensions of an endpoint's connections, which their transport parameters announce, and the recording of their
/// packets.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PacketOptions {
    /// Connections record their packets.
    pub is_recorded: bool,
    /// RESET_STREAM_AT is announced and processed.
    pub takes_reset_at: bool,
    /// The largest accepted DATAGRAM frame (RFC 9221 section 3), if any is accepted.
    pub datagram_limit: DatagramLimit,
}

impl PacketOptions {
    /// Encodes the transport parameters, with those of the extensions.
    pub(super) fn encode(&self, params: &TransportParameters) -> Vec<u8> {
        let mut bytes = Vec::new();
        params.write(&mut bytes);
        self.datagram_limit.announce(&mut bytes);
        if self.takes_reset_at {
            reset_stream_at::append_parameters(&mut bytes);
        }
        bytes
    }

    /// The packet hook of a connection's keys.
    pub(super) fn hook(&self, recorder: Option<Arc<Recorder>>) -> Arc<PacketHook> {
        let mut hook = match recorder {
            Some(recorder) => PacketHook::recorded(recorder),
            None => PacketHook::default(),
        };
        if self.takes_reset_at {
            hook.resets().enable();
        }
        hook.set_datagram_limit(self.datagram_limit);
        Arc::new(hook)
    }
}
