//! Finds the ends of records in a stream of TLS over TCP, without decrypting them.
//!
//! A TLS library that reads while no complete record has arrived raises an error, which is expensive in Python.
//! [`RecordBoundaries`] shows beforehand if a read can succeed. A stream that is not TLS is passed to the library,
//! which reports the error.

/// Follows the record headers (RFC 8446 section 5.1; RFC 5246 section 6.2.1) of a byte stream that arrives in pieces.
#[derive(Debug, Default)]
pub struct RecordBoundaries {
    /// The number of bytes that were passed in so far.
    seen: u64,
    /// The offset in the stream at which the last complete record ends.
    whole_until: u64,
    /// The offset after the record whose header was read last, and whose content is incomplete; `None` inside a
    /// header.
    next_end: Option<u64>,
    /// The first `header_bytes` bytes of a header that is incomplete.
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// True if a header was invalid: the stream is not TLS, and no further boundaries are found.
    lost: bool,
}

impl RecordBoundaries {
    /// Passes in the next bytes of the stream.
    pub fn push(&mut self, mut bytes: &[u8]) {
        if self.lost {
            self.seen += bytes.len() as u64;
            return;
        }
        while !bytes.is_empty() {
            let Some(end) = self.next_end else {
                bytes = self.push_header(bytes);
                continue;
            };
            let step = (end - self.seen).min(bytes.len() as u64);
            self.seen += step;
            bytes = &bytes[step as usize..];
            self.end_record(end);
        }
    }

    /// True if a reader that has taken all but the last `left` bytes can read a complete record.
    ///
    /// Also true if the stream is not TLS, because only the TLS library can report that error.
    pub fn has_whole_record(&self, left: usize) -> bool {
        self.whole_bytes(left) > 0
    }

    /// Returns the number of bytes that belong to complete records, among the last `left` bytes, which the reader has
    /// not taken yet.
    pub fn whole_bytes(&self, left: usize) -> usize {
        if self.lost {
            return left;
        }
        let taken = self.seen - left as u64;
        self.whole_until.saturating_sub(taken) as usize
    }

    /// True if a reader that has taken all but the last `left` bytes has taken a part of a record.
    ///
    /// The record that the TLS library returns next is then larger than the part of it in these `left` bytes.
    pub fn is_inside_record(&self, left: usize) -> bool {
        let taken = self.seen - left as u64;
        self.lost || taken != self.whole_until
    }

    fn push_header<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let step = (HEADER_BYTES - self.header_bytes).min(bytes.len());
        self.header[self.header_bytes..][..step].copy_from_slice(&bytes[..step]);
        self.header_bytes += step;
        self.seen += step as u64;
        if self.header_bytes == HEADER_BYTES {
            self.header_bytes = 0;
            let [content_type, major, _, high, low] = self.header;
            let length = u64::from(u16::from_be_bytes([high, low]));
            if CONTENT_TYPES.contains(&content_type)
                && major == VERSION_MAJOR
                && length <= CIPHERTEXT_BYTES_MAX
            {
                let end = self.seen + length;
                self.next_end = Some(end);
                self.end_record(end);
            } else {
                self.lost = true;
                self.seen += (bytes.len() - step) as u64;
                return &[];
            }
        }
        &bytes[step..]
    }

    fn end_record(&mut self, end: u64) {
        if self.seen == end {
            self.whole_until = end;
            self.next_end = None;
        }
    }
}

const HEADER_BYTES: usize = 5;
/// The record types change_cipher_spec, alert, handshake, application_data and heartbeat (RFC 6520).
const CONTENT_TYPES: std::ops::RangeInclusive<u8> = 20..=24;
/// The first byte of legacy_record_version, equal in all versions of TLS.
const VERSION_MAJOR: u8 = 3;
/// The maximum length of a record's content in TLS 1.2 (RFC 5246 section 6.2.3). That of TLS 1.3 is lower.
const CIPHERTEXT_BYTES_MAX: u64 = (1 << 14) + 2048;

#[cfg(test)]
mod tests {
    use super::RecordBoundaries;

    fn record(length: u16) -> Vec<u8> {
        let [high, low] = length.to_be_bytes();
        let mut bytes = vec![23, 3, 3, high, low];
        bytes.resize(5 + usize::from(length), 0xEE);
        bytes
    }

    #[test]
    fn a_record_is_whole_with_its_last_byte() {
        for piece in [1, 2, 3, 5, 7, 1000] {
            let mut boundaries = RecordBoundaries::default();
            let stream = [record(9), record(0), record(300)].concat();
            let mut fed = 0;
            for bytes in stream.chunks(piece) {
                boundaries.push(bytes);
                fed += bytes.len();
                // The reader has taken no bytes.
                assert_eq!(
                    boundaries.has_whole_record(fed),
                    fed >= 14,
                    "{fed} in {piece}s"
                );
                // The reader has taken the first two records, 19 bytes.
                if fed > 19 {
                    assert_eq!(boundaries.has_whole_record(fed - 19), fed >= stream.len());
                }
            }
            assert!(!boundaries.has_whole_record(0));
        }
    }

    #[test]
    fn an_unfinished_record_does_not_count() {
        let mut boundaries = RecordBoundaries::default();
        let stream = [record(10), record(20)].concat();
        boundaries.push(&stream[..39]);
        assert_eq!(boundaries.whole_bytes(39), 15);
        assert_eq!(boundaries.whole_bytes(30), 6);
        assert_eq!(boundaries.whole_bytes(24), 0);
        boundaries.push(&stream[39..]);
        assert_eq!(boundaries.whole_bytes(25), 25);
    }

    #[test]
    fn a_stream_inside_a_record_is_reported_as_such() {
        let mut boundaries = RecordBoundaries::default();
        boundaries.push(&record(100));
        assert!(!boundaries.is_inside_record(0));
        boundaries.push(&record(100)[..50]);
        assert!(!boundaries.is_inside_record(50));
        assert!(boundaries.is_inside_record(0));
    }

    #[test]
    fn bytes_that_are_not_tls_are_passed_to_the_library() {
        for garbage in [
            &b"GET / HTTP/1.1\r\n"[..],
            &[22, 2, 0, 0, 1, 0],
            &[22, 3, 1, 0xFF, 0xFF],
        ] {
            let mut boundaries = RecordBoundaries::default();
            boundaries.push(garbage);
            assert!(boundaries.has_whole_record(garbage.len()));
            boundaries.push(&record(1));
            assert!(boundaries.has_whole_record(1));
            assert!(!boundaries.has_whole_record(0));
        }
    }
}
