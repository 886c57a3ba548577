//! The wall clock, for the dates of certificates, tickets and tokens. This crate reads no clock itself: the
//! application passes one, and it is converted here for rustls and quinn-proto.

use std::{
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use rustls::{pki_types::UnixTime, time_provider::TimeProvider};

/// A clock that returns the time of day.
pub trait WallClock: fmt::Debug + Send + Sync {
    fn now(&self) -> SystemTime;
}

/// The application's clock in the form that rustls and quinn-proto need. Otherwise they would read the system's
/// clock.
#[derive(Debug, Clone)]
pub(crate) struct ApplicationClock(pub Arc<dyn WallClock>);

impl TimeProvider for ApplicationClock {
    fn current_time(&self) -> Option<UnixTime> {
        let since = self.0.now().duration_since(UNIX_EPOCH).ok();
        since.map(UnixTime::since_unix_epoch)
    }
}

impl quinn_proto::TimeSource for ApplicationClock {
    fn now(&self) -> SystemTime {
        self.0.now()
    }
}
