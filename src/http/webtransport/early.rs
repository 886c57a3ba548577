//! What comes before its session (draft-ietf-webtrans-http3 section 4.6): packets overtake each other, and a
//! client may open streams before it is answered.
//!
//! Bounds: a number of streams, whose data stays with QUIC but for what was read with their headers, and of bytes
//! of datagrams.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use uringcore_quic::Received;

#[derive(Debug, Default)]
pub(super) struct Early {
    streams: VecDeque<EarlyStream>,
    datagrams: VecDeque<(u64, Bytes)>,
    datagram_bytes: usize,
}

/// A stream whose header was read.
#[derive(Debug)]
pub(super) struct EarlyStream {
    pub stream_id: u64,
    pub session_id: u64,
    /// What has been read behind the header: of a stream that came before any session, or that QUIC has pushed.
    pub rest: Received,
    /// The peer wants nothing on it, says this code.
    pub stopped: Option<u64>,
    pub since: Instant,
}

impl Early {
    /// Gives the stream back if there is no room.
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
            // What waits does not pin the packet that it came in.
            let data = Bytes::copy_from_slice(&data);
            self.datagrams.push_back((session_id, data));
        }
        has_room
    }

    pub fn stream(&mut self, stream_id: u64) -> Option<&mut EarlyStream> {
        let mut streams = self.streams.iter_mut();
        streams.find(|stream| stream.stream_id == stream_id)
    }

    /// Takes what belongs to a session.
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

    /// Takes the streams of which this is true, in order.
    pub fn take_streams(
        &mut self,
        mut wanted: impl FnMut(&EarlyStream) -> bool,
    ) -> Vec<EarlyStream> {
        let all = std::mem::take(&mut self.streams);
        let (taken, kept) = all.into_iter().partition(|stream| wanted(stream));
        self.streams = kept;
        Vec::from_iter::<VecDeque<_>>(taken)
    }

    /// Drops datagrams of sessions of which this is true.
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

/// Empty ones are not free.
fn cost(data: &Bytes) -> usize {
    data.len() + size_of::<(u64, Bytes)>()
}
