//! Determines the length of a request's content (RFC 9112 section 6.3), and refuses requests for which a proxy could
//! determine another length.

use crate::response_errors::Refusal;

/// The way in which the end of a request's content is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Framing {
    #[default]
    None,
    Length(u64),
    Chunked,
}

/// The values so far of the two fields that determine the length.
#[derive(Debug, Default)]
pub(super) struct LengthFields {
    length: Option<u64>,
    codings: Codings,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Codings {
    #[default]
    None,
    Chunked,
    Unsupported,
    /// `chunked` is not the last one, or is repeated.
    Misplaced,
}

impl LengthFields {
    pub fn content_length(&mut self, value: &[u8]) -> Result<(), Refusal> {
        let length = decimal(value).ok_or(NOT_A_LENGTH)?;
        // RFC 9110 section 8.6 permits a recipient to accept a repeated value. It is refused here, because a proxy in
        // front may have used another one of the values.
        match self.length.replace(length) {
            None => Ok(()),
            Some(_) => Err(Refusal::new(400, "content-length is repeated")),
        }
    }

    pub fn transfer_encoding(&mut self, value: &[u8]) {
        for coding in value.split(|&byte| byte == b',') {
            let is_chunked = trimmed(coding).eq_ignore_ascii_case(b"chunked");
            self.codings = match (&self.codings, is_chunked) {
                (Codings::None, true) => Codings::Chunked,
                (Codings::None, false) => Codings::Unsupported,
                (Codings::Unsupported, _) => Codings::Unsupported,
                (Codings::Chunked | Codings::Misplaced, _) => Codings::Misplaced,
            };
        }
    }

    pub fn framing(&self, is_http10: bool) -> Result<Framing, Refusal> {
        match (&self.codings, self.length) {
            (Codings::None, None) => Ok(Framing::None),
            (Codings::None, Some(length)) => Ok(Framing::Length(length)),
            // HTTP/1.0 has no transfer codings, and an intermediary of that version may have forwarded the field
            // without applying it (RFC 9112 section 6.1).
            (_, _) if is_http10 => Err(Refusal::new(400, "HTTP/1.0 has no transfer-encoding")),
            // Both fields together may be an attempt at request smuggling (RFC 9112 section 6.3).
            (_, Some(_)) => Err(Refusal::new(
                400,
                "both transfer-encoding and content-length are present",
            )),
            (Codings::Chunked, None) => Ok(Framing::Chunked),
            // The status is that of RFC 9112 section 6.1.
            (Codings::Unsupported, None) => {
                Err(Refusal::new(501, "the transfer coding is not supported"))
            }
            // The length cannot be determined (RFC 9112 section 6.3).
            (Codings::Misplaced, None) => Err(Refusal::new(
                400,
                "transfer-encoding does not end in one chunked",
            )),
        }
    }
}

/// Removes white space around a value (RFC 9110 section 5.6.3).
pub(super) fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Parses a number that consists of digits only: no sign, no list, no white space.
pub(super) fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

const NOT_A_LENGTH: Refusal = Refusal::new(400, "content-length is not a number");

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lengths: &[&str], codings: &[&str], is_http10: bool) -> Result<Framing, u16> {
        let mut fields = LengthFields::default();
        for length in lengths {
            fields
                .content_length(length.as_bytes())
                .map_err(|refusal| refusal.status)?;
        }
        for coding in codings {
            fields.transfer_encoding(coding.as_bytes());
        }
        fields.framing(is_http10).map_err(|refusal| refusal.status)
    }

    #[test]
    fn a_length_is_digits_and_occurs_once() {
        assert_eq!(of(&[], &[], false), Ok(Framing::None));
        assert_eq!(of(&["0"], &[], false), Ok(Framing::Length(0)));
        assert_eq!(of(&["007"], &[], false), Ok(Framing::Length(7)));
        let largest = u64::MAX.to_string();
        assert_eq!(of(&[&largest], &[], false), Ok(Framing::Length(u64::MAX)));
        for bad in [
            "",
            "+5",
            "-5",
            "5 5",
            "5,5",
            "5, 5",
            "0x5",
            "5.0",
            "5e1",
            "\u{665}",
            "18446744073709551616",
            "99999999999999999999999999",
        ] {
            assert_eq!(of(&[bad], &[], false), Err(400), "{bad:?}");
        }
        assert_eq!(of(&["5", "5"], &[], false), Err(400));
        assert_eq!(of(&["5", "6"], &[], false), Err(400));
    }

    #[test]
    fn a_transfer_coding_is_chunked_alone() {
        assert_eq!(of(&[], &["chunked"], false), Ok(Framing::Chunked));
        assert_eq!(of(&[], &[" Chunked\t"], false), Ok(Framing::Chunked));
        for unsupported in [
            "gzip, chunked",
            "gzip",
            "identity",
            "",
            "chunked;q=1",
            "\x0bchunked",
        ] {
            assert_eq!(of(&[], &[unsupported], false), Err(501), "{unsupported:?}");
        }
        for misplaced in [
            "chunked, gzip",
            "chunked, chunked",
            "chunked,",
            "chunked, identity",
        ] {
            assert_eq!(of(&[], &[misplaced], false), Err(400), "{misplaced:?}");
        }
        assert_eq!(of(&[], &["chunked", "chunked"], false), Err(400));
        assert_eq!(of(&[], &["gzip", "chunked"], false), Err(501));
    }

    #[test]
    fn two_lengths_are_none() {
        assert_eq!(of(&["5"], &["chunked"], false), Err(400));
        assert_eq!(of(&["0"], &["identity"], false), Err(400));
        assert_eq!(of(&[], &["chunked"], true), Err(400));
        assert_eq!(of(&["5"], &[], true), Ok(Framing::Length(5)));
    }
}
