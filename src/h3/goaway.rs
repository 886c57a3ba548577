//! The GOAWAY frames of both sides (RFC 9114 section 5.2).
//!
//! Not here: sending (`send_commands`) and receiving (`control_stream`) the frame.

use uringcore_wire::varint;

use super::error::{Code, ConnectionError, LocalError};
use super::event::Role;
use super::stream_id;

/// The identifiers in the last GOAWAY frames: of this side's and of the peer's. A server's GOAWAY names a request
/// stream, a client's GOAWAY a push.
#[derive(Debug)]
pub(super) struct GoAway {
    role: Role,
    sent: Option<u64>,
    received: Option<u64>,
}

impl GoAway {
    pub fn new(role: Role) -> Self {
        Self {
            role,
            sent: None,
            received: None,
        }
    }

    /// Records the peer's GOAWAY.
    ///
    /// # Errors
    ///
    /// The identifier is not one of a request stream (from a server), or is above that of an earlier GOAWAY.
    pub fn receive(&mut self, id: u64) -> Result<(), ConnectionError> {
        if self.role == Role::Client && !stream_id::is_client_bidi(id) {
            return Err(ConnectionError::new(
                Code::H3_ID_ERROR,
                "GOAWAY with an ID that is not a request stream",
            ));
        }
        if self.received.is_some_and(|previous| id > previous) {
            return Err(ConnectionError::new(
                Code::H3_ID_ERROR,
                "GOAWAY with an ID above the previous one",
            ));
        }
        self.received = Some(id);
        Ok(())
    }

    /// Records a GOAWAY that the caller is about to send.
    ///
    /// # Errors
    ///
    /// The identifier is not one of a request stream (from a server), or is above that of an earlier GOAWAY.
    pub fn send(&mut self, id: u64) -> Result<(), LocalError> {
        if id > varint::MAX || (self.role == Role::Server && !stream_id::is_client_bidi(id)) {
            return Err(LocalError::InvalidId(
                "GOAWAY needs the ID of a request stream",
            ));
        }
        if self.sent.is_some_and(|previous| id > previous) {
            return Err(LocalError::InvalidId(
                "a later GOAWAY cannot have a higher ID",
            ));
        }
        self.sent = Some(id);
        Ok(())
    }

    /// Returns the identifier for a GOAWAY that lets all requests finish that have begun. `next_request` is the lowest
    /// unused request stream.
    pub fn next_id(&self, next_request: u64) -> u64 {
        match self.role {
            // The identifier must not be above that of an earlier GOAWAY.
            Role::Server => self
                .sent
                .map_or(next_request, |sent| sent.min(next_request)),
            Role::Client => 0,
        }
    }

    pub fn is_received(&self) -> bool {
        self.received.is_some()
    }

    /// True if this side will not process the request on this stream, because the stream is above the identifier in its
    /// GOAWAY.
    pub fn excludes_request(&self, stream_id: u64) -> bool {
        self.sent.is_some_and(|limit| stream_id >= limit)
    }

    /// True unless the client's GOAWAY excludes the push. The GOAWAY names the first push ID that the client does not
    /// accept.
    pub fn allows_push(&self, push_id: u64) -> bool {
        self.received.is_none_or(|end| push_id < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goaway_identifiers_never_increase() {
        let mut goaway = GoAway::new(Role::Server);
        goaway.send(8).unwrap();
        goaway.send(8).unwrap();
        goaway.send(4).unwrap();
        assert!(matches!(goaway.send(8), Err(LocalError::InvalidId(_))));
        goaway.receive(5).unwrap();
        assert_eq!(goaway.receive(6).unwrap_err().code, Code::H3_ID_ERROR);
        goaway.receive(5).unwrap();
    }

    #[test]
    fn a_server_names_request_streams_and_a_client_any_push_id() {
        let (mut server, mut client) = (GoAway::new(Role::Server), GoAway::new(Role::Client));
        assert!(matches!(server.send(3), Err(LocalError::InvalidId(_))));
        client.send(3).unwrap();
        assert!(matches!(
            client.send(varint::MAX + 1),
            Err(LocalError::InvalidId(_))
        ));
        assert_eq!(client.receive(3).unwrap_err().code, Code::H3_ID_ERROR);
        assert!(!client.is_received());
        server.receive(3).unwrap();
        assert!(server.is_received());
    }

    #[test]
    fn requests_from_the_goaway_identifier_on_stay_excluded() {
        let mut goaway = GoAway::new(Role::Server);
        assert_eq!(goaway.next_id(12), 12);
        assert!(!goaway.excludes_request(400));
        goaway.send(8).unwrap();
        assert!(goaway.excludes_request(8) && !goaway.excludes_request(4));
        assert_eq!(goaway.next_id(12), 8);
        assert_eq!(goaway.next_id(4), 4);
        assert_eq!(GoAway::new(Role::Client).next_id(12), 0);
    }

    #[test]
    fn a_clients_goaway_ends_the_pushes() {
        let mut goaway = GoAway::new(Role::Server);
        assert!(goaway.allows_push(7));
        goaway.receive(7).unwrap();
        assert!(goaway.allows_push(6) && !goaway.allows_push(7));
    }
}
