//! Decodes the chunked transfer coding (RFC 9112 section 7.1).

use bytes::{Buf, BytesMut};

use super::header_section_end::{Bounds, Scan};
use super::limits::Limits;
use super::request_body::Pieces;
use crate::response_errors::Refusal;

/// The decoder of one request's content. It checks chunk extensions and trailers and drops them, because no extension
/// is defined, and ASGI has no trailers of requests.
#[derive(Debug, Default)]
pub(super) struct Chunked {
    state: State,
    /// The number of bytes of chunk extensions so far. Without a limit, a client could send extensions for ever and
    /// never send content.
    extension_bytes: usize,
}

#[derive(Debug)]
enum State {
    /// In the digits of a size; the fields have their value and their number so far.
    Size {
        size: u64,
        digits: u8,
    },
    /// Behind a semicolon. Quoted strings need no state of their own, because only CR LF ends the line.
    Extension {
        size: u64,
    },
    /// Behind the CR of a chunk's first line.
    SizeEnd {
        size: u64,
    },
    Data {
        left: u64,
    },
    /// Behind the data: CR, then LF.
    DataEnd {
        has_cr: bool,
    },
    Trailers(Scan),
}

impl Default for State {
    fn default() -> Self {
        Self::Size { size: 0, digits: 0 }
    }
}

impl Chunked {
    /// Moves content from `input` to `pieces`. Returns true at the end of the content.
    pub fn decode(
        &mut self,
        input: &mut BytesMut,
        pieces: &mut Pieces,
        limits: &Limits,
    ) -> Result<bool, Refusal> {
        while !input.is_empty() {
            match &mut self.state {
                State::Data { left } => {
                    let size =
                        usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
                    pieces.add(input.split_to(size));
                    *left -= size as u64;
                    if *left == 0 {
                        self.state = State::DataEnd { has_cr: false };
                    }
                }
                State::Trailers(scan) => {
                    let bounds = Bounds {
                        bytes: limits.header_bytes,
                        lines: limits.header_fields,
                    };
                    let found = scan.find(input, bounds);
                    let Some(size) = found.map_err(|excess| excess.refusal())? else {
                        return Ok(false);
                    };
                    check_trailers(&input[..size], scan.lines)?;
                    input.advance(size);
                    return Ok(true);
                }
                _ => {
                    let byte = input.get_u8();
                    self.line(byte)?;
                }
            }
        }
        Ok(false)
    }

    /// Reads a byte of a chunk's first line, or of the end of its data.
    fn line(&mut self, byte: u8) -> Result<(), Refusal> {
        let next = match (&self.state, byte) {
            // A size has at least one digit, no sign, no "0x", and no white space (RFC 9112 section 7.1). The number of
            // digits is limited, also for leading zeros, because a client could send them for ever.
            (&State::Size { size, digits }, _) if byte.is_ascii_hexdigit() => {
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                if digits == SIZE_DIGITS_MAX {
                    return Err(Refusal::new(400, "the size of a chunk is too large"));
                }
                State::Size {
                    size: size << 4 | u64::from(digit),
                    digits: digits + 1,
                }
            }
            (&State::Size { size, digits: 1.. }, b'\r') => State::SizeEnd { size },
            (&State::Size { size, digits: 1.. }, b';') => State::Extension { size },
            (&State::Extension { size }, b'\r') => State::SizeEnd { size },
            (&State::Extension { size }, b'\t' | b' '..=b'~' | 0x80..) => {
                self.extension_bytes += 1;
                if self.extension_bytes > EXTENSION_BYTES_MAX {
                    return Err(Refusal::new(400, "the chunk extensions are too long"));
                }
                State::Extension { size }
            }
            (State::SizeEnd { size: 0 }, b'\n') => State::Trailers(Scan::default()),
            (&State::SizeEnd { size }, b'\n') => State::Data { left: size },
            (State::DataEnd { has_cr: false }, b'\r') => State::DataEnd { has_cr: true },
            (State::DataEnd { has_cr: true }, b'\n') => State::default(),
            (State::DataEnd { .. }, _) => {
                return Err(Refusal::new(400, "a chunk is longer than its size"));
            }
            _ => return Err(Refusal::new(400, "the size of a chunk is malformed")),
        };
        self.state = next;
        Ok(())
    }
}

fn check_trailers(section: &[u8], lines: usize) -> Result<(), Refusal> {
    if lines == 0 {
        return Ok(());
    }
    let mut fields = vec![httparse::EMPTY_HEADER; lines];
    match httparse::parse_headers(section, &mut fields) {
        Ok(httparse::Status::Complete((size, _))) if size == section.len() => Ok(()),
        _ => Err(Refusal::new(400, "the trailers are malformed")),
    }
}

/// The maximum number of digits of a chunk's size: no real chunk has 2^60 bytes or more.
const SIZE_DIGITS_MAX: u8 = 15;
/// The maximum number of bytes of chunk extensions in all chunks of a request.
const EXTENSION_BYTES_MAX: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    type Decoded = Result<(Vec<u8>, bool, usize), u16>;

    /// Returns the content, true if it has ended, and the number of bytes behind it. The input arrives in pieces of
    /// `size` bytes.
    fn decode_in(input: &[u8], size: usize) -> Decoded {
        let limits = Limits {
            header_bytes: 64,
            header_fields: 2,
            ..Limits::default()
        };
        let mut decoder = Chunked::default();
        let mut pieces = Pieces::default();
        let mut buffer = BytesMut::new();
        let mut is_ended = false;
        for piece in input.chunks(size) {
            buffer.extend_from_slice(piece);
            if !is_ended {
                let decoded = decoder.decode(&mut buffer, &mut pieces, &limits);
                is_ended = decoded.map_err(|refusal| refusal.status)?;
            }
        }
        Ok((pieces.take().concat(), is_ended, buffer.len()))
    }

    fn decode(input: impl AsRef<[u8]>) -> Decoded {
        let input = input.as_ref();
        let whole = decode_in(input, input.len().max(1));
        for size in [1, 2, 3] {
            assert_eq!(decode_in(input, size), whole, "{}", input.escape_ascii());
        }
        whole
    }

    fn ended(content: &str, left: usize) -> Decoded {
        Ok((content.into(), true, left))
    }

    #[test]
    fn chunks_are_joined_however_they_arrive() {
        assert_eq!(decode("0\r\n\r\n"), ended("", 0));
        assert_eq!(decode("5\r\nhello\r\n0\r\n\r\nGET"), ended("hello", 3));
        assert_eq!(
            decode("3\r\nhel\r\n02\r\nlo\r\n000\r\n\r\n"),
            ended("hello", 0)
        );
        assert_eq!(
            decode("a\r\n0123456789\r\n0\r\n\r\n"),
            ended("0123456789", 0)
        );
        assert_eq!(
            decode("A\r\n0123456789\r\n0\r\n\r\n"),
            ended("0123456789", 0)
        );
        assert_eq!(decode("5\r\nhel"), Ok((b"hel".to_vec(), false, 0)));
        assert_eq!(
            decode("5\r\nhello\r\n0\r\n"),
            Ok((b"hello".to_vec(), false, 0))
        );
    }

    #[test]
    fn extensions_and_trailers_are_dropped() {
        assert_eq!(
            decode("5;a=b;c=\"d\u{e9}\"\r\nhello\r\n0;x\r\n\r\n"),
            ended("hello", 0)
        );
        assert_eq!(decode("0\r\nA: b\r\nC: d\r\n\r\nrest"), ended("", 4));
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for input in [
            "\r\n0\r\n\r\n",
            "\n",
            "g\r\n",
            " 5\r\n",
            "5 \r\n",
            "5\t;a\r\n",
            "+5\r\n",
            "-5\r\n",
            "0x5\r\n",
            ";a\r\n",
            "5\n",
            "5\r5",
            "5\r\r\n",
            "5;a\n",
            "5;a\rb\r\n",
            "5;a\0\r\n",
            "5;a\x7f\r\n",
            // The data is longer or shorter than its size, or CR LF does not follow it.
            "5\r\nhello!\r\n",
            "5\r\nhell\r\n0\r\n\r\n",
            "5\r\nhello\n0\r\n",
            "5\r\nhello\r5",
            "5\r\nhello0\r\n\r\n",
            // The size has too many digits.
            "1000000000000000\r\n",
            "0000000000000005\r\n",
            "fffffffffffffffff\r\n",
            // The trailers are malformed.
            "0\r\n\n",
            "0\r\nA: b\n\r\n",
            "0\r\nA : b\r\n\r\n",
            "0\r\n A: b\r\n\r\n",
            "0\r\nA\r\n\r\n",
            "0\r\nA: b\0\r\n\r\n",
        ] {
            assert_eq!(decode(input), Err(400), "{input:?}");
        }
        for input in [
            "0\r\nA: b\r\nC: d\r\nE: f\r\n\r\n".to_owned(),
            format!("0\r\nA: {}\r\n\r\n", "b".repeat(64)),
        ] {
            assert_eq!(decode(&input), Err(431), "{input:?}");
        }
    }

    #[test]
    fn extensions_have_a_bound_of_all_chunks_together() {
        let chunk = format!("1;{}\r\na\r\n", "x".repeat(1023));
        let fit = EXTENSION_BYTES_MAX / 1023;
        let input = chunk.repeat(fit);
        assert!(matches!(
            decode_in(input.as_bytes(), 100),
            Ok((_, false, 0))
        ));
        let input = chunk.repeat(fit + 1);
        assert_eq!(decode_in(input.as_bytes(), 100), Err(400));
    }
}
