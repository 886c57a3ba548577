//! Reads the two dates of a certificate (RFC 5280 section 4.1.2.5): for the one case in which webpki does not check
//! them, and for applications that check a certificate before use.
//!
//! This is no certificate parser: it skips the fields before the dates and reads nothing after them.

use std::time::Duration;

use rustls::{CertificateError, Error, pki_types::UnixTime};

/// The validity period of a certificate, including its first and its last second.
pub(in crate::tls) struct Validity {
    not_before: UnixTime,
    not_after: UnixTime,
}

impl Validity {
    pub fn of(certificate: &[u8]) -> Result<Self, Error> {
        Self::parse(certificate).ok_or_else(|| CertificateError::BadEncoding.into())
    }

    pub fn check(&self, now: UnixTime) -> Result<(), Error> {
        if now.as_secs() < self.not_before.as_secs() {
            let not_before = self.not_before;
            return Err(CertificateError::NotValidYetContext {
                time: now,
                not_before,
            }
            .into());
        }
        if now.as_secs() > self.not_after.as_secs() {
            let not_after = self.not_after;
            return Err(CertificateError::ExpiredContext {
                time: now,
                not_after,
            }
            .into());
        }
        Ok(())
    }

    fn seconds(&self) -> (u64, u64) {
        (self.not_before.as_secs(), self.not_after.as_secs())
    }

    fn parse(certificate: &[u8]) -> Option<Self> {
        let (certificate, _) = element(certificate, SEQUENCE)?;
        let (mut tbs, _) = element(certificate, SEQUENCE)?;
        if let Some((_, rest)) = element(tbs, VERSION) {
            tbs = rest;
        }
        let (_serial, rest) = element(tbs, INTEGER)?;
        let (_signature, rest) = element(rest, SEQUENCE)?;
        let (_issuer, rest) = element(rest, SEQUENCE)?;
        let (validity, _) = element(rest, SEQUENCE)?;
        let (not_before, rest) = time(validity)?;
        let (not_after, _) = time(rest)?;
        Some(Self {
            not_before,
            not_after,
        })
    }
}

/// The first and the last second in which a DER certificate is valid, since 1970. `None` if it is not a certificate.
pub fn validity(certificate: &[u8]) -> Option<(u64, u64)> {
    Validity::parse(certificate).map(|validity| validity.seconds())
}

/// The content of the DER element at the start of `input`, and the bytes after it. `None` if it has another tag.
fn element(input: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = input.split_first()?;
    let (&length, rest) = rest.split_first()?;
    if first != tag {
        return None;
    }
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (
                bytes
                    .iter()
                    .fold(0, |sum, &byte| sum << 8 | usize::from(byte)),
                rest,
            )
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

fn time(input: &[u8]) -> Option<(UnixTime, &[u8])> {
    let (digits, century, rest) = match element(input, UTC_TIME) {
        // RFC 5280 section 4.1.2.5.1: a year of two digits is one of 1950 to 2049.
        Some((text, rest)) => {
            let year = number(text.get(..2)?)?;
            (text, if year < 50 { 2000 } else { 1900 }, rest)
        }
        None => {
            let (text, rest) = element(input, GENERALIZED_TIME)?;
            (text.get(2..)?, number(text.get(..2)?)? * 100, rest)
        }
    };
    // The format is YYMMDDHHMMSSZ.
    if digits.len() != 13 || digits[12] != b'Z' {
        return None;
    }
    let field = |at: usize| number(&digits[at..at + 2]);
    let days = days_since_1970(century + field(0)?, field(2)?, field(4)?)?;
    let seconds = days * 86_400 + field(6)? * 3_600 + field(8)? * 60 + field(10)?;
    // A time before 1970 counts as 1970.
    let seconds = u64::try_from(seconds).unwrap_or(0);
    Some((
        UnixTime::since_unix_epoch(Duration::from_secs(seconds)),
        rest,
    ))
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |sum, digit| {
        digit
            .is_ascii_digit()
            .then(|| sum * 10 + i64::from(digit - b'0'))
    })
}

/// The number of days since 1970 in the Gregorian calendar. In the computation a year begins in March, so that a leap
/// day is its last day.
fn days_since_1970(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    Some(year * 365 + leap_days + day_of_year - DAYS_BEFORE_1970)
}

const DAYS_BEFORE_1970: i64 = 719_468;

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_across_leap_years() {
        assert_eq!(days_since_1970(1970, 1, 1), Some(0));
        assert_eq!(days_since_1970(2000, 2, 29), Some(11_016));
        assert_eq!(days_since_1970(2000, 3, 1), Some(11_017));
        assert_eq!(days_since_1970(2026, 11, 21), Some(20_778));
        assert_eq!(days_since_1970(2026, 13, 1), None);
    }

    #[test]
    fn both_forms_of_time_are_read() {
        let utc = |text: &str| [&[UTC_TIME, text.len() as u8], text.as_bytes()].concat();
        let general =
            |text: &str| [&[GENERALIZED_TIME, text.len() as u8], text.as_bytes()].concat();
        let seconds = |der: &[u8]| time(der).map(|(at, _)| at.as_secs());
        assert_eq!(seconds(&utc("700101000001Z")), Some(1));
        assert_eq!(seconds(&utc("491231235959Z")), Some(2_524_607_999));
        assert_eq!(seconds(&utc("500101000000Z")), Some(0), "1950");
        assert_eq!(seconds(&general("20500101000000Z")), Some(2_524_608_000));
        assert_eq!(seconds(&general("20500101000000+")), None);
        assert_eq!(seconds(&utc("7001x1000001Z")), None);
    }

    #[test]
    fn dates_of_a_certificate_are_found_and_truncation_never_panics() {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2024, 2, 29);
        params.not_after = rcgen::date_time_ymd(2060, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let der = certificate.der();
        let validity = Validity::of(der).unwrap();
        assert_eq!(validity.not_before.as_secs(), 1_709_164_800);
        assert_eq!(validity.not_after.as_secs(), 2_840_140_800);
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        assert!(validity.check(at(1_709_164_799)).is_err());
        assert!(validity.check(at(1_709_164_800)).is_ok());
        assert!(validity.check(at(2_840_140_801)).is_err());
        for length in 0..der.len() {
            let _ = Validity::of(&der[..length]);
        }
    }
}
