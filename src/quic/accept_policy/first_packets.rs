//! The ClientHello in a client's first packets (RFC 9001 section 5.2), read before the state machine gets them.
//! Their keys are derived from public data.
//!
//! Not here: the content of a ClientHello (`wire::tls::client_hello`) and its use (`endpoint::pending_accepts`).

use std::collections::BTreeMap;

use bytes::BytesMut;
use quinn_proto::crypto::Keys;
use uringcore_wire::{
    frames::{Frame, Frames},
    header::{Extent, LongHeader, PacketType, number_len},
    tls::client_hello::{HELLO_BYTES_MAX, hello_length, shown_tickets},
};

use crate::{seams::version_2_packets, tls};

/// Collects the ClientHello of one connection.
pub(crate) struct FirstPackets {
    destination: Vec<u8>,
    keys: Keys,
    /// Pieces by their offset, together at most [`HELLO_BYTES_MAX`].
    pieces: BTreeMap<u64, Vec<u8>>,
    kept_bytes: usize,
    is_contradictory: bool,
    /// The number of opened packets.
    opened: u64,
}

/// The destination connection ID of `datagram`, if it begins with an Initial packet.
pub(crate) fn destination(datagram: &[u8]) -> Option<&[u8]> {
    Initial::at(datagram).map(|packet| packet.destination)
}

impl FirstPackets {
    /// Starts reading the connection that begins with `datagram`. `None` if the datagram does not begin with
    /// a readable Initial packet.
    pub fn new(datagram: &[u8]) -> Option<Self> {
        let packet = Initial::at(datagram)?;
        let mut packets = Self {
            destination: packet.destination.to_vec(),
            keys: tls::server_initial_keys(packet.version, packet.destination)?,
            pieces: BTreeMap::new(),
            kept_bytes: 0,
            is_contradictory: false,
            opened: 0,
        };
        packets.push(datagram);
        Some(packets)
    }

    /// The connection ID of packets for this connection.
    pub fn destination(&self) -> &[u8] {
        &self.destination
    }

    /// The stored bytes of the ClientHello.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Drops the pieces: the tickets are known, and nothing more is read.
    pub fn forget(&mut self) {
        self.pieces.clear();
        self.kept_bytes = 0;
    }

    /// Returns true if a packet in `datagram` was opened.
    pub fn push(&mut self, datagram: &[u8]) -> bool {
        let (mut rest, opened_before) = (datagram, self.opened);
        while let Some(packet) = Initial::at(rest) {
            if packet.destination != self.destination {
                break;
            }
            if let Some(payload) = self.open(&packet) {
                self.opened += 1;
                self.take(&payload);
            }
            rest = &rest[packet.bytes.len()..];
        }
        self.opened != opened_before
    }

    /// True if any packet was opened.
    pub fn has_opened(&self) -> bool {
        self.opened > 0
    }

    /// True if packets had different data for one range.
    pub fn is_contradictory(&self) -> bool {
        self.is_contradictory
    }

    /// The whole message; `None` while a part of it is missing.
    pub fn client_hello(&self) -> Option<Vec<u8>> {
        let mut hello = self.contiguous()?;
        let length = hello_length(&hello)?;
        hello.truncate(length);
        Some(hello)
    }

    /// The tickets in the ClientHello; `None` while it is incomplete.
    pub fn shown_tickets(&self) -> Option<Vec<Vec<u8>>> {
        shown_tickets(&self.contiguous()?)
    }

    /// The message up to the first gap; `None` if packets contradict each other.
    fn contiguous(&self) -> Option<Vec<u8>> {
        if self.is_contradictory {
            return None;
        }
        let mut hello: Vec<u8> = Vec::new();
        for (&offset, piece) in &self.pieces {
            let known = hello.len().checked_sub(usize::try_from(offset).ok()?);
            match known {
                Some(known) => hello.extend_from_slice(piece.get(known..).unwrap_or_default()),
                None => break,
            }
        }
        Some(hello)
    }

    fn open(&self, packet: &Initial<'_>) -> Option<BytesMut> {
        let key = &self.keys.header.remote;
        if packet.bytes.len() < packet.number_at + 4 + key.sample_size() {
            return None;
        }
        let mut bytes = packet.bytes.to_vec();
        version_2_packets::hide_type(&mut bytes);
        key.decrypt(packet.number_at, &mut bytes);
        let payload_at = packet.number_at + number_len(bytes[0]);
        let number = bytes[packet.number_at..payload_at]
            .iter()
            .fold(0, |number, &byte| number << 8 | u64::from(byte));
        let mut payload = BytesMut::from(&bytes[payload_at..]);
        self.keys
            .packet
            .remote
            .decrypt(number, &bytes[..payload_at], &mut payload)
            .ok()?;
        Some(payload)
    }

    /// True if a byte is known with another value.
    fn contradicts(&self, offset: u64, data: &[u8]) -> bool {
        let end = offset.saturating_add(data.len() as u64);
        self.pieces.range(..end).any(|(&at, piece)| {
            let from = |bytes: &'_ [u8], skipped: u64| {
                usize::try_from(skipped).map_or(bytes.len(), |skipped| skipped.min(bytes.len()))
            };
            let known = &piece[from(piece, offset.saturating_sub(at))..];
            let new = &data[from(data, at.saturating_sub(offset))..];
            known.iter().zip(new).any(|(known, new)| known != new)
        })
    }

    fn take(&mut self, payload: &[u8]) {
        for (_, _, frame) in Frames::new(payload) {
            let Frame::Crypto { offset, data } = frame else {
                continue;
            };
            self.is_contradictory |= self.contradicts(offset, data);
            let known = self.pieces.get(&offset).map_or(0, Vec::len);
            let is_sane = offset.saturating_add(data.len() as u64) <= HELLO_BYTES_MAX as u64;
            // Overlapping pieces are stored as they are, so their number and sum have to be bounded.
            let kept_bytes = self.kept_bytes + data.len() - known.min(data.len());
            let has_room = kept_bytes <= HELLO_BYTES_MAX && self.pieces.len() < PIECES_MAX;
            if is_sane && has_room && known < data.len() {
                self.pieces.insert(offset, data.to_vec());
                self.kept_bytes = kept_bytes;
            }
        }
    }
}

/// An Initial packet in its datagram (RFC 9000 section 17.2.2).
struct Initial<'a> {
    version: u32,
    destination: &'a [u8],
    number_at: usize,
    /// The whole packet.
    bytes: &'a [u8],
}

impl<'a> Initial<'a> {
    fn at(datagram: &'a [u8]) -> Option<Self> {
        let header = LongHeader::read(datagram)?;
        let kind = PacketType::of_long(datagram[0], header.version);
        let extent = Extent::of(datagram, kind).filter(|_| kind == PacketType::Initial)?;
        Some(Self {
            version: header.version,
            destination: header.destination,
            number_at: extent.number_at,
            bytes: datagram.get(..extent.end)?,
        })
    }
}

const PIECES_MAX: usize = 64;
