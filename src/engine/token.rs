//! How a completion finds its owner: `kind:8 | sub:8 | generation:16 | index:32`.
//!
//! The driver hands the token back untouched. `sub` belongs to the owner (which of its operations
//! this is); kind, generation and index are the engine's.

use uringcore_io::Token;

use crate::table::Key;

/// The table that a completion's owner lives in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    Stream = 1,
    Listener = 2,
    Datagram = 3,
    Poll = 4,
    Op = 5,
    Quic = 6,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    pub kind: Kind,
    pub sub: u8,
    pub key: Key,
}

impl Route {
    pub fn new(kind: Kind, sub: u8, key: Key) -> Self {
        Self { kind, sub, key }
    }

    pub fn token(self) -> Token {
        u64::from(self.kind as u8) << 56 | u64::from(self.sub) << 48 | self.key.as_u64()
    }

    /// `None` for a token that no route made.
    pub fn parse(token: Token) -> Option<Self> {
        let kind = match (token >> 56) as u8 {
            1 => Kind::Stream,
            2 => Kind::Listener,
            3 => Kind::Datagram,
            4 => Kind::Poll,
            5 => Kind::Op,
            6 => Kind::Quic,
            _ => return None,
        };
        Some(Self {
            kind,
            sub: (token >> 48) as u8,
            key: Key::from_u64(token & 0xffff_ffff_ffff),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_survives_its_token() {
        let route = Route::new(
            Kind::Quic,
            9,
            Key {
                index: u32::MAX,
                generation: u16::MAX,
            },
        );
        assert_eq!(Route::parse(route.token()), Some(route));
        assert_eq!(Route::parse(0), None);
    }
}
