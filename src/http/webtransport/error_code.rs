//! Error codes: the protocol's own, and those of applications, which are mapped to a range of HTTP/3's codes.
//!
//! Other modules decide when a code is sent.

use uringcore_h3::Code;

/// draft-ietf-webtrans-http3 section 9.5. The numbers are the same in all drafts that define them.
pub const FLOW_CONTROL_ERROR: Code = Code(0x045d_4487);
pub const ALPN_ERROR: Code = Code(0x0817_b3dd);
pub const SESSION_GONE: Code = Code(0x170d_7b68);
pub const BUFFERED_STREAM_REJECTED: Code = Code(0x3994_bd84);

/// Stands for a code outside the applications' range, with which the peer reset or stopped a stream (section
/// 4.4).
pub const NO_CODE: u64 = u64::MAX;

/// Maps an application's code to the wire.
pub fn to_wire(code: u32) -> u64 {
    let code = u64::from(code);
    // Every thirty-first number is reserved by HTTP/3 for GREASE (RFC 9114 section 8.1) and skipped.
    FIRST + code + code / 0x1e
}

/// Maps a code on the wire to an application's code, or [`NO_CODE`].
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
        // draft-02 section 8.5 names the end of its range of eight bits.
        assert_eq!(to_wire(0xff), 0x52e4_a40f_a9e2);
        for code in (0..2_000).chain([u32::MAX - 1, u32::MAX]) {
            assert_eq!(from_wire(to_wire(code)), u64::from(code));
        }
    }

    #[test]
    fn other_codes_are_not_application_codes() {
        // Including those that draft-02 section 8.5 skips.
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
