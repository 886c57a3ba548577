//! The size of DATAGRAM frames (RFC 9221 section 3) that each side announces.
//!
//! Assumed of quinn-proto:
//!
//! - It announces the room that it has for received datagrams, 65,535 at most, and no smaller limit.
//! - It takes a limit of the peer's of 0 or 1 for one within which an empty frame fits. A frame has a type
//!   and, as it writes it, a length: two bytes. A peer that announces 0 takes none at all, and closes the
//!   connection for one.
//!
//! Not here: how much of what was received waits for the host (`quic::settings`).

use std::borrow::Cow;

use crate::wire::{parameters::Parameters, varint};

/// Puts `size` in the place of the limit in these parameters of ours, if there is one.
pub fn announce(parameters: &mut Vec<u8>, size: u64) {
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

/// The peer's parameters as quinn-proto understands them: a limit within which no frame fits is none.
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

/// The others, in their order. What is no parameter any more is kept: the library is to complain of it.
fn without_limit(parameters: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(parameters.len() + 2 * varint::SIZE_MAX);
    let mut rest = Parameters::of(parameters);
    let mut read = 0;
    for (id, value) in rest.by_ref() {
        let length = varint::size(id) + varint::size(value.len() as u64) + value.len();
        // A peer may write numbers longer than they have to be.
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
/// A type and a length.
const FRAME_MIN: u64 = 2;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use quinn_proto as quinn;

    use super::*;
    use crate::seams::bare::Bare;

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
            let mut bare = Bare::connected(transport);
            let mut datagrams = bare.client.connection().datagrams();
            let found = datagrams.max_size().map(|size| size.min(1_000));
            assert_eq!(found, size_max);
            assert!(datagrams.send(Bytes::new(), false).is_ok());
        }
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
            // Something is missing of the last one, and of the value.
            &[0x20, 1],
            &[0x20, 0, 0x0c, 0],
        ] {
            assert_eq!(*understood(parameters), *parameters);
        }
        // What is cut short stays, for the library to complain of.
        assert_eq!(*understood(&[0x20, 1, 0, 0x04, 9, 1]), [0x04, 9, 1]);
    }
}
