//! Buffers a ClientHello until it is complete, before TLS gets it.
//!
//! The QUIC version depends on the ClientHello, but TLS must know the version before it reads the ClientHello. So the
//! bytes are buffered and parsed first. Nothing is validated here: input that is not clearly a ClientHello is passed
//! to TLS unchanged, and TLS sends the right alert.

use uringcore_wire::tls::{CLIENT_HELLO, client_hello_extensions::ClientHello, message};

/// The bytes of a client's first handshake message.
#[derive(Default)]
pub(in crate::tls) struct ClientHelloBuffer {
    bytes: Vec<u8>,
}

/// The result of [`ClientHelloBuffer::push`].
#[derive(Debug, PartialEq, Eq)]
pub(in crate::tls) enum Progress {
    /// More bytes are needed.
    Waiting,
    /// The ClientHello is complete, or the bytes are something that TLS must reject.
    Done,
}

impl ClientHelloBuffer {
    pub fn push(&mut self, bytes: &[u8]) -> Progress {
        self.bytes.extend_from_slice(bytes);
        let is_hello = self.bytes.first().is_none_or(|kind| *kind == CLIENT_HELLO);
        match is_hello && self.bytes.len() < BYTES_MAX && message(&self.bytes).is_none() {
            true => Progress::Waiting,
            false => Progress::Done,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// True if the bytes begin with the whole of `message`.
    pub fn begins_with(&self, message: &[u8]) -> bool {
        self.bytes.starts_with(message)
    }

    /// The parsed ClientHello. `None` if the message is not a ClientHello.
    pub fn hello(&self) -> Option<ClientHello<'_>> {
        let (_, content, _) = message(&self.bytes)?;
        ClientHello::read(content)
    }
}

/// A bound above the longest ClientHello that TLS accepts, in bytes.
const BYTES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(extensions: &[u8]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 0x01, 1, 0]);
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
        let mut message = vec![1];
        message.extend(&(body.len() as u32).to_be_bytes()[1..]);
        message.extend(body);
        message
    }

    fn parameters(found: &ClientHelloBuffer) -> Option<&[u8]> {
        found.hello()?.transport_parameters()
    }

    #[test]
    fn transport_parameters_are_found_in_any_pieces_of_the_client_hello() {
        let message = hello(&[0, 16, 0, 2, 9, 9, 0, 0x39, 0, 3, 1, 2, 3]);
        for size in [1, 7, message.len()] {
            let mut found = ClientHelloBuffer::default();
            let mut pieces = message.chunks(size).peekable();
            while let Some(piece) = pieces.next() {
                let progress = found.push(piece);
                assert_eq!(progress == Progress::Done, pieces.peek().is_none());
            }
            assert_eq!(parameters(&found), Some(&[1, 2, 3][..]));
            assert_eq!(found.bytes(), message);
        }
    }

    #[test]
    fn a_message_is_compared_completely() {
        let message = hello(&[0, 16, 0, 2, 9, 9]);
        let mut found = ClientHelloBuffer::default();
        found.push(&message[..message.len() - 1]);
        assert!(!found.begins_with(&message));
        found.push(&message[message.len() - 1..]);
        assert!(found.begins_with(&message));
        assert!(!found.begins_with(&hello(&[0, 16, 0, 2, 9, 8])));
    }

    #[test]
    fn other_messages_are_not_buffered() {
        let mut other = ClientHelloBuffer::default();
        assert_eq!(other.push(&[2, 0, 0]), Progress::Done);
        assert_eq!(parameters(&other), None);
        let mut long = ClientHelloBuffer::default();
        assert_eq!(long.push(&[1, 0xff, 0xff, 0xff]), Progress::Waiting);
        assert_eq!(long.push(&vec![0; BYTES_MAX]), Progress::Done);
    }

    #[test]
    fn malformed_extensions_are_left_to_tls() {
        for extensions in [&[0, 0x39, 0, 9, 1][..], &[0, 0x39, 0], &[]] {
            let mut found = ClientHelloBuffer::default();
            assert_eq!(found.push(&hello(extensions)), Progress::Done);
            assert_eq!(parameters(&found), None);
        }
        let mut short = ClientHelloBuffer::default();
        assert_eq!(short.push(&[1, 0, 0, 2, 3, 3]), Progress::Done);
        assert_eq!(parameters(&short), None);
    }
}
