//! The codings that a client accepts: the field Accept-Encoding (RFC 9110 section 12.5.3).

/// A content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Coding {
    Zstd,
    Brotli,
    Gzip,
}

impl Coding {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    pub fn from_name(name: &[u8]) -> Option<Self> {
        let all = [
            (&b"zstd"[..], Self::Zstd),
            (b"br", Self::Brotli),
            (b"gzip", Self::Gzip),
            // An alias (RFC 9110 section 8.4.1.3).
            (b"x-gzip", Self::Gzip),
        ];
        let found = all
            .iter()
            .find(|(known, _)| name.eq_ignore_ascii_case(known));
        found.map(|&(_, coding)| coding)
    }
}

/// Returns those of the `offered` codings that the client accepts and does not rank below `identity`. The client's
/// weights order them, and where these are equal, the order of `offered`.
///
/// `value` is the value of Accept-Encoding. A member with an invalid weight is ignored.
pub fn accepted(value: &[u8], offered: &[Coding]) -> Vec<Coding> {
    let mut stated: [Option<u16>; 3] = [None; 3];
    let (mut any, mut identity) = (None, None);
    for member in value.split(|&byte| byte == b',') {
        let mut parts = member
            .splitn(2, |&byte| byte == b';')
            .map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let weight = match parts.next() {
            None => Some(WEIGHT_MAX),
            Some(parameter) => weight(parameter),
        };
        let Some(weight) = weight else {
            continue;
        };
        let slot = match Coding::from_name(name) {
            Some(coding) => &mut stated[coding as usize],
            None if name == b"*" => &mut any,
            None if name.eq_ignore_ascii_case(b"identity") => &mut identity,
            None => continue,
        };
        // The first member about a coding counts.
        slot.get_or_insert(weight);
    }
    let least = identity.unwrap_or(0).max(1);
    let weight_of = |coding: Coding| stated[coding as usize].or(any).unwrap_or(0);
    let mut found: Vec<_> = offered
        .iter()
        .copied()
        .filter(|&coding| weight_of(coding) >= least)
        .collect();
    // The sort is stable.
    found.sort_by_key(|&coding| std::cmp::Reverse(weight_of(coding)));
    found
}

/// Parses `q=0.5` to thousandths (RFC 9110 section 12.4.2).
fn weight(parameter: &[u8]) -> Option<u16> {
    let (name, value) = match parameter {
        [b'q' | b'Q', rest @ ..] => rest.trim_ascii_start().split_first()?,
        _ => return None,
    };
    if *name != b'=' {
        return None;
    }
    let (whole, fraction) = match value.trim_ascii() {
        [whole] | [whole, b'.'] => (whole, &[][..]),
        [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (whole, fraction),
        _ => return None,
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |at: usize| fraction.get(at).map_or(0, |digit| u16::from(digit - b'0'));
    let thousandths = digit(0) * 100 + digit(1) * 10 + digit(2);
    match whole {
        b'0' => Some(thousandths),
        b'1' if thousandths == 0 => Some(WEIGHT_MAX),
        _ => None,
    }
}

const WEIGHT_MAX: u16 = 1000;

#[cfg(test)]
mod tests {
    use super::Coding::{Brotli, Gzip, Zstd};
    use super::*;

    #[test]
    fn weights_order_the_codings_and_the_servers_order_decides_between_equals() {
        for (value, expected) in [
            ("gzip, deflate, br, zstd", &[Zstd, Brotli, Gzip][..]),
            ("gzip;q=1.0, br;q=0.9", &[Gzip, Brotli]),
            ("gzip ; q=0.5 ,\tBR;Q=0.501", &[Brotli, Gzip]),
            ("x-gzip", &[Gzip]),
            ("*", &[Zstd, Brotli, Gzip]),
            ("br;q=0, *", &[Zstd, Gzip]),
            ("*;q=0, gzip", &[Gzip]),
            ("gzip;q=0", &[]),
            ("identity", &[]),
            ("", &[]),
            ("identity;q=0.5, gzip;q=0.4, br;q=0.5", &[Brotli]),
            ("identity;q=0, gzip;q=0.001", &[Gzip]),
            // The first of two members counts.
            ("gzip;q=0, gzip", &[]),
            // Invalid weights.
            ("gzip;q=2", &[]),
            ("gzip;q=1.001", &[]),
            ("gzip;q=0.1234", &[]),
            ("gzip;q", &[]),
            ("gzip;level=1", &[]),
            ("gzip;q=1.000;x=1", &[]),
        ] {
            assert_eq!(
                accepted(value.as_bytes(), &[Zstd, Brotli, Gzip]),
                expected,
                "{value}"
            );
        }
        assert_eq!(accepted(b"zstd, br, gzip", &[Brotli, Gzip]), [Brotli, Gzip]);
    }
}
