//! The wall clock, for the dates of certificates, tickets and tokens. This crate has no clock: the host passes its
//! own, in the forms that the libraries require.

use std::{
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use rustls::{pki_types::UnixTime, time_provider::TimeProvider};

/// Returns the wall-clock time.
pub trait WallClock: fmt::Debug + Send + Sync {
    fn now(&self) -> SystemTime;
}

/// A host's clock for the libraries, which would otherwise read the system's.
#[derive(Debug, Clone)]
pub(crate) struct HostClock(pub Arc<dyn WallClock>);

impl TimeProvider for HostClock {
    fn current_time(&self) -> Option<UnixTime> {
        let since = self.0.now().duration_since(UNIX_EPOCH).ok();
        since.map(UnixTime::since_unix_epoch)
    }
}

impl quinn_proto::TimeSource for HostClock {
    fn now(&self) -> SystemTime {
        self.0.now()
    }
}
