//! HTTP datagrams (RFC 9297): unreliable messages that belong to a request. The request's protocol defines their
//! meaning.
//!
//! They arrive in QUIC DATAGRAM frames or, if the request's content consists of capsules, in capsules. The host gets
//! them without this distinction. A datagram is dropped if there is no room for it, in either encoding. Not here:
//! datagrams that wait for the application, which the host stores.

use bytes::Bytes;
use uringcore_h3::Code;
use uringcore_h3::capsule::{self, Capsules};

/// The encodings of datagrams that a request allows.
#[derive(Debug, Default)]
pub(crate) enum Datagrams {
    /// An ordinary request, which has no datagrams.
    #[default]
    None,
    Frames,
    /// Datagrams in DATAGRAM frames, and in the capsules that the content consists of.
    Capsules(Capsules),
}

/// Reads the capsules in `data`. Returns the datagrams, and the error code if an error follows them. `ended` is true
/// if `data` is the last content.
pub(crate) fn read(
    capsules: &mut Capsules,
    data: &mut Bytes,
    ended: bool,
) -> (Vec<Bytes>, Option<Code>) {
    let longest = |kind| (kind == DATAGRAM).then_some(DATAGRAM_MAX);
    let mut found = Vec::new();
    loop {
        match capsules.next(data, longest) {
            Ok(Some((_, value))) => found.push(value),
            // RFC 9297 section 3.3: content that ends inside a capsule is malformed.
            Ok(None) if ended && !capsules.is_at_boundary() => {
                return (found, Some(Code::H3_MESSAGE_ERROR));
            }
            Ok(None) => return (found, None),
            // A longer capsule than any UDP datagram.
            Err(capsule::TooLong) => return (found, Some(Code::H3_EXCESSIVE_LOAD)),
        }
    }
}

/// The capsule type DATAGRAM (RFC 9297 section 3.5).
pub(crate) const DATAGRAM: u64 = 0x00;
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
