//! The largest DATAGRAM frame that each side announces (RFC 9221 section 3), and the reaction to a larger one.
//!
//! Assumed of quinn-proto:
//!
//! - It announces the size of its buffer for received datagrams, 65,535 at most, and cannot announce less.
//! - It accepts a frame that fits in the buffer, even above the announced limit. If a datagram exceeds the buffer, or
//!   if there is no buffer, it closes the connection with PROTOCOL_VIOLATION.
//! - A packet key may return a payload that is longer than the sealed one.
//! - It interprets a peer's limit of 0 or 1 as one that allows an empty frame. But its frames have at least two
//!   bytes, type and length, and a peer that announces 0 closes the connection for any DATAGRAM frame.
//!
//! Not here: how many received datagrams wait for the application (`quic::settings`).

use std::borrow::Cow;

use bytes::BytesMut;
use uringcore_wire::{
    frame_iterator::{Frame, Frames},
    transport_parameters::Parameters,
    varint,
};

/// The limit that this side announces, and its enforcement.
#[derive(Debug, Clone, Copy)]
pub struct DatagramLimit {
    /// The size of the largest DATAGRAM frame in bytes, type and length included.
    frame_max: u64,
    /// The size of quinn-proto's buffer for received datagrams, in bytes.
    room: usize,
}

impl Default for DatagramLimit {
    /// The limit that quinn-proto announces by itself.
    fn default() -> Self {
        Self::new(ANNOUNCED_MAX, 0)
    }
}

impl DatagramLimit {
    pub fn new(frame_max: u64, room: usize) -> Self {
        Self { frame_max, room }
    }

    /// Replaces quinn-proto's value of `max_datagram_frame_size` in this side's encoded transport parameters, if they
    /// contain one.
    pub fn announce(self, parameters: &mut Vec<u8>) {
        announce(parameters, self.frame_max);
    }

    /// Makes quinn-proto close the connection with PROTOCOL_VIOLATION if a frame exceeds the announced limit (RFC 9221
    /// section 3). quinn-proto does so for a datagram that exceeds its buffer, so the packet's payload is replaced by
    /// such a datagram.
    pub fn enforce(self, payload: &mut BytesMut) {
        // A frame above this limit does not fit into any UDP datagram, so nothing has to be checked.
        if self.frame_max >= ANNOUNCED_MAX {
            return;
        }
        let is_too_large = |(start, end, frame): (usize, usize, Frame<'_>)| {
            frame == Frame::Datagram && (end - start) as u64 > self.frame_max
        };
        if Frames::new(payload).any(is_too_large) {
            payload.clear();
            payload.extend_from_slice(&[DATAGRAM]);
            payload.resize(1 + self.room + 1, 0);
        }
    }
}

fn announce(parameters: &mut Vec<u8>, size: u64) {
    let Some(before) = limit(parameters) else {
        return;
    };
    if before == size {
        return;
    }
    let mut changed = without_limit(parameters);
    varint::put(&mut changed, MAX_DATAGRAM_FRAME_SIZE);
    varint::put(&mut changed, varint::size(size) as u64);
    varint::put(&mut changed, size);
    *parameters = changed;
}

/// Returns the peer's transport parameters. The limit of DATAGRAM frames is left out if even the smallest frame of
/// quinn-proto would exceed it.
pub fn understood(parameters: &[u8]) -> Cow<'_, [u8]> {
    match limit(parameters) {
        Some(size) if size < FRAME_MIN => without_limit(parameters).into(),
        _ => parameters.into(),
    }
}

fn limit(parameters: &[u8]) -> Option<u64> {
    Parameters::of(parameters)
        .find(|&(id, _)| id == MAX_DATAGRAM_FRAME_SIZE)
        .and_then(|(_, value)| varint::get(value))
        .map(|(size, _)| size)
}

/// All transport parameters except `max_datagram_frame_size`, in their order. Malformed input is kept, so that
/// quinn-proto rejects it.
fn without_limit(parameters: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(parameters.len() + 2 * varint::SIZE_MAX);
    let mut rest = Parameters::of(parameters);
    let mut read = 0;
    for (id, value) in rest.by_ref() {
        let length = varint::size(id) + varint::size(value.len() as u64) + value.len();
        // The length is computed from the input, because a peer may encode numbers in more bytes than necessary.
        read += length;
        if id != MAX_DATAGRAM_FRAME_SIZE {
            varint::put(&mut kept, id);
            varint::put(&mut kept, value.len() as u64);
            kept.extend_from_slice(value);
        }
    }
    if rest.is_cut_short() {
        kept.extend_from_slice(parameters.get(read..).unwrap_or_default());
    }
    kept
}

const MAX_DATAGRAM_FRAME_SIZE: u64 = 0x20;
/// The largest limit that quinn-proto announces.
const ANNOUNCED_MAX: u64 = 65_535;
/// The type of a DATAGRAM frame without a length, which extends to the end of its packet.
const DATAGRAM: u8 = 0x30;
/// The size of an empty DATAGRAM frame with a length: type and length.
const FRAME_MIN: u64 = 2;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use quinn_proto as quinn;

    use super::*;
    use crate::workarounds::bare_quinn::BareQuinn;

    #[test]
    fn bare_quinn_announces_its_buffer_and_sends_an_empty_frame_for_limit_zero() {
        for (room, size_max) in [
            (0, Some(0)),
            (1, Some(0)),
            (100, Some(91)),
            (1 << 20, Some(1_000)),
        ] {
            let mut transport = quinn::TransportConfig::default();
            transport.datagram_receive_buffer_size(Some(room));
            let mut bare = BareQuinn::connected(transport);
            let mut datagrams = bare.client.connection().datagrams();
            let found = datagrams.max_size().map(|size| size.min(1_000));
            assert_eq!(found, size_max);
            assert!(datagrams.send(Bytes::new(), false).is_ok());
        }
    }

    #[test]
    fn bare_quinn_closes_for_a_datagram_above_its_buffer() {
        for (room, sizes) in [(Some(5_000), [true, false]), (None, [false, false])] {
            for (size, is_taken) in [(1_000, sizes[0]), (5_001, sizes[1])] {
                let mut transport = quinn::TransportConfig::default();
                transport.datagram_receive_buffer_size(room);
                let mut bare = BareQuinn::connected(transport);
                *bare.server.spy.on_open.lock().unwrap() = Some(Box::new(move |_, payload| {
                    payload.clear();
                    payload.extend_from_slice(&[DATAGRAM]);
                    payload.resize(1 + size, 0);
                }));
                bare.client.connection().ping();
                bare.exchange();
                let violations = bare.server.events.iter().filter(|event| match event {
                    quinn::Event::ConnectionLost {
                        reason: quinn::ConnectionError::TransportError(error),
                    } => error.code == quinn::TransportErrorCode::PROTOCOL_VIOLATION,
                    _ => false,
                });
                assert_eq!(
                    violations.count(),
                    usize::from(!is_taken),
                    "{room:?} {size}"
                );
            }
        }
    }

    #[test]
    fn a_frame_above_the_limit_is_replaced_by_one_above_the_buffer() {
        let limit = DatagramLimit::new(4, 10);
        for (payload, is_taken) in [
            (&[0x01, 0x30, 1, 2, 3][..], true),
            (&[0x01, 0x30, 1, 2, 3, 4], false),
            (&[0x31, 2, 1, 2, 0x01], true),
            (&[0x31, 3, 1, 2, 3, 0x01], false),
            // The length of the DATAGRAM frame has two bytes.
            (&[0x31, 0x40, 1, 1], true),
            (&[0x31, 0x40, 2, 1, 2], false),
            (&[0x31, 1, 1, 0x31, 3, 1, 2, 3], false),
            // A STREAM frame whose data looks like a DATAGRAM frame.
            (&[0x0a, 0, 5, 0x31, 3, 1, 2, 3], true),
        ] {
            let mut opened = BytesMut::from(payload);
            limit.enforce(&mut opened);
            let expected = match is_taken {
                true => payload.to_vec(),
                false => [&[DATAGRAM][..], &[0; 11]].concat(),
            };
            assert_eq!(opened, expected, "{payload:x?}");
            let mut opened = BytesMut::from(payload);
            DatagramLimit::default().enforce(&mut opened);
            assert_eq!(opened, payload);
        }
        let mut opened = BytesMut::from(&[0x30][..]);
        DatagramLimit::new(1, 10).enforce(&mut opened);
        assert_eq!(
            opened,
            [0x30][..],
            "an empty frame without a length has one byte"
        );
    }

    #[test]
    fn our_limit_replaces_quinns_in_transport_parameters() {
        // The parameters `initial_max_data`, `max_datagram_frame_size` of 65,535, and `disable_active_migration`.
        let before = [0x04, 1, 9, 0x20, 4, 0x80, 0, 0xff, 0xff, 0x0c, 0];
        for (size, written) in [
            (1, vec![0x20, 1, 1]),
            (100, vec![0x20, 2, 0x40, 100]),
            (65_534, vec![0x20, 4, 0x80, 0, 0xff, 0xfe]),
        ] {
            let mut parameters = before.to_vec();
            announce(&mut parameters, size);
            assert_eq!(parameters, [&[0x04, 1, 9, 0x0c, 0], &*written].concat());
        }
        let mut parameters = before.to_vec();
        announce(&mut parameters, 65_535);
        assert_eq!(parameters, before);
        let mut without = vec![0x04, 1, 9];
        announce(&mut without, 100);
        assert_eq!(without, [0x04, 1, 9]);
    }

    #[test]
    fn a_limit_that_no_frame_fits_is_removed() {
        for size in [0, 1] {
            assert_eq!(*understood(&[0x20, 1, size, 0x0c, 0]), [0x0c, 0]);
        }
        for parameters in [
            &[0x20, 1, 2, 0x0c, 0][..],
            &[0x0c, 0],
            &[],
            // The last parameter is truncated, in the second case within the value.
            &[0x20, 1],
            &[0x20, 0, 0x0c, 0],
        ] {
            assert_eq!(*understood(parameters), *parameters);
        }
        // The truncated parameter is kept, so that quinn-proto rejects it.
        assert_eq!(*understood(&[0x20, 1, 0, 0x04, 9, 1]), [0x04, 9, 1]);
    }
}
