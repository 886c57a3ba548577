//! The ClientHello in a client's first datagrams, for a host that wants to read it before it decides what to do with the
//! connection: a proxy, for one.
//!
//! Not here: what a ClientHello says; the host gets it as it is.

use super::first_packets::FirstPackets;

/// Collects the ClientHello of one connection.
#[derive(Default)]
pub struct ClientHelloReader {
    packets: Option<FirstPackets>,
}

/// What became of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// An Initial packet was opened.
    Opened,
    /// It begins with no Initial packet of a known version.
    NoInitial,
    /// No Initial packet in it is authentic.
    Unauthentic,
}

impl ClientHelloReader {
    pub fn push(&mut self, datagram: &[u8]) -> Reading {
        let opened = match &mut self.packets {
            Some(packets) => packets.push(datagram),
            None => {
                let Some(packets) = FirstPackets::new(datagram) else {
                    return Reading::NoInitial;
                };
                let opened = packets.has_opened();
                self.packets = Some(packets);
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
}
