//! The token of an operation, from which its completion finds the owner: `owner:8 | sub:8 | generation:16 | index:32`.
//!
//! The driver returns the token unchanged with the completion. The owner distinguishes its operations by `sub`; the
//! engine finds the owner by the other parts.

use uringcore_io::Token;

use crate::generational_slab::Key;

/// The table that contains the owner of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Owner {
    Transport = 1,
    Listener = 2,
    Poll = 3,
    Op = 4,
    Quic = 5,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    pub owner: Owner,
    pub sub: u8,
    pub key: Key,
}

impl Route {
    pub fn new(owner: Owner, sub: u8, key: Key) -> Self {
        Self { owner, sub, key }
    }

    pub fn token(self) -> Token {
        u64::from(self.owner as u8) << 56 | u64::from(self.sub) << 48 | self.key.as_u64()
    }

    /// `None` if the token was not made by [`token`](Self::token).
    pub fn parse(token: Token) -> Option<Self> {
        let owner = match (token >> 56) as u8 {
            1 => Owner::Transport,
            2 => Owner::Listener,
            3 => Owner::Poll,
            4 => Owner::Op,
            5 => Owner::Quic,
            _ => return None,
        };
        Some(Self {
            owner,
            sub: (token >> 48) as u8,
            key: Key::from_u64(token & 0xffff_ffff_ffff),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_restored_from_its_token() {
        let route = Route::new(
            Owner::Quic,
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
