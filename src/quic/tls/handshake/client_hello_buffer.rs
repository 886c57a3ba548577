//! Buffers a ClientHello before TLS gets it.
//!
//! The QUIC version depends on the hello, and TLS must have the version before it reads the hello. So the hello's
//! bytes are buffered and parsed first. Nothing is validated here: input that is not clearly a ClientHello is
//! passed to TLS as it is, which raises the right alert.

use uringcore_wire::tls::{CLIENT_HELLO, client_hello::ClientHello, message};

/// The bytes of a client's first handshake message.
#[derive(Default)]
pub(in crate::tls) struct ClientHelloBuffer {
    bytes: Vec<u8>,
}

/// The state of a [`ClientHelloBuffer`].
#[derive(Debug, PartialEq, Eq)]
pub(in crate::tls) enum Progress {
    /// Bytes are missing.
    Waiting,
    /// The message is complete, or cannot become a ClientHello that needs parsing.
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

    /// True if the bytes begin with this whole message.
    pub fn is(&self, message: &[u8]) -> bool {
        self.bytes.starts_with(message)
    }

    /// The hello, if the bytes are one.
    pub fn hello(&self) -> Option<ClientHello<'_>> {
        let (_, content, _) = message(&self.bytes)?;
        ClientHello::read(content)
    }
}

/// More than TLS accepts as a hello.
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
    fn parameters_are_found_however_the_hello_is_cut() {
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
    fn a_message_is_compared_to_its_end() {
        let message = hello(&[0, 16, 0, 2, 9, 9]);
        let mut found = ClientHelloBuffer::default();
        found.push(&message[..message.len() - 1]);
        assert!(!found.is(&message));
        found.push(&message[message.len() - 1..]);
        assert!(found.is(&message));
        assert!(!found.is(&hello(&[0, 16, 0, 2, 9, 8])));
    }

    #[test]
    fn what_is_no_hello_does_not_wait() {
        let mut other = ClientHelloBuffer::default();
        assert_eq!(other.push(&[2, 0, 0]), Progress::Done);
        assert_eq!(parameters(&other), None);
        let mut long = ClientHelloBuffer::default();
        assert_eq!(long.push(&[1, 0xff, 0xff, 0xff]), Progress::Waiting);
        assert_eq!(long.push(&vec![0; BYTES_MAX]), Progress::Done);
    }

    #[test]
    fn nonsense_inside_is_left_to_tls() {
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
