//! The received bytes of a connection over TCP that are still to be read.

use bytes::BytesMut;

/// Moves the short rest of a large piece of input to memory of its own size. Otherwise a client that stops in the middle
/// of a request would make the server keep the whole piece, of which only the rest is charged to the client. `memory` is
/// the size in bytes of the memory behind `input`, which content that was reported may share. Returns its new size.
pub(crate) fn release_large_buffer(input: &mut BytesMut, memory: usize) -> usize {
    if memory < LARGE_BUFFER || input.len() >= memory / 2 {
        return memory;
    }
    *input = BytesMut::from(&input[..]);
    input.len()
}

/// The size in bytes from which on a buffer is not kept for a short rest of its bytes.
const LARGE_BUFFER: usize = 16 * 1024;
