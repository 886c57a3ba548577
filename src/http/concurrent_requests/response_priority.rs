//! The priority of a response (RFC 9218), which the client and the application set.
//!
//! Not here: parsing priorities (`h3::priority`), and scheduling (`quic::streams`, `http2::scheduler`).
//!
//! The responses to a client that has never sent a priority signal share the connection. After a client has sent one,
//! requests without a signal have RFC 9218's default, and such responses are sent one after the other.

use uringcore_h3::{Priority, Signal};

/// The priority of one response, as the client and the application have set it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ResponsePriority {
    /// The last priority that the client sent.
    client: Priority,
    /// The application's parameters, which override the client's (RFC 9218 section 8).
    application: Signal,
}

impl ResponsePriority {
    /// Sets the application's parameters from the fields of its response. Returns the resulting priority if the
    /// application has set any.
    pub(crate) fn set_application(&mut self, fields: &[(&[u8], &[u8])]) -> Option<Priority> {
        let signal = Signal::of(fields)?;
        self.application = signal;
        Some(signal.over(self.client))
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
