//! Which version the sessions and address validation tokens are of that are given out and shown now.
//!
//! A ticket or token is good for the version that its connection was negotiated to, and for
//! connections that begin with that version (RFC 9369 section 5). rustls asks stores for sessions by
//! names and keys alone, and quinn-proto seals and opens tokens by nonces alone, in the middle of
//! their calls; so what the calls are about is set for the thread around them.

use std::cell::Cell;

use super::Versions;
use crate::wire::header::VERSION_1;

/// While it lives, sessions and tokens are given out and accepted on this thread as one connection's
/// versions demand.
pub(crate) struct TicketScope {
    before: Sides,
}

#[derive(Clone, Copy)]
struct Sides {
    put: u32,
    take: u32,
}

thread_local! {
    static VERSIONS: Cell<Sides> = const {
        Cell::new(Sides { put: VERSION_1, take: VERSION_1 })
    };
}

impl TicketScope {
    pub fn open(versions: &Versions) -> Self {
        Self::set(Sides {
            put: versions.current(),
            take: versions.original(),
        })
    }

    /// For a packet of `version` that no connection has.
    pub fn of(version: u32) -> Self {
        Self::set(Sides {
            put: version,
            take: version,
        })
    }

    fn set(sides: Sides) -> Self {
        Self {
            before: VERSIONS.replace(sides),
        }
    }
}

impl Drop for TicketScope {
    fn drop(&mut self) {
        VERSIONS.set(self.before);
    }
}

/// The version of a session that is put into a store, or of a token that is sealed.
pub(in crate::tls) fn version_put() -> u32 {
    VERSIONS.get().put
}

/// The version that a session must be of to be taken out, or a token to be opened.
pub(in crate::tls) fn version_taken() -> u32 {
    VERSIONS.get().take
}
