//! The priority of a response (RFC 9218), which the client and the application set.
//!
//! Not here: parsing priorities (`h3::priority`), and scheduling (`quic::streams`).
//!
//! The responses to a client that has never sent a priority signal share the connection. After a client has sent one,
//! requests without a signal have RFC 9218's default, and such responses are sent one after the other.

use uringcore_h3::{Priority, Signal};
use uringcore_quic as quic;

/// The priority of one response, as the client and the application have set it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ResponsePriority {
    /// The last priority that the client sent.
    client: Priority,
    /// The application's parameters, which override the client's (RFC 9218 section 8).
    application: Signal,
}

impl ResponsePriority {
    /// Sets the application's parameters from the fields of its response, and applies the resulting priority.
    pub fn set_application(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        fields: &[(&[u8], &[u8])],
    ) {
        if let Some(signal) = Signal::of(fields) {
            self.application = signal;
            apply(quic, stream_id, signal.over(self.client));
        }
    }

    /// Sets the client's priority. Returns the resulting priority.
    pub fn set_client(&mut self, wished: Priority) -> Priority {
        self.client = wished;
        self.application.over(wished)
    }

    /// The resulting priority. `uses_priorities` is true if the client has sent any priority signal.
    pub fn rank(self, uses_priorities: bool) -> Priority {
        match uses_priorities {
            true => self.application.over(self.client),
            false => Priority {
                incremental: true,
                ..Priority::default()
            },
        }
    }
}

pub(super) fn apply(quic: &mut quic::Connection, stream_id: u64, priority: Priority) {
    if let Some(priority) = quic::Priority::new(priority.urgency, priority.incremental) {
        // An error means that the stream has ended.
        let _ = quic.set_priority(stream_id, priority);
    }
}
