//! Buffers streams and datagrams that arrive before their session is open (draft-ietf-webtrans-http3 section 4.6):
//! packets may be reordered, and a client may open streams before the response.
//!
//! Bounds: a number of streams, whose data stays in QUIC except for bytes that were read with the header, and a number
//! of bytes of datagrams.

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

/// A stream whose header was read, and whose session is not open.
#[derive(Debug)]
pub(super) struct EarlyStream {
    pub stream_id: u64,
    pub session_id: u64,
    /// Data that was read behind the header. It is not empty if the stream arrived before the first session, or if QUIC
    /// has pushed the stream's data.
    pub rest: Received,
    /// The code of the peer's STOP_SENDING for the stream; `None` if it has sent none.
    pub stopped: Option<u64>,
    pub since: Instant,
}

impl PreSessionBuffer {
    /// Buffers a stream. Returns the stream if `max` streams are buffered already.
    pub fn add_stream(&mut self, stream: EarlyStream, max: usize) -> Result<(), EarlyStream> {
        if self.streams.len() >= max {
            return Err(stream);
        }
        self.streams.push_back(stream);
        Ok(())
    }

    /// Buffers a datagram. False if the datagrams would exceed `max` bytes.
    pub fn add_datagram(&mut self, session_id: u64, data: Bytes, max: usize) -> bool {
        let cost = cost(&data);
        let has_room = self.datagram_bytes + cost <= max;
        if has_room {
            self.datagram_bytes += cost;
            // The datagram is copied, because a slice would keep its whole packet alive.
            let data = Bytes::copy_from_slice(&data);
            self.datagrams.push_back((session_id, data));
        }
        has_room
    }

    pub fn stream(&mut self, stream_id: u64) -> Option<&mut EarlyStream> {
        let mut streams = self.streams.iter_mut();
        streams.find(|stream| stream.stream_id == stream_id)
    }

    /// Removes and returns the streams and datagrams of a session.
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

    /// Removes the streams for which `wanted` returns true, and returns them in the order of their arrival.
    pub fn take_streams(
        &mut self,
        mut wanted: impl FnMut(&EarlyStream) -> bool,
    ) -> Vec<EarlyStream> {
        let all = std::mem::take(&mut self.streams);
        let (taken, kept) = all.into_iter().partition(|stream| wanted(stream));
        self.streams = kept;
        Vec::from_iter::<VecDeque<_>>(taken)
    }

    /// Drops the datagrams of sessions for which `unwanted` returns true.
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

/// The number of bytes by which a datagram fills the buffer. It includes the entry, so that empty datagrams count, too.
fn cost(data: &Bytes) -> usize {
    data.len() + size_of::<(u64, Bytes)>()
}
