//! Getters beside those of streams: the peer's identity, connection IDs and the path's statistics.

use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use uringcore_wire::parameters::Parameters;

use super::{Connection, session_details};
use crate::{ConnectionStats, seams::congestion_gauge};

impl Connection {
    /// Data that waits to be sent on the stream, in pieces.
    pub fn queued_data(&mut self, stream_id: u64) -> &[Bytes] {
        self.streams.queued_data_of(stream_id)
    }

    /// Datagrams that wait to be sent, the oldest first.
    pub fn queued_datagrams(&self) -> impl Iterator<Item = &Bytes> {
        self.datagrams.waiting()
    }

    /// The peer's certificates in DER, leaf first, once it has sent any.
    pub fn peer_certificates(&self) -> Option<Vec<Vec<u8>>> {
        let identity = self.quinn.crypto_session().peer_identity()?;
        let certificates = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        Some(
            certificates
                .iter()
                .map(|certificate| certificate.to_vec())
                .collect(),
        )
    }

    /// The destination connection ID of the client's first packet (RFC 9000 section 7.3).
    pub fn original_destination_connection_id(&self) -> Option<&[u8]> {
        self.ids.original.as_deref()
    }

    /// The first connection ID of this side.
    pub fn host_connection_id(&self) -> Option<&[u8]> {
        self.ids.host.as_deref()
    }

    /// The first connection ID of the peer (RFC 9000 section 7.3), once its transport parameters are known.
    pub fn peer_connection_id(&self) -> Option<Vec<u8>> {
        let parameters = session_details(&self.quinn).peer_parameters?;
        Parameters::of(&parameters)
            .find(|&(identifier, _)| identifier == INITIAL_SOURCE_CONNECTION_ID)
            .map(|(_, id)| id.to_vec())
    }

    pub fn stats(&self) -> ConnectionStats {
        let stats = ConnectionStats::from_quinn(self.quinn.stats());
        let gauge = congestion_gauge::read(self.quinn.congestion_state());
        ConnectionStats {
            congestion_window: gauge.window,
            latest_rtt: gauge.latest_rtt,
            rtt_variance: gauge.rtt_variance,
            bytes_in_flight: gauge.in_flight,
            ssthresh: gauge.ssthresh,
            ecn: self.ecn,
            streams_open: self.streams.len(),
            version: self.version(),
            cipher_suite: self.cipher_suite,
            group: self.group,
            key_updates: self.key_use.updates(),
            send_queue_bytes: self.streams.queued_bytes(),
            datagram_frames_dropped: self.datagrams.dropped(),
            datagrams_received: stats.datagrams_received.saturating_sub(self.later_pieces),
            ..stats
        }
    }
}

/// RFC 9000 section 18.2.
const INITIAL_SOURCE_CONNECTION_ID: u64 = 0x0f;
