//! Congestion controllers by name. The controllers are quinn-proto's, each wrapped in a gauge
//! (`workarounds::congestion_controller_wrapper`).

use std::sync::Arc;

use quinn_proto::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};

use crate::workarounds::congestion_controller_wrapper;

/// The congestion control algorithm (RFC 9002 section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Congestion {
    #[default]
    Cubic,
    NewReno,
    Bbr,
}

/// Returns a factory of controllers whose initial window has `initial_window` bytes.
pub(crate) fn factory(
    congestion: Congestion,
    initial_window: u64,
) -> Arc<dyn ControllerFactory + Send + Sync> {
    let inner: Arc<dyn ControllerFactory + Send + Sync> = match congestion {
        Congestion::Cubic => {
            let mut config = CubicConfig::default();
            config.initial_window(initial_window);
            Arc::new(config)
        }
        Congestion::NewReno => {
            let mut config = NewRenoConfig::default();
            config.initial_window(initial_window);
            Arc::new(config)
        }
        Congestion::Bbr => {
            let mut config = BbrConfig::default();
            config.initial_window(initial_window);
            Arc::new(config)
        }
    };
    congestion_controller_wrapper::gauged(inner)
}
