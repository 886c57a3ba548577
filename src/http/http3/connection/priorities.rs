//! Priorities of responses (RFC 9218): handles the client's signals.

use uringcore_h3::{Field, Priority, Signal};
use uringcore_quic as quic;

use super::Connection;

impl Connection {
    /// Sets the priority of a request's response from the request's fields.
    ///
    /// Until a client has sent a priority signal, its responses share the connection. The default of RFC 9218 section
    /// 4.2 would send them one after the other, and one download would delay all later responses. A client that sends
    /// a signal understands this default, so from then on it applies to requests without a signal, as browsers send
    /// them.
    pub(super) fn prioritize(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        fields: &[Field],
    ) {
        let signal = Signal::of(fields);
        if signal.is_some() {
            self.exchanges.set_uses_priorities();
        }
        if self.exchanges.uses_priorities() {
            let wished = signal.unwrap_or_default().over(Priority::default());
            self.reprioritize(quic, stream_id, wished);
        }
    }

    /// Handles the client's PRIORITY_UPDATE for a response.
    pub(super) fn reprioritize(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        wished: Priority,
    ) {
        self.exchanges.set_uses_priorities();
        // A response that the host has finished is wholly in QUIC's queues, and keeps its priority.
        if let Some(exchange) = self.exchanges.get_mut(stream_id) {
            let priority = exchange.priority.set_client(wished);
            apply(quic, stream_id, priority);
        }
    }
}

/// Sets the priority of a stream in QUIC.
pub(super) fn apply(quic: &mut quic::Connection, stream_id: u64, priority: Priority) {
    if let Some(priority) = quic::Priority::new(priority.urgency, priority.incremental) {
        // An error means that the stream has ended.
        let _ = quic.set_priority(stream_id, priority);
    }
}
