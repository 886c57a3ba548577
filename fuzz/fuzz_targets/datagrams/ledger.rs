//! Counts the bytes received from and sent to each address, and the addresses that have proved that
//! they receive datagrams (RFC 9000 sections 8.1, 8.2 and 9.3).
//!
//! The ledger sees packets from outside only, so it errs in the server's favour: an address is
//! proved once a datagram sent there has reached the client, and the client has then sent a packet
//! that may confirm it. Datagrams that the attacker never let through prove nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::Flight;

#[derive(Default)]
pub struct Ledger {
    accounts: BTreeMap<SocketAddr, Account>,
}

#[derive(Debug, Default)]
struct Account {
    received: usize,
    sent: usize,
    /// The first step in which a datagram to this address reached the client.
    reached: Option<u64>,
    is_proved: bool,
}

impl Ledger {
    /// A datagram arrives at the server.
    pub fn received(&mut self, flight: &Flight) {
        let account = self.accounts.entry(flight.from).or_default();
        account.received += flight.data.len();
        let shown = Shown::by(&flight.data);
        for (address, account) in &mut self.accounts {
            let is_proof = match address {
                // A PATH_RESPONSE counts on any path (RFC 9000 section 8.2.3).
                _ if shown.has_short_header => true,
                address if *address == flight.from => shown.has_handshake || shown.has_token,
                // A token may cover only the IP address.
                address => shown.has_token && address.ip() == flight.from.ip(),
            };
            let is_later = account.reached.is_some_and(|step| step < flight.step);
            account.is_proved |= is_proof && is_later;
        }
        // A token issued to one port of a machine is valid for another.
        let is_known = |(address, account): (&SocketAddr, &Account)| {
            address.ip() == flight.from.ip()
                && account.reached.is_some_and(|step| step < flight.step)
        };
        if shown.has_token && self.accounts.iter().any(is_known) {
            let account = self.accounts.entry(flight.from).or_default();
            account.is_proved = true;
        }
    }

    /// A datagram that the server sent to `address` is about to reach the client.
    pub fn reached(&mut self, address: SocketAddr, step: u64) {
        let account = self.accounts.entry(address).or_default();
        account.reached.get_or_insert(step);
    }

    /// The server sends to `address`.
    pub fn sent(&mut self, address: SocketAddr, bytes: usize) {
        let account = self.accounts.entry(address).or_default();
        account.sent += bytes;
        assert!(
            account.is_proved || account.sent <= 3 * account.received,
            "{bytes} more bytes to {address}: {account:?}"
        );
    }
}

/// Evidence in the headers of a datagram's packets that may prove an address.
#[derive(Default)]
struct Shown {
    has_handshake: bool,
    has_token: bool,
    has_short_header: bool,
}

impl Shown {
    fn by(datagram: &[u8]) -> Self {
        let mut shown = Self::default();
        let mut rest = datagram;
        while let Some((&first, _)) = rest.split_first() {
            if first & 0x80 == 0 {
                shown.has_short_header = true;
                break;
            }
            let Some(after) = shown.long(&mut rest, first) else {
                break;
            };
            rest = after;
        }
        shown
    }

    /// Reads a long header (RFC 9000 section 17.2), and returns the data after the packet.
    fn long<'a>(&mut self, rest: &mut &'a [u8], first: u8) -> Option<&'a [u8]> {
        let version = u32::from_be_bytes(rest.get(1..5)?.try_into().ok()?);
        let mut body = rest.get(5..)?;
        for _ in 0..2 {
            let length = usize::from(*body.first()?);
            body = body.get(1 + length..)?;
        }
        // RFC 9369 section 3.2: version 2 counts its types from 1.
        let shift = u8::from(version == 0x6b33_43cf);
        match (first >> 4).wrapping_sub(shift) & 3 {
            0 => {
                let length = varint(&mut body)?;
                self.has_token |= length > 0;
                body = body.get(length..)?;
            }
            2 => self.has_handshake = true,
            _ => {}
        }
        let length = varint(&mut body)?;
        body.get(length..)
    }
}

fn varint(rest: &mut &[u8]) -> Option<usize> {
    let first = *rest.first()?;
    let bytes = rest.get(..1 << (first >> 6))?;
    let value = bytes[1..]
        .iter()
        .fold(u64::from(first & 0x3f), |value, byte| {
            value << 8 | u64::from(*byte)
        });
    *rest = &rest[bytes.len()..];
    usize::try_from(value).ok()
}
