//! A client that sends arbitrary data, and the server's connection that receives it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use uringcore_quic::{self as quic, ConnectionKey, TransportSettings};

use support::{Pair, with_transport};

#[path = "../../../src/quic/tests/support/mod.rs"]
#[allow(dead_code)]
mod support;

pub struct Wire {
    pub pair: Pair,
    client: ConnectionKey,
    server: ConnectionKey,
}

impl Wire {
    /// The transport allows this much for datagrams, and little for everything else.
    pub fn new(datagram_bytes: usize) -> Self {
        let (client, server) = with_transport(|transport| {
            *transport = TransportSettings {
                idle_timeout: Duration::ZERO,
                max_data: 64 << 10,
                max_stream_data: 8 << 10,
                max_streams_bidi: 12,
                max_streams_uni: 6,
                mtu_discovery: false,
                datagram_recv_bytes: Some(datagram_bytes),
                ..TransportSettings::default()
            }
        });
        let mut pair = Pair::new(client, server);
        let (client, server) = pair.establish();
        Self {
            pair,
            client,
            server,
        }
    }

    /// The client's connection, while it exists.
    pub fn client<R>(&mut self, run: impl FnOnce(&mut quic::Connection) -> R) -> Option<R> {
        self.pair.client.endpoint.connection(self.client).map(run)
    }

    /// The server's connection, while it exists, and the time.
    pub fn server(&mut self) -> Option<(&mut quic::Connection, Instant)> {
        let now = self.pair.now;
        let quic = self.pair.server.endpoint.connection(self.server)?;
        Some((quic, now))
    }

    /// The client writes on a stream.
    pub fn write(&mut self, stream_id: u64, bytes: &[u8], ends: bool) {
        let data = Bytes::copy_from_slice(bytes);
        self.client(|quic| {
            // An error means that the stream has ended before.
            let _ = quic.send_stream(stream_id, data, ends);
        });
    }

    /// Advances time. Returns the events of the server's connection.
    pub fn pass(&mut self, time: Duration) -> Vec<quic::Event> {
        self.pair.run_for(time);
        // Drops the records that the harness keeps for its tests.
        self.pair.client.events.clear();
        self.pair.sent_to.clear();
        for peer in [&mut self.pair.client, &mut self.pair.server] {
            let streams = peer.streams.values_mut();
            streams.for_each(|stream| stream.data = Vec::new());
        }
        let reported = std::mem::take(&mut self.pair.server.events);
        reported.into_iter().map(|(_, event)| event).collect()
    }
}
