//! The output of a connection over TCP: the encoded bytes until the host writes them, and the end of the connection.

use std::time::Duration;

use bytes::Bytes;

/// The bytes in the order in which the host writes them. Header sections and small content are copied into one buffer.
/// Large content is not copied.
#[derive(Debug, Default)]
pub struct Output {
    bytes: Vec<u8>,
    /// Large content, each with the number of copied bytes before it.
    kept: Vec<(usize, Bytes)>,
    len: usize,
}

/// A connection that has output.
pub trait Source {
    /// The bytes that the host has to write.
    fn output(&self) -> &Output;

    /// Drops the output, which the host has written.
    fn written(&mut self);
}

/// A part of the output.
#[derive(Debug)]
pub enum Piece<'a> {
    Copied(&'a [u8]),
    Kept(&'a Bytes),
}

/// The way in which the host ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// The host closes the connection when the output is sent.
    Gracefully,
    /// The host closes the sending direction when the output is sent, and continues to receive. A close of both
    /// directions while the client is sending would reset the connection, and the client might lose the response (RFC
    /// 9112 section 9.6).
    Sending,
    /// The host closes the connection at once, and drops unsent output.
    AtOnce,
}

impl Output {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All bytes that were added since the last [`clear`](Self::clear), if all of them are in one part.
    pub fn only_part(&self) -> Option<&[u8]> {
        self.kept.is_empty().then_some(&self.bytes)
    }

    /// The parts that were added since the last [`clear`](Self::clear).
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let ends = self.kept.iter().map(|(at, _)| *at);
        let ends = ends.chain(std::iter::once(self.bytes.len()));
        let begins = std::iter::once(0).chain(self.kept.iter().map(|(at, _)| *at));
        let kept = self.kept.iter().map(|(_, content)| Some(content));
        let parts = begins.zip(ends).zip(kept.chain(std::iter::once(None)));
        parts
            .flat_map(|((begin, end), content)| {
                let copied = Piece::Copied(&self.bytes[begin..end]);
                [Some(copied), content.map(Piece::Kept)]
            })
            .flatten()
            .filter(|piece| !matches!(piece, Piece::Copied([])))
    }

    /// Drops everything, because the host has written it.
    pub fn clear(&mut self) {
        self.bytes.clear();
        // A large head must not occupy memory of a connection that is idle afterwards.
        self.bytes.shrink_to(BYTES_KEPT);
        self.kept.clear();
        self.len = 0;
    }

    /// Frees unused capacity.
    pub(crate) fn free_unused(&mut self) {
        self.bytes.shrink_to_fit();
        self.kept.shrink_to_fit();
    }

    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Adds content, and copies it if it is small.
    pub(crate) fn content(&mut self, content: Bytes) {
        if content.len() < KEPT_FROM_BYTES {
            return self.copy(&content);
        }
        self.len += content.len();
        self.kept.push((self.bytes.len(), content));
    }

    /// Lends the buffer to an encoder that may fail. Also returns the length of the buffer, for `end_buffer`.
    pub(crate) fn buffer(&mut self) -> (&mut Vec<u8>, usize) {
        let before = self.bytes.len();
        (&mut self.bytes, before)
    }

    /// Ends the use of [`bytes_like_objects`](Self::bytes_like_objects). If `keep` is false, the added bytes are dropped.
    pub(crate) fn end_buffer(&mut self, before: usize, keep: bool) {
        match keep {
            true => self.len += self.bytes.len() - before,
            false => self.bytes.truncate(before),
        }
    }
}

/// The maximum input in bytes that is dropped after the last response. Above it the connection is closed.
pub const LINGER_BYTES_MAX: usize = 1024 * 1024;
/// The time for which input is dropped after the last response was sent.
pub(crate) const LINGER_TIME: Duration = Duration::from_secs(5);
/// Content of at least this size is not copied. The engine would copy shorter pieces anyway.
const KEPT_FROM_BYTES: usize = 4096;
/// The capacity that the buffer keeps after a write.
const BYTES_KEPT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_in_the_order_of_their_making() {
        let large = Bytes::from(vec![b'l'; KEPT_FROM_BYTES]);
        let mut output = Output::default();
        assert!(output.pieces().next().is_none());
        output.content(large.clone());
        output.copy(b"a");
        output.content(Bytes::from_static(b"b"));
        output.content(large.clone());
        output.content(large.clone());
        output.copy(b"c");
        let kinds: Vec<_> = output
            .pieces()
            .map(|piece| match piece {
                Piece::Copied(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                Piece::Kept(content) => content.len().to_string(),
            })
            .collect();
        assert_eq!(kinds, ["4096", "ab", "4096", "4096", "c"]);
        assert_eq!(output.len(), 3 * KEPT_FROM_BYTES + 3);
        output.clear();
        assert!(output.is_empty() && output.pieces().next().is_none());
    }

    #[test]
    fn a_dropped_buffer_leaves_nothing() {
        let mut output = Output::default();
        output.copy(b"a");
        let (buffer, before) = output.buffer();
        buffer.extend_from_slice(b"dropped");
        output.end_buffer(before, false);
        assert_eq!((output.len(), &output.bytes[..]), (1, &b"a"[..]));
    }
}
