//! The integrity tag of Retry packets (RFC 9001 section 5.8, RFC 9369 section 3.3.3).
//!
//! Packets have the form that quinn-proto uses, with the type bits of version 1.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use uringcore_wire::packet_header::{VERSION_2, shift_type};

pub(in crate::tls) const TAG_LEN: usize = 16;

/// The tag of `packet`, which is a Retry packet of `version` without its tag.
pub(in crate::tls) fn tag(
    version: u32,
    original_dst_cid: &[u8],
    packet: &[&[u8]],
) -> [u8; TAG_LEN] {
    let (key, nonce) = match version {
        VERSION_2 => (&KEY_V2, NONCE_V2),
        _ => (&KEY_V1, NONCE_V1),
    };
    let key = UnboundKey::new(&AES_128_GCM, key).expect("the key has the right length");
    let mut tag = [0; TAG_LEN];
    let sealed = LessSafeKey::new(key)
        .seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(pseudo_packet(version, original_dst_cid, packet)),
            &mut [],
        )
        .expect("there is nothing to seal");
    tag.copy_from_slice(sealed.as_ref());
    tag
}

/// True if `packet` ends with the right tag. The comparison need not take constant time, because the key of the tag
/// is public.
pub(crate) fn is_valid(version: u32, original_dst_cid: &[u8], packet: &[u8]) -> bool {
    match packet.split_last_chunk::<TAG_LEN>() {
        Some((packet, received)) => tag(version, original_dst_cid, &[packet]) == *received,
        None => false,
    }
}

fn pseudo_packet(version: u32, original_dst_cid: &[u8], packet: &[&[u8]]) -> Vec<u8> {
    let length =
        u8::try_from(original_dst_cid.len()).expect("a connection ID has 20 bytes at most");
    let mut result = vec![length];
    result.extend_from_slice(original_dst_cid);
    let first = result.len();
    packet
        .iter()
        .for_each(|part| result.extend_from_slice(part));
    if version == VERSION_2
        && let Some(first) = result.get_mut(first)
    {
        *first = shift_type(*first);
    }
    result
}

const KEY_V1: [u8; 16] = [
    0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e,
];
const NONCE_V1: [u8; 12] = [
    0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb,
];
const KEY_V2: [u8; 16] = [
    0x8f, 0xb4, 0xb0, 0x1b, 0x56, 0xac, 0x48, 0xe2, 0x60, 0xfb, 0xcb, 0xce, 0xad, 0x7c, 0xcc, 0x92,
];
const NONCE_V2: [u8; 12] = [
    0xd8, 0x69, 0x69, 0xbc, 0x2d, 0x7c, 0x6d, 0x99, 0x90, 0xef, 0xb0, 0x4a,
];

#[cfg(test)]
mod tests {
    use uringcore_wire::packet_header::VERSION_1;

    use super::*;

    /// The example of RFC 9001 appendix A.4.
    #[test]
    fn the_tag_is_that_of_rfc_9001s_example() {
        let original = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
        let header = [
            0xff, 0x00, 0x00, 0x00, 0x01, 0x00, 0x08, 0xf0, 0x67, 0xa5, 0x50, 0x2a, 0x42, 0x62,
            0xb5,
        ];
        let mut payload = b"token".to_vec();
        payload.extend([
            0x04, 0xa2, 0x65, 0xba, 0x2e, 0xff, 0x4d, 0x82, 0x90, 0x58, 0xfb, 0x3f, 0x0f, 0x24,
            0x96, 0xba,
        ]);
        assert!(is_valid(
            VERSION_1,
            &original,
            &[&header, &payload[..]].concat()
        ));
        payload[2] ^= 1;
        assert!(!is_valid(
            VERSION_1,
            &original,
            &[&header, &payload[..]].concat()
        ));
        assert!(!is_valid(VERSION_1, &original, b"short"));
    }

    /// The example of RFC 9369 appendix A.4, whose first byte on the wire is 0xcf.
    #[test]
    fn the_tag_is_that_of_rfc_9369s_example() {
        let original = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
        let header = [
            0xff, 0x6b, 0x33, 0x43, 0xcf, 0x00, 0x08, 0xf0, 0x67, 0xa5, 0x50, 0x2a, 0x42, 0x62,
            0xb5,
        ];
        let mut payload = b"token".to_vec();
        payload.extend([
            0xc8, 0x64, 0x6c, 0xe8, 0xbf, 0xe3, 0x39, 0x52, 0xd9, 0x55, 0x54, 0x36, 0x65, 0xdc,
            0xc7, 0xb6,
        ]);
        assert!(is_valid(
            VERSION_2,
            &original,
            &[&header, &payload[..]].concat()
        ));
        assert!(!is_valid(
            VERSION_1,
            &original,
            &[&header, &payload[..]].concat()
        ));
    }
}
