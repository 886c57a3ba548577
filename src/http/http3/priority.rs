//! Priorities of responses (RFC 9218), from the client and the application.
//!
//! Not here: parsing them (`h3::priority`), and scheduling (`quic::streams`).
//!
//! Responses to a client that never sent a priority signal share the connection. Once a client has sent one, a
//! request without a signal has RFC 9218's default, and such responses are sent one after the other.

use uringcore_h3::{Field, Priority, Signal};
use uringcore_quic as quic;

use super::connection::Connection;

/// The priorities for one response.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wishes {
    /// The client's last one.
    client: Priority,
    /// The application's, which overrides the client's (RFC 9218 section 8).
    application: Signal,
}

impl Wishes {
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

    /// The effective priority of the response.
    pub fn rank(self, knows_priorities: bool) -> Priority {
        match knows_priorities {
            true => self.application.over(self.client),
            false => Priority {
                incremental: true,
                ..Priority::default()
            },
        }
    }
}

impl Connection {
    /// Sets the priority of a request from its fields.
    ///
    /// A client that never sends a priority signal shares its connection among its responses, like QUIC streams.
    /// With the default of RFC 9218 section 4.2 they would be sent one after the other, so that one download would
    /// delay all later ones; a client that supports the signals can choose that. A client that has sent a signal
    /// supports them, and means the default if it sends none: browsers leave it out.
    pub(super) fn prioritize(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        fields: &[Field],
    ) {
        let signal = Signal::of(fields);
        self.knows_priorities |= signal.is_some();
        if self.knows_priorities {
            let wished = signal.unwrap_or_default().over(Priority::default());
            self.reprioritize(quic, stream_id, wished);
        }
    }

    /// The client has sent a PRIORITY_UPDATE for a response.
    pub(super) fn reprioritize(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        wished: Priority,
    ) {
        self.knows_priorities = true;
        // The rest of a response that is wholly in QUIC's queues keeps its place.
        if let Some(exchange) = self.exchanges.get_mut(&stream_id) {
            exchange.wishes.client = wished;
            apply(quic, stream_id, exchange.wishes.application.over(wished));
        }
    }
}

fn apply(quic: &mut quic::Connection, stream_id: u64, priority: Priority) {
    if let Some(priority) = quic::Priority::new(priority.urgency, priority.incremental) {
        // A stream that refuses has ended.
        let _ = quic.set_priority(stream_id, priority);
    }
}
