//! The engine's commands on its QUIC endpoints.

use std::io;

use uringcore_io::{Driver, Token};

use super::Engine;
use crate::quic::socket::QuicSocket;
use crate::table::Key;
use crate::token::{Owner, Route};

impl Engine {
    /// Puts an endpoint on the engine; `make` is told the token that its operations have to carry
    /// (its `sub` byte is the endpoint's own).
    pub fn open_quic(
        &mut self,
        make: impl FnOnce(&mut Driver, Token) -> io::Result<QuicSocket>,
    ) -> io::Result<Key> {
        let driver = &mut self.driver;
        self.quic
            .open(|key| make(driver, Route::new(Owner::Quic, 0, key).token()))
    }

    /// The endpoint for commands; it is flushed at the end of the turn.
    pub fn quic(&mut self, key: Key) -> Option<&mut QuicSocket> {
        self.quic.get(key)
    }
}
