//! Sending: batches of the connections in turn, and stateless answers.
//!
//! A host passes in all datagrams of a wake-up before its first `poll_transmit`, so that one acknowledgement covers
//! many packets.

use std::{
    net::{IpAddr, SocketAddr},
    time::Instant,
};

use quinn_proto as quinn;

use super::{ConnectionKey, Endpoint};
use crate::paths::path::Local;

/// Describes the bytes that [`Endpoint::poll_transmit`] has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    pub remote: SocketAddr,
    /// The two ECN bits to set (RFC 3168).
    pub ecn: Option<u8>,
    /// The number of written bytes.
    pub size: usize,
    /// The size of each datagram; the last one may be shorter. `None`: one datagram.
    pub segment_size: Option<usize>,
    /// The address to send from, if it matters.
    pub src_ip: Option<IpAddr>,
    /// The host's number of the socket to send from. The first one is 0.
    pub socket: u32,
}

impl Endpoint {
    /// Sets how many datagrams of a connection may go into one batch; 1 disables batches.
    pub fn set_gso(&mut self, max_segments: usize) {
        self.max_segments = max_segments.max(1);
    }

    /// Clears `buf` and writes the next batch of datagrams into it: some datagrams of one connection, at most
    /// 65,507 bytes, or one stateless answer. Connections take turns.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        buf.clear();
        if let Some((transmit, data, socket)) = self.responses.pop_front() {
            buf.extend_from_slice(&data);
            let ip = transmit.src_ip;
            let remote = transmit.destination;
            return Some(self.sent(&transmit, remote, Local { socket, ip }));
        }
        if self.is_short_of_memory() {
            self.shed(now);
        }
        while let Some(index) = self.sending.pop_front() {
            let entry = &mut self.connections[index];
            if entry.drained {
                entry.is_sending = false;
                self.remove_if_over(index);
                continue;
            }
            match self.ask_connection(index, now, buf) {
                Some((transmit, remote, local)) => {
                    self.sending.push_back(index);
                    self.reconcile(index);
                    return Some(self.sent(&transmit, remote, local));
                }
                None => {
                    let entry = &mut self.connections[index];
                    entry.is_sending = false;
                    entry.quiet_since = Some(now);
                    entry.connection.end_promise(now);
                    self.reconcile(index);
                }
            }
        }
        None
    }

    /// Writes the next batch of one connection. The connection keeps its turn in
    /// [`poll_transmit`](Self::poll_transmit), which must be called as well.
    pub fn poll_transmit_of(
        &mut self,
        key: ConnectionKey,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        buf.clear();
        let index = key.index();
        let entry = self.connections.get(index)?;
        let is_it = ConnectionKey::new(index, entry.generation) == key;
        if !is_it || entry.drained || !entry.is_sending {
            return None;
        }
        let (transmit, remote, local) = self.ask_connection(index, now, buf)?;
        self.reconcile(index);
        Some(self.sent(&transmit, remote, local))
    }

    fn ask_connection(
        &mut self,
        index: usize,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<(quinn::Transmit, SocketAddr, Local)> {
        let connection = &mut self.connections[index].connection;
        let mtu = usize::from(connection.quinn().current_mtu());
        let segments = self.max_segments.min(UDP_PAYLOAD_MAX / mtu).max(1);
        connection.prepare_transmit(segments * mtu);
        self.tokens.set(connection.version());
        let transmit = connection.poll_transmit(now, segments, buf);
        debug_assert!(transmit.is_some() || buf.is_empty());
        let transmit = transmit?;
        let (remote, local) = connection.route(transmit.destination);
        Some((transmit, remote, local))
    }

    /// Sends a datagram of the host, without a connection. It is dropped, as in the network, if the queue is full
    /// or if it is larger than UDP allows.
    pub fn send_datagram(&mut self, remote: SocketAddr, data: Vec<u8>) {
        if data.len() > UDP_PAYLOAD_MAX {
            self.stats.responses_dropped += 1;
            return;
        }
        let transmit = quinn::Transmit {
            destination: remote,
            ecn: None,
            size: data.len(),
            segment_size: None,
            src_ip: None,
        };
        self.queue_response(transmit, data, 0);
    }

    pub(crate) fn respond(&mut self, transmit: quinn::Transmit) {
        let data = std::mem::take(&mut self.scratch);
        self.queue_response(transmit, data, self.arrival);
    }

    fn queue_response(&mut self, transmit: quinn::Transmit, data: Vec<u8>, socket: u32) {
        match self.responses.len() < RESPONSES_MAX {
            true => self.responses.push_back((transmit, data, socket)),
            false => self.stats.responses_dropped += 1,
        }
    }

    pub(super) fn sent(
        &mut self,
        transmit: &quinn::Transmit,
        remote: SocketAddr,
        local: Local,
    ) -> Transmit {
        let segments = transmit
            .segment_size
            .map_or(1, |size| transmit.size.div_ceil(size));
        self.stats.datagrams_sent += segments as u64;
        self.stats.bytes_sent += transmit.size as u64;
        self.stats.transmits += 1;
        Transmit {
            remote,
            ecn: transmit.ecn.map(|codepoint| codepoint as u8),
            size: transmit.size,
            segment_size: transmit.segment_size,
            src_ip: local.ip,
            socket: local.socket,
        }
    }
}

/// The largest UDP payload over IPv4.
const UDP_PAYLOAD_MAX: usize = 65_507;
/// Stateless answers that wait for the socket. A dropped answer is repeated when the peer repeats its packet.
const RESPONSES_MAX: usize = 256;

#[cfg(test)]
mod tests;
