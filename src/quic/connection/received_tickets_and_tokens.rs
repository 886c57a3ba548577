//! The session tickets and address validation tokens that a client receives for its next connections.
//!
//! Not here: their stores (`tls::sessions`, `address_tokens`).

use std::sync::Arc;

use crate::{Event, address_tokens::ConnectionTokens, tls::TicketInbox};

pub(super) struct TicketsAndTokens {
    tickets: Arc<TicketInbox>,
    /// The address tokens of a client. `None` on a server.
    tokens: Option<Arc<ConnectionTokens>>,
}

impl TicketsAndTokens {
    pub fn new(tickets: Arc<TicketInbox>, tokens: Option<Arc<ConnectionTokens>>) -> Self {
        Self { tickets, tokens }
    }

    /// Replaces the source of tickets, after another TLS session has replaced the first.
    pub fn begin_again(&mut self, tickets: Arc<TicketInbox>) {
        self.tickets = tickets;
    }

    /// Sets the negotiated version, for which new address tokens are valid.
    pub fn set_version(&self, version: u32) {
        if let Some(tokens) = &self.tokens {
            tokens.set_version(version);
        }
    }

    pub fn tokens(&self) -> Option<Arc<ConnectionTokens>> {
        self.tokens.clone()
    }

    /// The tickets and tokens that have arrived since the last call.
    pub fn take_new(&self) -> impl Iterator<Item = Event> {
        let tickets = self.tickets.take().into_iter();
        let tickets = tickets.map(|ticket| Event::SessionTicket(Box::new(ticket)));
        let tokens = self.tokens.as_ref().map(|tokens| tokens.take_new());
        let tokens = tokens.into_iter().flatten();
        tickets.chain(tokens.map(|(token, version)| Event::NewToken { token, version }))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use quinn_proto::TokenStore;
    use uringcore_wire::packet_header::{VERSION_1, VERSION_2};

    use super::*;

    #[test]
    fn new_tokens_are_reported_once_with_their_version() {
        let tokens = ConnectionTokens::new(Default::default(), Arc::default(), VERSION_1);
        let tokens = Arc::new(tokens);
        let credentials = TicketsAndTokens::new(Arc::default(), Some(tokens.clone()));
        assert_eq!(credentials.take_new().next(), None);
        let token = Bytes::from_static(b"token");
        credentials.set_version(VERSION_2);
        tokens.insert("localhost", token.clone());
        let version = VERSION_2;
        let events: Vec<_> = credentials.take_new().collect();
        assert_eq!(events, [Event::NewToken { token, version }]);
        assert_eq!(credentials.take_new().next(), None);
    }

    #[test]
    fn a_server_reports_no_tokens() {
        let mut credentials = TicketsAndTokens::new(Arc::default(), None);
        credentials.set_version(VERSION_1);
        credentials.begin_again(Arc::default());
        assert!(credentials.tokens().is_none());
        assert_eq!(credentials.take_new().next(), None);
    }
}
