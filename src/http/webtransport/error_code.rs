//! Error codes of WebTransport, and the mapping of an application's codes to a range of HTTP/3's codes.
//!
//! Other modules decide when a code is sent.

use uringcore_h3::Code;

/// WT_FLOW_CONTROL_ERROR (draft-ietf-webtrans-http3 section 9.5). All drafts that define a code use the same number.
pub const FLOW_CONTROL_ERROR: Code = Code(0x045d_4487);
pub const ALPN_ERROR: Code = Code(0x0817_b3dd);
pub const SESSION_GONE: Code = Code(0x170d_7b68);
pub const BUFFERED_STREAM_REJECTED: Code = Code(0x3994_bd84);

/// The code that the host gets if the peer reset or stopped a stream with a code outside the applications' range
/// (draft section 4.4).
pub const NO_CODE: u64 = u64::MAX;

/// Maps an application's code to the code on the wire.
pub fn to_wire(code: u32) -> u64 {
    let code = u64::from(code);
    // Every 31st number is skipped, because HTTP/3 reserves it for GREASE (RFC 9114 section 8.1).
    FIRST + code + code / 0x1e
}

/// Maps a code on the wire to an application's code, or to [`NO_CODE`].
pub fn from_wire(number: u64) -> u64 {
    let is_reserved = number >= 0x21 && (number - 0x21).is_multiple_of(0x1f);
    if !(FIRST..=LAST).contains(&number) || is_reserved {
        return NO_CODE;
    }
    let shifted = number - FIRST;
    shifted - shifted / 0x1f
}

const FIRST: u64 = 0x52e4_a40f_a8db;
const LAST: u64 = 0x52e5_ac98_3162;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_are_mapped_as_in_the_drafts_table() {
        assert_eq!(to_wire(0), FIRST);
        assert_eq!(to_wire(u32::MAX), LAST);
        // draft-02 section 8.5 has codes of eight bits. This is the last of them.
        assert_eq!(to_wire(0xff), 0x52e4_a40f_a9e2);
        for code in (0..2_000).chain([u32::MAX - 1, u32::MAX]) {
            assert_eq!(from_wire(to_wire(code)), u64::from(code));
        }
    }

    #[test]
    fn other_codes_are_not_application_codes() {
        // The list has the numbers that draft-02 section 8.5 skips.
        for number in [
            0,
            0x10c,
            FIRST - 1,
            LAST + 1,
            SESSION_GONE.0,
            0x52e4_a40f_a8f9,
            0x52e4_a40f_a9d2,
            (1 << 62) - 1,
        ] {
            assert_eq!(from_wire(number), NO_CODE, "{number:#x}");
        }
    }
}
