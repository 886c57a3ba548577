//! Priorities of responses (RFC 9218): the client's signals.

use uringcore_h3::{Field, Priority, Signal};
use uringcore_quic as quic;

use super::Connection;
use crate::http3::response_priority::apply;

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
        if signal.is_some() {
            self.exchanges.set_uses_priorities();
        }
        if self.exchanges.uses_priorities() {
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
        self.exchanges.set_uses_priorities();
        // The rest of a response that is wholly in QUIC's queues keeps its place.
        if let Some(exchange) = self.exchanges.get_mut(stream_id) {
            let priority = exchange.priority.set_client(wished);
            apply(quic, stream_id, priority);
        }
    }
}
