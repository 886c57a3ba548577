//! Reads the content of a request as it arrives.

use bytes::{Bytes, BytesMut};

use super::chunked_decoder::Chunked;
use super::limits::Limits;
use super::message_body_length::Framing;
use crate::response_errors::Refusal;

/// The rest of one request's content, which is still to be read.
#[derive(Debug)]
pub(super) enum Body {
    Length(u64),
    Chunked(Chunked),
}

impl Body {
    /// Returns `None` if the request has no content.
    pub fn new(framing: Framing) -> Option<Self> {
        match framing {
            Framing::None | Framing::Length(0) => None,
            Framing::Length(length) => Some(Self::Length(length)),
            Framing::Chunked => Some(Self::Chunked(Chunked::default())),
        }
    }

    /// Moves content from `input` to `pieces`. Returns true at the end of the content.
    pub fn read(
        &mut self,
        input: &mut BytesMut,
        pieces: &mut Pieces,
        limits: &Limits,
    ) -> Result<bool, Refusal> {
        match self {
            Self::Length(left) => {
                let size = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
                if size > 0 {
                    pieces.add(input.split_to(size));
                }
                *left -= size as u64;
                Ok(*left == 0)
            }
            Self::Chunked(decoder) => decoder.decode(input, pieces, limits),
        }
    }

    /// True if the known length of the rest is too long to read and drop it after an early response.
    pub fn is_too_long_to_discard(&self) -> bool {
        matches!(self, Self::Length(left) if *left > DISCARDED_BYTES_MAX as u64)
    }
}

/// Pieces of content. Small pieces are joined, because a client can cut its content into chunks of one byte.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    pieces: Vec<Bytes>,
    small: Vec<u8>,
    pub bytes: usize,
}

impl Pieces {
    pub fn add(&mut self, piece: BytesMut) {
        self.bytes += piece.len();
        // In most cases there is one piece, which is not copied.
        if piece.len() < SMALL_BYTES && (!self.small.is_empty() || !self.pieces.is_empty()) {
            self.small.extend_from_slice(&piece);
            return;
        }
        self.join();
        self.pieces.push(piece.freeze());
    }

    pub fn take(&mut self) -> Vec<Bytes> {
        self.join();
        self.bytes = 0;
        std::mem::take(&mut self.pieces)
    }

    fn join(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(std::mem::take(&mut self.small).into());
        }
    }
}

/// Pieces of fewer bytes are joined.
const SMALL_BYTES: usize = 1024;
/// The maximum rest of a request that is read and dropped after an early response. A longer rest costs more than a new
/// connection.
pub(super) const DISCARDED_BYTES_MAX: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pieces_are_joined_in_their_order() {
        let mut pieces = Pieces::default();
        let large = vec![b'l'; SMALL_BYTES];
        for piece in [&b"a"[..], b"b", b"c", &large, b"d", b"e"] {
            pieces.add(piece.into());
        }
        assert_eq!(pieces.bytes, SMALL_BYTES + 5);
        let taken = pieces.take();
        assert_eq!(
            taken,
            [
                b"a"[..].into(),
                Bytes::from_static(b"bc"),
                large.into(),
                Bytes::from_static(b"de")
            ]
        );
        assert_eq!(pieces.bytes, 0);
        assert!(pieces.take().is_empty());
    }
}
