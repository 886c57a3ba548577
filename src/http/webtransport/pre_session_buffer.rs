//! Input before its session (draft-ietf-webtrans-http3 section 4.6): packets are reordered, and a client may open
//! streams before the response.
//!
//! Bounds: a number of streams, whose data stays in QUIC except for bytes read with their headers, and a number of
//! datagram bytes.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use uringcore_quic::Received;

#[derive(Debug, Default)]
pub(super) struct PreSessionBuffer {
    streams: VecDeque<EarlyStream>,
    datagrams: VecDeque<(u64, Bytes)>,
    datagram_bytes: usize,
}

/// A stream whose header was read.
#[derive(Debug)]
pub(super) struct EarlyStream {
    pub stream_id: u64,
    pub session_id: u64,
    /// Data read after the header: of a stream that arrived before any session, or that QUIC has pushed.
    pub rest: Received,
    /// The code of the peer's STOP_SENDING on it, if any.
    pub stopped: Option<u64>,
    pub since: Instant,
}

impl PreSessionBuffer {
    /// Returns the stream if there is no room.
    pub fn add_stream(&mut self, stream: EarlyStream, max: usize) -> Result<(), EarlyStream> {
        if self.streams.len() >= max {
            return Err(stream);
        }
        self.streams.push_back(stream);
        Ok(())
    }

    /// False if there is no room.
    pub fn add_datagram(&mut self, session_id: u64, data: Bytes, max: usize) -> bool {
        let cost = cost(&data);
        let has_room = self.datagram_bytes + cost <= max;
        if has_room {
            self.datagram_bytes += cost;
            // Copied, because a stored slice would pin its packet.
            let data = Bytes::copy_from_slice(&data);
            self.datagrams.push_back((session_id, data));
        }
        has_room
    }

    pub fn stream(&mut self, stream_id: u64) -> Option<&mut EarlyStream> {
        let mut streams = self.streams.iter_mut();
        streams.find(|stream| stream.stream_id == stream_id)
    }

    /// Takes the streams and datagrams of a session.
    pub fn take(&mut self, session_id: u64) -> (Vec<EarlyStream>, Vec<Bytes>) {
        if self.is_empty() {
            return Default::default();
        }
        let streams = self.take_streams(|stream| stream.session_id == session_id);
        let mut datagrams = Vec::new();
        let bytes = &mut self.datagram_bytes;
        self.datagrams.retain(|(id, data)| {
            let is_its = *id == session_id;
            if is_its {
                *bytes -= cost(data);
                datagrams.push(data.clone());
            }
            !is_its
        });
        (streams, datagrams)
    }

    /// Takes the streams for which `wanted` is true, in order.
    pub fn take_streams(
        &mut self,
        mut wanted: impl FnMut(&EarlyStream) -> bool,
    ) -> Vec<EarlyStream> {
        let all = std::mem::take(&mut self.streams);
        let (taken, kept) = all.into_iter().partition(|stream| wanted(stream));
        self.streams = kept;
        Vec::from_iter::<VecDeque<_>>(taken)
    }

    /// Drops datagrams of sessions for which `unwanted` is true.
    pub fn drop_datagrams(&mut self, mut unwanted: impl FnMut(u64) -> bool) {
        let bytes = &mut self.datagram_bytes;
        self.datagrams.retain(|(id, data)| {
            let is_dropped = unwanted(*id);
            *bytes -= if is_dropped { cost(data) } else { 0 };
            !is_dropped
        });
    }

    pub fn is_empty(&self) -> bool {
        self.streams.is_empty() && self.datagrams.is_empty()
    }

    pub fn streams(&self) -> usize {
        self.streams.len()
    }
}

/// Empty datagrams cost their entry.
fn cost(data: &Bytes) -> usize {
    data.len() + size_of::<(u64, Bytes)>()
}
