//! The ClientHello in a client's first datagrams, for an application that reads it before it accepts the connection,
//! such as a proxy.
//!
//! The application gets the ClientHello as bytes. Not here: parsing its fields.

use super::initial_client_hello::{self, FirstPackets};

/// Collects the bytes of one connection's ClientHello from its first datagrams.
#[derive(Default)]
pub struct ClientHelloReader {
    packets: Option<FirstPackets>,
}

/// The result of one datagram that was passed to [`ClientHelloReader::push`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// An Initial packet was opened.
    Opened,
    /// The datagram begins with no Initial packet of a known version.
    NoInitial,
    /// The datagram is shorter than a server may accept (RFC 9000 section 14.1).
    TooShort,
    /// No Initial packet in the datagram is authentic.
    Unauthentic,
}

impl ClientHelloReader {
    pub fn push(&mut self, datagram: &[u8]) -> Reading {
        // RFC 9000 section 7.2: a client's first destination connection ID has at least 8 bytes.
        let is_initial = initial_client_hello::destination(datagram)
            .is_some_and(|id| id.len() >= DESTINATION_BYTES_MIN);
        let opened = match &mut self.packets {
            _ if is_initial && datagram.len() < DATAGRAM_BYTES_MIN => return Reading::TooShort,
            Some(packets) => packets.push(datagram),
            None => {
                let first = FirstPackets::new(datagram).filter(|_| is_initial);
                let Some(packets) = first else {
                    return Reading::NoInitial;
                };
                // A packet that fails authentication may be forged, so its connection ID is not stored.
                let opened = packets.has_opened();
                self.packets = Some(packets).filter(|_| opened);
                opened
            }
        };
        match opened {
            true => Reading::Opened,
            false => Reading::Unauthentic,
        }
    }

    /// The whole ClientHello message, with its type and length. `None` until all of its bytes have arrived.
    pub fn client_hello(&self) -> Option<Vec<u8>> {
        self.packets.as_ref().and_then(FirstPackets::client_hello)
    }

    /// True if two packets contained different data for the same range of the CRYPTO stream. Then there is no
    /// ClientHello, because TLS could read either of the two.
    pub fn is_contradictory(&self) -> bool {
        self.packets
            .as_ref()
            .is_some_and(FirstPackets::is_contradictory)
    }
}

const DATAGRAM_BYTES_MIN: usize = 1200;
const DESTINATION_BYTES_MIN: usize = 8;
