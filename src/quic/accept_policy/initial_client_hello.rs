//! Reads the ClientHello in a client's first packets, before quinn-proto gets them. The keys of Initial packets are
//! derived from public data, so no handshake is needed (RFC 9001 section 5.2).
//!
//! Not here: the extensions of a ClientHello (`wire::tls::client_hello_extensions`) and the use of its tickets
//! (`endpoint::session_lookup_wait`).

use std::collections::BTreeMap;

use bytes::BytesMut;
use quinn_proto::crypto::Keys;
use uringcore_wire::{
    frame_iterator::{Frame, Frames},
    packet_header::{Extent, LongHeader, PacketType, number_len},
    tls::client_hello_extensions::{HELLO_BYTES_MAX, hello_length, shown_tickets},
};

use crate::{tls, workarounds::version_2_packets};

/// Collects the bytes of one connection's ClientHello from its Initial packets.
pub(crate) struct FirstPackets {
    destination: Vec<u8>,
    keys: Keys,
    /// Data of CRYPTO frames, by offset. All pieces together have at most [`HELLO_BYTES_MAX`] bytes.
    pieces: BTreeMap<u64, Vec<u8>>,
    kept_bytes: usize,
    is_contradictory: bool,
    /// The number of packets that the Initial keys have opened.
    opened: u64,
}

/// The destination connection ID of `datagram`, if it begins with an Initial packet.
pub(crate) fn destination(datagram: &[u8]) -> Option<&[u8]> {
    Initial::at(datagram).map(|packet| packet.destination)
}

impl FirstPackets {
    /// Reads the first datagram of a connection. `None` if it does not begin with an Initial packet of a known version.
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

    /// The destination connection ID of the connection's Initial packets.
    pub fn destination(&self) -> &[u8] {
        &self.destination
    }

    /// The number of ClientHello bytes that are stored.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Drops the stored bytes, after the tickets were read.
    pub fn forget(&mut self) {
        self.pieces.clear();
        self.kept_bytes = 0;
    }

    /// Reads all Initial packets in `datagram`. Returns true if at least one was opened.
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

    /// True if at least one packet was opened.
    pub fn has_opened(&self) -> bool {
        self.opened > 0
    }

    /// True if two packets contained different data for the same range of the CRYPTO stream.
    pub fn is_contradictory(&self) -> bool {
        self.is_contradictory
    }

    /// The whole ClientHello message. `None` until all of its bytes have arrived.
    pub fn client_hello(&self) -> Option<Vec<u8>> {
        let mut hello = self.contiguous()?;
        let length = hello_length(&hello)?;
        hello.truncate(length);
        Some(hello)
    }

    /// The session tickets in the ClientHello. `None` until all of them have arrived.
    pub fn shown_tickets(&self) -> Option<Vec<Vec<u8>>> {
        shown_tickets(&self.contiguous()?)
    }

    /// The bytes of the message up to the first gap. `None` if two packets contained different data for one range.
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

    /// True if a stored byte in the range of `data` has another value.
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
            // Overlapping pieces are stored without merging, so the number of pieces and the sum of their bytes are
            // bounded.
            let kept_bytes = self.kept_bytes + data.len() - known.min(data.len());
            let has_room = kept_bytes <= HELLO_BYTES_MAX && self.pieces.len() < PIECES_MAX;
            if is_sane && has_room && known < data.len() {
                self.pieces.insert(offset, data.to_vec());
                self.kept_bytes = kept_bytes;
            }
        }
    }
}

/// An Initial packet within a datagram (RFC 9000 section 17.2.2).
struct Initial<'a> {
    version: u32,
    destination: &'a [u8],
    number_at: usize,
    /// The packet's bytes, header included.
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
