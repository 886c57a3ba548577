//! Finds the end of a header section in the input, and checks the ends of its lines.

use crate::response_errors::Refusal;

/// The search for the empty line that ends a section. The search continues where the last piece of input ended, so
/// every byte is searched once, even if the input arrives byte by byte.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The number of bytes that were searched.
    seen: usize,
    /// The position at which the current line begins.
    line: usize,
    /// The number of complete lines.
    pub lines: usize,
}

/// The maximum size of a section.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub bytes: usize,
    pub lines: usize,
}

/// The reason for which a section is refused before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Excess {
    Bytes,
    Lines,
    /// A line ends in LF without CR. RFC 9112 section 2.2 permits a recipient to accept that. It is refused here,
    /// because a proxy that does not accept it would find other lines than this server.
    BareLf,
}

impl Excess {
    pub fn refusal(self) -> Refusal {
        match self {
            Self::Bytes => Refusal::new(431, "the header section is too large"),
            Self::Lines => Refusal::new(431, "the header section has too many fields"),
            Self::BareLf => Refusal::new(400, "a line ends without a carriage return"),
        }
    }
}

impl Scan {
    /// Returns the size of the section at the beginning of `input`, including its empty line. Returns `None` if the
    /// section is incomplete.
    pub fn find(&mut self, input: &[u8], bounds: Bounds) -> Result<Option<usize>, Excess> {
        while let Some(at) = memchr::memchr(b'\n', &input[self.seen..]) {
            let end = self.seen + at;
            let length = end - self.line;
            if length == 0 || input[end - 1] != b'\r' {
                return Err(Excess::BareLf);
            }
            if end + 1 > bounds.bytes {
                return Err(Excess::Bytes);
            }
            self.seen = end + 1;
            self.line = end + 1;
            if length == 1 {
                return Ok(Some(end + 1));
            }
            self.lines += 1;
            if self.lines > bounds.lines {
                return Err(Excess::Lines);
            }
        }
        self.seen = input.len();
        match input.len() >= bounds.bytes {
            true => Err(Excess::Bytes),
            false => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        bytes: 32,
        lines: 3,
    };

    type Found = Result<Option<usize>, Excess>;

    fn whole(input: &[u8]) -> Found {
        Scan::default().find(input, BOUNDS)
    }

    /// Searches input that arrives byte by byte. Returns the first result other than `None`.
    fn cut(input: &[u8]) -> Found {
        let mut scan = Scan::default();
        for end in 0..=input.len() {
            match scan.find(&input[..end], BOUNDS) {
                Ok(None) => {}
                decided => return decided,
            }
        }
        Ok(None)
    }

    #[test]
    fn the_end_is_found_however_the_input_is_cut() {
        let cases: [(&[u8], Found); 9] = [
            (b"", Ok(None)),
            (b"\r\n", Ok(Some(2))),
            (b"a\r\n\r\nrest", Ok(Some(5))),
            (b"a\r\nb\r\n\r", Ok(None)),
            (b"a\r\nb\r\nc\r\n\r\n", Ok(Some(11))),
            (b"a\r\nb\r\nc\r\nd\r\n\r\n", Err(Excess::Lines)),
            (b"a\n\r\n", Err(Excess::BareLf)),
            (b"a\r\n\n", Err(Excess::BareLf)),
            (
                b"0123456789012345678901234567890123456789",
                Err(Excess::Bytes),
            ),
        ];
        for (input, expected) in cases {
            assert_eq!(whole(input), expected, "{}", input.escape_ascii());
            assert_eq!(cut(input), expected, "{}", input.escape_ascii());
        }
    }

    #[test]
    fn a_section_of_the_largest_size_is_complete() {
        let mut input = vec![b'a'; 28];
        input.extend_from_slice(b"\r\n\r\n");
        assert_eq!(whole(&input), Ok(Some(32)));
        input.insert(0, b'a');
        assert_eq!(whole(&input), Err(Excess::Bytes));
    }
}
