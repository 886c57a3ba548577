//! The receiving part of one stream: decides how much data a read needs, and when the read is complete.
//!
//! Not here: the source of the data. The caller calls [`StreamReader::take`]. While the result is [`Outcome::Wait`],
//! the caller reads as many bytes from the stream as the reader [lacks](StreamReader::lacks), and [passes them
//! in](StreamReader::receive).

use bytes::BytesMut;

use crate::{Chunks, Received, StreamEnd};

/// The amount of data that a read returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want<'a> {
    /// The data that has arrived, at most this many bytes. Empty at the end of the stream.
    UpTo(usize),
    /// All data up to the end of the stream.
    All,
    Exactly(usize),
    /// All data up to the first occurrence of `separator`, which is included. There may be at most `max` bytes before
    /// it. The separator must not be empty.
    Until {
        separator: &'a [u8],
        max: usize,
    },
}

/// The result of a read.
#[derive(Debug)]
pub enum Outcome {
    Data(Portion),
    /// The read needs more data.
    Wait,
    /// The stream has ended before enough data for `Exactly` or `Until` had arrived. Contains the data before the end.
    Incomplete(Portion),
    /// The first `TooLong` bytes of the data contain no separator. They stay unread.
    TooLong(usize),
    /// The peer has reset the stream (RFC 9000 section 19.4).
    Reset {
        error_code: u64,
    },
}

/// Data that a read has returned, in order.
#[derive(Debug, Default)]
pub struct Portion {
    held: BytesMut,
    fresh: Chunks,
}

impl Portion {
    pub fn len(&self) -> usize {
        self.held.len() + self.fresh.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let fresh = self.fresh.pieces().iter().map(|piece| &piece[..]);
        std::iter::once(&self.held[..]).chain(fresh)
    }
}

/// Data that was received and not returned yet, and the stream's end.
///
/// Bounds: a reader stores only data for a read that is not complete, so no more than that read needs. A read of
/// `UpTo` finds nothing stored, so its data is not copied.
#[derive(Debug, Default)]
pub struct StreamReader {
    held: BytesMut,
    /// Data behind `held`, in the pieces in which it arrived. Each piece keeps its receive buffer in memory.
    fresh: Chunks,
    end: Option<StreamEnd>,
    /// The separator of the last read. It does not begin within the first `searched` bytes of `held`.
    sought: Vec<u8>,
    searched: usize,
}

impl StreamReader {
    /// How many more bytes [`take`](Self::take) may need, after it has returned [`Outcome::Wait`].
    pub fn lacks(&self, want: Want<'_>) -> usize {
        let held = self.held.len() + self.fresh.len();
        let needed = match want {
            Want::UpTo(max) => return max,
            Want::All => return usize::MAX,
            Want::Exactly(count) => count,
            // When this many bytes have arrived, it is certain whether a separator follows within the first `max`
            // bytes.
            Want::Until { separator, max } => max.saturating_add(separator.len()),
        };
        needed.saturating_sub(held)
    }

    pub fn receive(&mut self, received: Received) {
        self.copy_out();
        self.fresh = received.data;
        self.end = received.end;
    }

    /// True if the end of the stream has arrived.
    pub fn is_ended(&self) -> bool {
        self.end.is_some()
    }

    /// True if all data was returned and the stream has ended by a FIN.
    pub fn is_at_eof(&self) -> bool {
        self.end == Some(StreamEnd::Finished) && self.held.is_empty() && self.fresh.is_empty()
    }

    /// Drops the stored data.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Puts bytes that were returned back in front of the stored data.
    pub fn put_back(&mut self, bytes: &[u8]) {
        self.copy_out();
        let behind = std::mem::replace(&mut self.held, BytesMut::from(bytes));
        self.held.extend_from_slice(&behind);
        self.searched = 0;
    }

    pub fn take(&mut self, want: Want<'_>) -> Outcome {
        match want {
            Want::UpTo(max) => self.take_up_to(max),
            Want::All => match self.end {
                Some(StreamEnd::Finished) => Outcome::Data(self.take_whole()),
                _ => self.wait(),
            },
            Want::Exactly(count) => self.take_exactly(count),
            Want::Until { separator, max } => self.take_until(separator, max),
        }
    }

    fn take_up_to(&mut self, max: usize) -> Outcome {
        if self.held.is_empty() && self.fresh.is_empty() {
            return match self.end {
                None if max > 0 => Outcome::Wait,
                Some(StreamEnd::Reset { error_code }) if max > 0 => Outcome::Reset { error_code },
                _ => Outcome::Data(Portion::default()),
            };
        }
        Outcome::Data(self.take_first(max))
    }

    fn take_exactly(&mut self, count: usize) -> Outcome {
        if self.held.len() + self.fresh.len() >= count {
            return Outcome::Data(self.take_first(count));
        }
        self.incomplete()
    }

    fn take_until(&mut self, separator: &[u8], max: usize) -> Outcome {
        self.copy_out();
        // The last read may have been cancelled, and may have had another separator.
        if self.sought != separator {
            self.sought = separator.to_vec();
            self.searched = 0;
        }
        let start = self.searched.min(self.held.len());
        if let Some(at) = find(&self.held[start..], separator) {
            let end = start + at;
            if end > max {
                return Outcome::TooLong(end);
            }
            return Outcome::Data(self.take_first(end + separator.len()));
        }
        // The last bytes may be the beginning of a separator, so they are searched again.
        let known = (self.held.len() + 1).saturating_sub(separator.len());
        if known > max {
            return Outcome::TooLong(known);
        }
        self.searched = known;
        self.incomplete()
    }

    fn incomplete(&mut self) -> Outcome {
        match self.end {
            Some(StreamEnd::Finished) => Outcome::Incomplete(self.take_whole()),
            _ => self.wait(),
        }
    }

    fn wait(&mut self) -> Outcome {
        match self.end {
            Some(StreamEnd::Reset { error_code }) => Outcome::Reset { error_code },
            _ => {
                self.copy_out();
                Outcome::Wait
            }
        }
    }

    fn take_whole(&mut self) -> Portion {
        self.searched = 0;
        Portion {
            held: std::mem::take(&mut self.held),
            fresh: std::mem::take(&mut self.fresh),
        }
    }

    fn take_first(&mut self, count: usize) -> Portion {
        self.searched = 0;
        let held = self.held.split_to(count.min(self.held.len()));
        let fresh = self.fresh.split_to(count - held.len());
        // The program may read the remaining data much later, so it is copied out of its receive buffers.
        self.copy_out();
        Portion { held, fresh }
    }

    /// Copies data out of the buffers in which it was received.
    fn copy_out(&mut self) {
        if self.fresh.is_empty() {
            return;
        }
        let fresh = std::mem::take(&mut self.fresh);
        self.held.reserve(fresh.len());
        for piece in fresh.pieces() {
            self.held.extend_from_slice(piece);
        }
    }
}

fn find(data: &[u8], separator: &[u8]) -> Option<usize> {
    let first = *separator.first()?;
    let mut start = 0;
    while let Some(at) = data[start..].iter().position(|byte| *byte == first) {
        let at = start + at;
        if data[at..].starts_with(separator) {
            return Some(at);
        }
        start = at + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// A fake stream for tests: its data arrives in these pieces, and then it ends.
    struct Source {
        pieces: Vec<&'static str>,
        end: Option<StreamEnd>,
    }

    impl Source {
        fn new(pieces: &[&'static str], end: Option<StreamEnd>) -> Self {
            Self {
                pieces: pieces.iter().rev().copied().collect(),
                end,
            }
        }

        fn next(&mut self, max: usize) -> Received {
            let mut data = Chunks::default();
            if let Some(piece) = self.pieces.pop() {
                let (now, later) = piece.split_at(piece.len().min(max));
                data.append(Bytes::from_static(now.as_bytes()).into());
                if !later.is_empty() {
                    self.pieces.push(later);
                }
            }
            let end = self.end.filter(|_| self.pieces.is_empty());
            Received { data, end }
        }

        /// Passes in pieces until the outcome is not [`Outcome::Wait`].
        fn read(&mut self, stream_reader: &mut StreamReader, want: Want<'_>) -> Outcome {
            loop {
                match stream_reader.take(want) {
                    Outcome::Wait if self.pieces.is_empty() && self.end.is_none() => {
                        return Outcome::Wait;
                    }
                    Outcome::Wait => stream_reader.receive(self.next(stream_reader.lacks(want))),
                    outcome => return outcome,
                }
            }
        }
    }

    fn text(outcome: Outcome) -> String {
        let written = |portion: Portion| {
            let bytes: Vec<u8> = portion.pieces().flatten().copied().collect();
            String::from_utf8(bytes).unwrap()
        };
        match outcome {
            Outcome::Data(portion) => written(portion),
            Outcome::Incomplete(portion) => format!("{}, incomplete", written(portion)),
            other => format!("{other:?}"),
        }
    }

    const LINE: Want<'_> = Want::Until {
        separator: b"\r\n",
        max: 6,
    };

    #[test]
    fn up_to_returns_data_as_it_arrives() {
        let mut source = Source::new(&["ab", "cdefg"], Some(StreamEnd::Finished));
        let mut stream_reader = StreamReader::default();
        let mut read = |want| {
            (
                text(source.read(&mut stream_reader, want)),
                stream_reader.is_at_eof(),
            )
        };
        let expected = |text: &str, is_at_eof| (text.to_owned(), is_at_eof);
        assert_eq!(read(Want::UpTo(100)), expected("ab", false));
        assert_eq!(read(Want::UpTo(3)), expected("cde", false));
        assert_eq!(read(Want::UpTo(0)), expected("", false));
        assert_eq!(read(Want::UpTo(3)), expected("fg", true));
        assert_eq!(read(Want::UpTo(3)), expected("", true));
        assert_eq!(read(Want::All), expected("", true));
    }

    #[test]
    fn all_returns_the_whole_stream_at_its_end() {
        let mut source = Source::new(&["ab", "cd", "ef"], Some(StreamEnd::Finished));
        assert_eq!(
            text(source.read(&mut StreamReader::default(), Want::All)),
            "abcdef"
        );
        let end = Some(StreamEnd::Reset { error_code: 5 });
        let mut source = Source::new(&["ab", "cd"], end);
        let mut stream_reader = StreamReader::default();
        assert_eq!(
            text(source.read(&mut stream_reader, Want::All)),
            "Reset { error_code: 5 }"
        );
        assert_eq!(text(stream_reader.take(Want::UpTo(100))), "abcd");
        assert_eq!(
            text(stream_reader.take(Want::UpTo(100))),
            "Reset { error_code: 5 }"
        );
    }

    #[test]
    fn exactly_leaves_later_bytes_unread() {
        let mut source = Source::new(&["abc", "def", "gh"], Some(StreamEnd::Finished));
        let mut stream_reader = StreamReader::default();
        assert_eq!(
            text(source.read(&mut stream_reader, Want::Exactly(4))),
            "abcd"
        );
        assert_eq!(
            source.pieces,
            ["gh", "ef"],
            "credit covers only the requested bytes"
        );
        assert_eq!(text(source.read(&mut stream_reader, Want::Exactly(0))), "");
        assert_eq!(
            text(source.read(&mut stream_reader, Want::Exactly(5))),
            "efgh, incomplete"
        );
    }

    #[test]
    fn a_separator_is_found_across_pieces() {
        let mut source = Source::new(
            &["ab\r", "\ncd\n\r", "\r\n", "e"],
            Some(StreamEnd::Finished),
        );
        let mut stream_reader = StreamReader::default();
        let mut read = || text(source.read(&mut stream_reader, LINE));
        assert_eq!(read(), "ab\r\n");
        assert_eq!(read(), "cd\n\r\r\n");
        assert_eq!(read(), "e, incomplete");
        assert_eq!(read(), ", incomplete");
    }

    #[test]
    fn another_separator_is_searched_from_the_beginning() {
        let mut source = Source::new(&["a|b\nc"], None);
        let mut stream_reader = StreamReader::default();
        let until = |separator: &'static str| Want::Until {
            separator: separator.as_bytes(),
            max: 100,
        };
        assert_eq!(text(source.read(&mut stream_reader, until("\r\n"))), "Wait");
        assert_eq!(text(source.read(&mut stream_reader, until("|"))), "a|");
        assert_eq!(text(source.read(&mut stream_reader, until("no"))), "Wait");
        assert_eq!(text(source.read(&mut stream_reader, until("\n"))), "b\n");
    }

    #[test]
    fn a_line_that_is_too_long_stays_unread() {
        let mut source = Source::new(&["abcdef", "gh\r\n"], None);
        let mut stream_reader = StreamReader::default();
        assert_eq!(text(source.read(&mut stream_reader, LINE)), "TooLong(7)");
        assert!(
            stream_reader.held.len() <= 8,
            "a read leaves later bytes unread"
        );
        assert_eq!(
            text(source.read(&mut stream_reader, Want::Exactly(8))),
            "abcdefgh"
        );
        assert_eq!(text(source.read(&mut stream_reader, LINE)), "\r\n");
    }

    #[test]
    fn a_whole_line_that_is_too_long_stays_unread() {
        let mut stream_reader = StreamReader::default();
        stream_reader.put_back(b"abcdefgh\r\n");
        assert_eq!(text(stream_reader.take(LINE)), "TooLong(8)");
        assert_eq!(text(stream_reader.take(Want::UpTo(100))), "abcdefgh\r\n");
    }

    #[test]
    fn changing_the_kind_of_read_loses_no_data() {
        let mut source = Source::new(&["abc", "def"], None);
        let mut stream_reader = StreamReader::default();
        assert_eq!(
            text(source.read(&mut stream_reader, Want::Exactly(100))),
            "Wait"
        );
        assert_eq!(text(source.read(&mut stream_reader, Want::All)), "Wait");
        assert_eq!(
            text(source.read(&mut stream_reader, Want::UpTo(100))),
            "abcdef"
        );
    }
}
