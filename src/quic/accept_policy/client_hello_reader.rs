//! The ClientHello in a client's first datagrams, for a host that reads it before it handles the connection, such
//! as a proxy.
//!
//! Not here: the content of a ClientHello; the host gets it as it is.

use super::first_packets::{self, FirstPackets};

/// Collects the ClientHello of one connection.
#[derive(Default)]
pub struct ClientHelloReader {
    packets: Option<FirstPackets>,
}

/// The result of a datagram.
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
        // RFC 9000 section 7.2: a client must not choose a shorter ID.
        let is_initial = first_packets::destination(datagram)
            .is_some_and(|id| id.len() >= DESTINATION_BYTES_MIN);
        let opened = match &mut self.packets {
            _ if is_initial && datagram.len() < DATAGRAM_BYTES_MIN => return Reading::TooShort,
            Some(packets) => packets.push(datagram),
            None => {
                let first = FirstPackets::new(datagram).filter(|_| is_initial);
                let Some(packets) = first else {
                    return Reading::NoInitial;
                };
                // The ID of a forged packet must not be kept.
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

    /// The whole message, with its type and length; `None` while a part of it is missing.
    pub fn client_hello(&self) -> Option<Vec<u8>> {
        self.packets.as_ref().and_then(FirstPackets::client_hello)
    }

    /// True if packets had different data for one range. There is no ClientHello then, because it is unknown
    /// which of them TLS would read.
    pub fn is_contradictory(&self) -> bool {
        self.packets
            .as_ref()
            .is_some_and(FirstPackets::is_contradictory)
    }
}

const DATAGRAM_BYTES_MIN: usize = 1200;
const DESTINATION_BYTES_MIN: usize = 8;
