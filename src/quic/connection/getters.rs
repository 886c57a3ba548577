//! Getters of a connection. Those of migration and of address validation are beside their commands (`migration`,
//! `address_validation`).

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use bytes::Bytes;
use quinn_proto::Dir;
use rustls::pki_types::CertificateDer;
use uringcore_wire::transport_parameters::Parameters;

use super::{Connection, qlog_connection_events::PacketLog, session_details};
use crate::{
    ConnectionStats, StreamState, qlog::Recorder, tls::Versions,
    workarounds::congestion_controller_wrapper,
};

impl Connection {
    /// The ID that the next stream of ours will have. Sending on that ID opens the stream.
    pub fn next_stream_id(&self, unidirectional: bool) -> u64 {
        self.streams
            .next_id(if unidirectional { Dir::Uni } else { Dir::Bi })
    }

    /// Bytes of the stream that wait for the peer's limits or for the send window. Data that quinn-proto has taken is
    /// not included, even if it is not acknowledged.
    pub fn send_queue_bytes(&self, stream_id: u64) -> usize {
        self.streams.queued_bytes_of(stream_id)
    }

    /// True if the stream's send queue has reached the high watermark, so that `StreamWritable` or `StreamAbandoned`
    /// follows.
    pub fn is_stream_full(&self, stream_id: u64) -> bool {
        self.streams.is_full(stream_id)
    }

    /// The streams that have not ended, in any order.
    pub fn stream_ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.streams.ids()
    }

    /// The state of a stream; `None` for one that has ended or never existed.
    pub fn stream_state(&self, stream_id: u64) -> Option<StreamState> {
        self.streams.state(stream_id)
    }

    /// True if data of ours on the stream, or its FIN, is not sent or not acknowledged.
    pub fn is_sending(&self, stream_id: u64) -> bool {
        self.streams.is_sending(stream_id)
    }

    /// True if the application can still read from the stream: it has not read the stream's end and has not sent
    /// STOP_SENDING.
    pub fn is_receiving(&self, stream_id: u64) -> bool {
        self.streams.is_receiving(stream_id)
    }

    /// True if a stream with a FIN of ours still waits for acknowledgements.
    pub fn is_finishing(&self) -> bool {
        self.streams.is_finishing()
    }

    /// True if the send queues of all streams together have reached the high watermark, or if the datagram queue is
    /// more than half full. `ConnectionWritable` follows.
    pub fn is_full(&self) -> bool {
        self.events.is_full()
    }

    /// The largest datagram that can be sent now; `None` before the handshake is complete, and if either side has
    /// datagrams disabled.
    pub fn max_datagram_size(&mut self) -> Option<usize> {
        match self.is_established() && self.datagrams.is_enabled() {
            true => self.quinn.datagrams().max_size(),
            false => None,
        }
    }

    /// The largest DATAGRAM payload that the peer accepts, even if this side accepts none. `None` if the peer accepts
    /// none, and until its transport parameters have arrived.
    pub fn peer_max_datagram_size(&mut self) -> Option<usize> {
        self.quinn.datagrams().max_size()
    }

    /// True if the handshake is complete and the connection is not closed.
    pub fn is_established(&self) -> bool {
        self.phase.is_established()
    }

    /// True until the handshake is complete. Data that arrives meanwhile is 0-RTT data.
    pub fn is_handshaking(&self) -> bool {
        self.phase.is_handshaking()
    }

    /// True if this is a server's connection that accepts 0-RTT data and whose handshake is not complete.
    pub fn reads_early_data(&self) -> bool {
        self.is_handshaking() && !self.is_client() && self.quinn.has_0rtt()
    }

    /// True if this side or the peer has closed the connection. The `Closed` event may still be queued.
    pub fn is_closed(&self) -> bool {
        self.phase.is_closed()
    }

    pub fn is_client(&self) -> bool {
        self.quinn.side().is_client()
    }

    /// The address that packets are sent to. The client of a server may not have proved it (RFC 9000 section 9.3): see
    /// [`validated_addr`](Self::validated_addr).
    pub fn remote_addr(&self) -> SocketAddr {
        self.path.remote(self.quinn.remote_address())
    }

    /// The local address at which a server's first packet arrived. `None` if the application did not pass it.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.quinn.local_ip()
    }

    /// The application protocol, once negotiated.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.negotiated.alpn()
    }

    /// The server's name: on a client the name it connects to, on a server the name in the client's SNI.
    pub fn server_name(&self) -> Option<&str> {
        self.negotiated.server_name()
    }

    /// Data that waits to be sent on the stream, in pieces.
    pub fn queued_data(&mut self, stream_id: u64) -> &[Bytes] {
        self.streams.queued_data_of(stream_id)
    }

    /// Datagrams that wait to be sent, the oldest first.
    pub fn queued_datagrams(&self) -> impl Iterator<Item = &Bytes> {
        self.datagrams.waiting()
    }

    /// The peer's certificate chain in DER, leaf first. `None` until it has arrived.
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
        self.negotiated.ids().original.as_deref()
    }

    /// The source connection ID of this side's first packet.
    pub fn host_connection_id(&self) -> Option<&[u8]> {
        self.negotiated.ids().host.as_deref()
    }

    /// The source connection ID of the peer's first packet (RFC 9000 section 7.3). `None` until its transport
    /// parameters have arrived.
    pub fn peer_connection_id(&self) -> Option<Vec<u8>> {
        let parameters = session_details(&self.quinn).peer_parameters?;
        Parameters::of(&parameters)
            .find(|&(identifier, _)| identifier == INITIAL_SOURCE_CONNECTION_ID)
            .map(|(_, id)| id.to_vec())
    }

    /// The QUIC version of sent packets. It may change during the handshake (RFC 9368).
    pub fn version(&self) -> u32 {
        self.negotiated.versions().current()
    }

    pub(crate) fn versions(&self) -> &Versions {
        self.negotiated.versions()
    }

    /// The log of sent, received, dropped and lost packets. `None` unless the settings enable it.
    pub fn packet_log(&self) -> Option<&Arc<Recorder>> {
        self.log.recorder()
    }

    pub(crate) fn log(&self) -> &PacketLog {
        &self.log
    }

    pub fn stats(&self) -> ConnectionStats {
        let stats = ConnectionStats::from_quinn(self.quinn.stats());
        let gauge = congestion_controller_wrapper::read(self.quinn.congestion_state());
        ConnectionStats {
            congestion_window: gauge.window,
            latest_rtt: gauge.latest_rtt,
            rtt_variance: gauge.rtt_variance,
            bytes_in_flight: gauge.in_flight,
            ssthresh: gauge.ssthresh,
            ecn: self.counters.ecn(),
            streams_open: self.streams.len(),
            version: self.version(),
            cipher_suite: self.negotiated.cipher_suite(),
            group: self.negotiated.group(),
            key_updates: self.key_updates.updates(),
            send_queue_bytes: self.streams.queued_bytes(),
            datagram_frames_dropped: self.datagrams.dropped(),
            datagrams_received: self.counters.datagrams_received(stats.datagrams_received),
            ..stats
        }
    }
}

/// RFC 9000 section 18.2.
const INITIAL_SOURCE_CONNECTION_ID: u64 = 0x0f;
