//! HTTP datagrams (RFC 9297): unreliable messages of a request, whose protocol defines their meaning.
//!
//! They are carried in QUIC's DATAGRAM frames or, if the request's content consists of capsules, in capsules; a
//! host cannot distinguish them. A datagram may be lost either way: it is dropped if there is no room. Not here:
//! datagrams that wait for the application, which the host stores.

use bytes::Bytes;
use uringcore_h3::Code;
use uringcore_h3::capsule::{self, Capsules};

/// The datagrams of a request's protocol.
#[derive(Debug, Default)]
pub(super) enum Datagrams {
    /// An ordinary HTTP request: datagrams have no meaning.
    #[default]
    None,
    Frames,
    /// The content consists of capsules, which may contain datagrams.
    Capsules(Capsules),
}

/// Reads the capsules in `data`: the datagrams, and the code of an error after them. `ended`: no data follows.
pub(super) fn read(
    capsules: &mut Capsules,
    data: &mut Bytes,
    ended: bool,
) -> (Vec<Bytes>, Option<Code>) {
    let longest = |kind| (kind == DATAGRAM).then_some(DATAGRAM_MAX);
    let mut found = Vec::new();
    loop {
        match capsules.next(data, longest) {
            Ok(Some((_, value))) => found.push(value),
            // RFC 9297 section 3.3: a truncated capsule is malformed.
            Ok(None) if ended && !capsules.is_at_boundary() => {
                return (found, Some(Code::H3_MESSAGE_ERROR));
            }
            Ok(None) => return (found, None),
            // No datagram of QUIC, or of any layer below it, is longer.
            Err(capsule::TooLong) => return (found, Some(Code::H3_EXCESSIVE_LOAD)),
        }
    }
}

/// The capsule of a datagram (RFC 9297 section 3.5).
pub(super) const DATAGRAM: u64 = 0x00;
const DATAGRAM_MAX: usize = 65_535;

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;

    fn datagram(data: &[u8]) -> BytesMut {
        let mut all = BytesMut::new();
        capsule::put(&mut all, DATAGRAM, data);
        all
    }

    #[test]
    fn datagrams_are_read_out_of_capsules_in_pieces() {
        let mut capsules = Capsules::default();
        let mut all = [&datagram(b"one")[..], &datagram(b"two")[..]].concat();
        let rest = all.split_off(7);
        let (found, fault) = read(&mut capsules, &mut all.into(), false);
        assert_eq!(
            (&found[..], fault),
            (&[Bytes::from_static(b"one")][..], None)
        );
        let (found, fault) = read(&mut capsules, &mut rest.into(), true);
        assert_eq!(
            (&found[..], fault),
            (&[Bytes::from_static(b"two")][..], None)
        );
    }

    #[test]
    fn the_end_inside_a_capsule_is_an_error_after_the_datagrams_before_it() {
        let mut capsules = Capsules::default();
        let cut = [&datagram(b"one")[..], &datagram(b"two")[..3]].concat();
        let (found, fault) = read(&mut capsules, &mut cut.into(), true);
        assert_eq!(found, [Bytes::from_static(b"one")]);
        assert_eq!(fault, Some(Code::H3_MESSAGE_ERROR));
    }
}
