//! The clock of the operating system. The protocol crates do not read it themselves; a host gives it to them.

use std::{sync::Arc, time::SystemTime};

use uringcore_quic::tls::WallClock;

/// The time of day of the operating system.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock;

impl SystemClock {
    pub fn shared() -> Arc<dyn WallClock> {
        Arc::new(Self)
    }
}

impl WallClock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}
