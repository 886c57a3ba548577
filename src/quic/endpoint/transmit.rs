//! Sending: batches of datagrams of one connection after the other, and packets without a connection.
//!
//! An application passes all datagrams of a wake-up to the endpoint before its first `poll_transmit`, so that one ACK
//! answers all of them.

use std::{
    net::{IpAddr, SocketAddr},
    time::Instant,
};

use quinn_proto as quinn;

use super::{ConnectionKey, Endpoint};
use crate::Connection;
use crate::paths::path::Local;

/// Describes the datagrams that [`Endpoint::poll_transmit`] has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    pub remote: SocketAddr,
    /// The two ECN bits of the IP header (RFC 3168).
    pub ecn: Option<u8>,
    /// The number of bytes that were written.
    pub size: usize,
    /// The size of each datagram in bytes; the last one may be shorter. `None`: all bytes are one datagram.
    pub segment_size: Option<usize>,
    /// The local address to send from. `None`: the kernel chooses it.
    pub src_ip: Option<IpAddr>,
    /// The number of the application's socket to send from. The first socket is 0.
    pub socket: u32,
}

impl Endpoint {
    /// Sets how many datagrams one batch may have. 1 disables batches (GSO).
    pub fn set_gso(&mut self, max_segments: usize) {
        self.max_segments = max_segments.max(1);
    }

    /// Clears `buf` and writes the next batch into it: datagrams of one connection, at most 65,507 bytes, or one packet
    /// without a connection. Connections send round robin.
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
            let was_spent = entry.is_spent && entry.is_reconciled && !entry.is_read;
            match self.ask_connection(index, now, buf) {
                Some((transmit, remote, local)) => {
                    self.sending.push_back(index);
                    self.reconcile(index);
                    return Some(self.sent(&transmit, remote, local));
                }
                None => {
                    self.note_quiet(now, index);
                    // quinn-proto ends a connection that has used up its packet numbers.
                    match was_spent && !self.connections[index].connection.quinn().is_drained() {
                        true => self.enter_rest(now, index),
                        false => self.reconcile(index),
                    }
                }
            }
        }
        None
    }

    /// Writes the next batch of the connection `key` alone. Its position in the round robin of
    /// [`poll_transmit`](Self::poll_transmit), which must be called as well, does not change.
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

    /// False if nothing can be left to send after `transmit`, the connection's last batch: it is a single datagram with
    /// room left, and no DATAGRAM frame waits. If it is true, data may or may not be left. In both cases the caller
    /// later calls [`poll_transmit`](Self::poll_transmit) again.
    pub fn may_send_more(&mut self, key: ConnectionKey, transmit: &Transmit) -> bool {
        let entry = self.connections.get_mut(key.index());
        entry.is_some_and(|entry| {
            ConnectionKey::new(key.index(), entry.generation) == key
                && may_have_more(&mut entry.connection, transmit.size, transmit.segment_size)
        })
    }

    /// True if the application has called commands of the connection, and some of their data may not be sent yet.
    pub fn is_commanded(&self, key: ConnectionKey) -> bool {
        let entry = self.connections.get(key.index());
        entry.is_some_and(|entry| {
            ConnectionKey::new(key.index(), entry.generation) == key && entry.is_commanded
        })
    }

    fn ask_connection(
        &mut self,
        index: usize,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<(quinn::Transmit, SocketAddr, Local)> {
        let entry = &mut self.connections[index];
        let is_read = std::mem::take(&mut entry.is_read);
        let is_pumped = entry.is_reconciled && !is_read;
        // quinn-proto is asked even if it has no more data: it may send an MTU probe then, and it records that the
        // application limits the rate, so that acknowledgements do not open the congestion window.
        let was_spent = std::mem::take(&mut entry.is_spent) && is_pumped;
        let connection = &mut entry.connection;
        let mtu = usize::from(connection.quinn().current_mtu());
        let segments = self.max_segments.min(UDP_PAYLOAD_MAX / mtu).max(1);
        if !was_spent {
            connection.prepare_transmit(segments * mtu, is_pumped);
        }
        self.tokens.set(connection.version());
        let transmit = connection.poll_transmit(now, segments, buf);
        debug_assert!(transmit.is_some() || buf.is_empty());
        // If no packet was made, data may still wait for the congestion window or for pacing, so `is_commanded` stays
        // set.
        let transmit = transmit?;
        let has_more = may_have_more(connection, transmit.size, transmit.segment_size)
            || connection.has_queued_data();
        entry.is_spent = !has_more;
        entry.is_commanded &= has_more;
        let (remote, local) = connection.route(transmit.destination);
        Some((transmit, remote, local))
    }

    /// Sends a datagram of the application that belongs to no connection. It is dropped without an error, as the
    /// network may do, if the queue is full or the datagram is larger than UDP allows.
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

/// False if a single datagram with room left was written, and no DATAGRAM frame waits.
fn may_have_more(connection: &mut Connection, size: usize, segment_size: Option<usize>) -> bool {
    segment_size.is_some() || connection.may_have_filled(size)
}

/// The largest UDP payload over IPv4, in bytes.
const UDP_PAYLOAD_MAX: usize = 65_507;
/// The number of packets without a connection that may wait. A dropped one is made again when the peer repeats its
/// packet.
const RESPONSES_MAX: usize = 256;

#[cfg(test)]
mod tests;
