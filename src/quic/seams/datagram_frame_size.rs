//! The size of DATAGRAM frames (RFC 9221 section 3) that each side announces, and the reaction to larger
//! ones.
//!
//! Assumed of quinn-proto:
//!
//! - It announces its buffer for received datagrams, 65,535 at most, and no smaller limit.
//! - It accepts frames that fit in that buffer, even above the announced limit. A datagram that exceeds the
//!   buffer, or any
//!   datagram if there is no buffer, makes it close the connection with PROTOCOL_VIOLATION.
//! - A packet key may return a payload that is longer than the sealed one.
//! - It takes a peer's limit of 0 or 1 for one that an empty frame fits. A frame has a type and, as
//!   quinn-proto writes
//!   it, a length: two bytes. A peer that announces 0 accepts no frame and closes the connection for one.
//!
//! Not here: how much received data waits for the host (`quic::settings`).

use std::borrow::Cow;

use bytes::BytesMut;
use uringcore_wire::{
    frames::{Frame, Frames},
    transport_parameters::Parameters,
    varint,
};

/// The limit of one side: the announced value and its enforcement.
#[derive(Debug, Clone, Copy)]
pub struct DatagramLimit {
    /// The largest DATAGRAM frame, with its type and length.
    frame_max: u64,
    /// The state machine's buffer for received datagrams.
    room: usize,
}

impl Default for DatagramLimit {
    /// The limit that the state machine announces by itself.
    fn default() -> Self {
        Self::new(ANNOUNCED_MAX, 0)
    }
}

impl DatagramLimit {
    pub fn new(frame_max: u64, room: usize) -> Self {
        Self { frame_max, room }
    }

    /// Replaces the library's limit in our transport parameters, if they have one.
    pub fn announce(self, parameters: &mut Vec<u8>) {
        announce(parameters, self.frame_max);
    }

    /// RFC 9221 section 3: a frame that exceeds the announced limit closes the connection with PROTOCOL_VIOLATION. The
    /// state machine does that for a datagram that exceeds its buffer, so a packet with too large a frame is replaced
    /// by one with such a datagram.
    pub fn enforce(self, payload: &mut BytesMut) {
        // No UDP datagram has room for a frame above this limit.
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

/// The peer's parameters as quinn-proto interprets them correctly: a limit that no frame fits is removed.
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

/// The other parameters, in their order. Malformed input is kept, so that the library rejects it.
fn without_limit(parameters: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(parameters.len() + 2 * varint::SIZE_MAX);
    let mut rest = Parameters::of(parameters);
    let mut read = 0;
    for (id, value) in rest.by_ref() {
        let length = varint::size(id) + varint::size(value.len() as u64) + value.len();
        // A peer may encode numbers in more bytes than necessary.
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
/// A frame of this type extends to the end of its packet.
const DATAGRAM: u8 = 0x30;
/// A type and a length.
const FRAME_MIN: u64 = 2;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use quinn_proto as quinn;

    use super::*;
    use crate::seams::bare_quinn::BareQuinn;

    #[test]
    fn bare_quinn_announces_its_room_and_takes_no_limit_for_room_for_an_empty_frame() {
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
    fn bare_quinn_refuses_a_datagram_that_exceeds_its_room_and_any_without_room() {
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
    fn a_frame_beyond_the_limit_becomes_one_beyond_the_room() {
        let limit = DatagramLimit::new(4, 10);
        for (payload, is_taken) in [
            (&[0x01, 0x30, 1, 2, 3][..], true),
            (&[0x01, 0x30, 1, 2, 3, 4], false),
            (&[0x31, 2, 1, 2, 0x01], true),
            (&[0x31, 3, 1, 2, 3, 0x01], false),
            // A length of two bytes.
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
        assert_eq!(opened, [0x30][..], "one byte is a frame without data");
    }

    #[test]
    fn our_limit_is_announced_in_the_place_of_the_librarys() {
        // initial_max_data, max_datagram_frame_size of 65,535, disable_active_migration.
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
    fn a_limit_within_which_no_frame_fits_is_none() {
        for size in [0, 1] {
            assert_eq!(*understood(&[0x20, 1, size, 0x0c, 0]), [0x0c, 0]);
        }
        for parameters in [
            &[0x20, 1, 2, 0x0c, 0][..],
            &[0x0c, 0],
            &[],
            // The last parameter is truncated, and so is the value.
            &[0x20, 1],
            &[0x20, 0, 0x0c, 0],
        ] {
            assert_eq!(*understood(parameters), *parameters);
        }
        // A truncated parameter stays, so that the library rejects it.
        assert_eq!(*understood(&[0x20, 1, 0, 0x04, 9, 1]), [0x04, 9, 1]);
    }
}
