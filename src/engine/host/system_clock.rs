//! The system's clock. The protocol crates read no clock, so a host passes this one in.

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
