//! Who is served first (RFC 9218): what the client says of a response, and what the application does.
//!
//! Not here: how the words are read (`h3::priority`), and who is served when (`quic::streams`).
//!
//! Responses of a client that never sent a priority signal share the connection. Once a client has sent one, a
//! request without a signal has RFC 9218's default, and such responses go one after the other.

use uringcore_h3::{Field, Priority, Signal};
use uringcore_quic as quic;

use super::connection::Connection;

/// What is wished for one response.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wishes {
    /// The client's last word.
    client: Priority,
    /// The application's, which goes before it (RFC 9218 section 8).
    application: Signal,
}

impl Wishes {
    /// How the response is served beside others.
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
    /// A request has come, with these fields.
    ///
    /// A client that never says anything of priorities shares its connection among its responses, as
    /// streams of QUIC do. The default of RFC 9218 section 4.2 would have them served one after the other,
    /// so that one download keeps all later ones waiting; who knows the signals can say so. A client that
    /// has given one knows them, and means the default where it says nothing: browsers leave it out.
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

    /// The client has said in PRIORITY_UPDATE how a response is to be served from now on.
    pub(super) fn reprioritize(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        wished: Priority,
    ) {
        self.knows_priorities = true;
        // What is left of a response that is with QUIC whole keeps its place.
        if let Some(exchange) = self.exchanges.get_mut(&stream_id) {
            exchange.wishes.client = wished;
            apply(quic, stream_id, exchange.wishes.application.over(wished));
        }
    }

    /// The application has said in its response's fields how it is to be served.
    pub(super) fn override_priority(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        fields: &[(&[u8], &[u8])],
    ) {
        if let Some(said) = Signal::of(fields)
            && let Some(exchange) = self.exchanges.get_mut(&stream_id)
        {
            exchange.wishes.application = said;
            apply(quic, stream_id, said.over(exchange.wishes.client));
        }
    }
}

fn apply(quic: &mut quic::Connection, stream_id: u64, priority: Priority) {
    if let Some(priority) = quic::Priority::new(priority.urgency, priority.incremental) {
        // A stream that refuses has ended.
        let _ = quic.set_priority(stream_id, priority);
    }
}
