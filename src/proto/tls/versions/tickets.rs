//! Which version the sessions are of that TLS keeps and resumes now.
//!
//! A ticket is good for the version that its connection was negotiated to, and for connections that
//! begin with that version (RFC 9369 section 5). rustls asks stores for sessions by names and keys
//! alone, in the middle of its calls; so what the calls are about is set for the thread around them.

use std::cell::Cell;

use super::{VERSION_1, Versions};

/// While it lives, sessions are put and taken on this thread as one connection's versions demand.
pub(in crate::tls) struct TicketScope {
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
        let sides = Sides {
            put: versions.current(),
            take: versions.original(),
        };
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

/// The version of a session that is put into a store.
pub(in crate::tls) fn version_put() -> u32 {
    VERSIONS.get().put
}

/// The version that a session must be of to be taken out.
pub(in crate::tls) fn version_taken() -> u32 {
    VERSIONS.get().take
}
