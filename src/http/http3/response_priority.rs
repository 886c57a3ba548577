//! Priorities of responses (RFC 9218), from the client and the application.
//!
//! Not here: parsing them (`h3::priority`), and scheduling (`quic::streams`).
//!
//! Responses to a client that never sent a priority signal share the connection. Once a client has sent one, a
//! request without a signal has RFC 9218's default, and such responses are sent one after the other.

use uringcore_h3::{Priority, Signal};
use uringcore_quic as quic;

/// The priorities for one response.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ResponsePriority {
    /// The client's last one.
    client: Priority,
    /// The application's, which overrides the client's (RFC 9218 section 8).
    application: Signal,
}

impl ResponsePriority {
    /// The application has set a priority in its response's fields.
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

    /// The client has set a priority. Returns the effective one.
    pub fn set_client(&mut self, wished: Priority) -> Priority {
        self.client = wished;
        self.application.over(wished)
    }

    /// The effective priority of the response.
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
        // A stream that refuses has ended.
        let _ = quic.set_priority(stream_id, priority);
    }
}
