//! The negotiated values of a connection: version, application protocol, names, cryptography, transport parameters.
//!
//! Not here: the TLS session itself (`tls::handshake`), and tickets for later connections (`received_tickets_and_tokens`).

use std::{net::SocketAddr, sync::Arc};

use quinn_proto as quinn;

use crate::{
    paths::peer_transport_parameters::{PeerParameters, PreferredAddress},
    qlog::ConnectionIds,
    tls::{SessionDetails, Versions},
};

pub(super) struct Negotiated {
    alpn: Option<Vec<u8>>,
    server_name: Option<String>,
    cipher_suite: Option<u16>,
    group: Option<u16>,
    peer_parameters: PeerParameters,
    versions: Arc<Versions>,
    ids: ConnectionIds,
}

impl Negotiated {
    /// The values at the beginning of a handshake. `server_name` is the name that a client connects to; `None` on a
    /// server.
    pub fn new(details: &SessionDetails, server_name: Option<String>) -> Self {
        Self {
            alpn: None,
            server_name,
            cipher_suite: None,
            group: None,
            peer_parameters: PeerParameters::default(),
            versions: details.versions.clone(),
            ids: details.hook.ids(),
        }
    }

    /// Updates the values for a client that restarts with another version.
    pub fn begin_again(&mut self, details: &SessionDetails) {
        self.versions = details.versions.clone();
        self.ids = details.hook.ids();
    }

    /// Updates the values after the peer's ClientHello or ServerHello was processed.
    pub fn negotiate(&mut self, details: SessionDetails) {
        self.alpn = details.alpn;
        if details.server_name.is_some() {
            self.server_name = details.server_name;
        }
    }

    /// Updates the values after the handshake is complete.
    pub fn establish(&mut self, details: &SessionDetails) {
        self.cipher_suite = details.cipher_suite;
        self.group = details.group;
        let encoded = details.peer_parameters.as_deref();
        self.peer_parameters = PeerParameters::read(encoded.unwrap_or_default());
    }

    pub fn alpn(&self) -> Option<&[u8]> {
        self.alpn.as_deref()
    }

    pub fn is_http3(&self) -> bool {
        self.alpn() == Some(b"h3")
    }

    /// The server's name: on a client the name it connects to, on a server the name in the client's SNI.
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// The cipher suite's number (RFC 8446 section B.4).
    pub fn cipher_suite(&self) -> Option<u16> {
        self.cipher_suite
    }

    /// The number of the key exchange group (RFC 8446 section 4.2.7).
    pub fn group(&self) -> Option<u16> {
        self.group
    }

    pub fn versions(&self) -> &Versions {
        &self.versions
    }

    /// The connection IDs in the first packets of this side and of the peer.
    pub fn ids(&self) -> &ConnectionIds {
        &self.ids
    }

    /// The peer's initial limit on all streams' data, in bytes.
    pub fn initial_max_data(&self) -> u64 {
        self.peer_parameters.initial_max_data
    }

    /// True if the peer forbids that this side migrates to another address (RFC 9000 section 18.2).
    pub fn forbids_migration(&self) -> bool {
        self.peer_parameters.disable_active_migration
    }

    /// The preferred address of a server whose address is `remote`. `None` if its clients must not use it.
    pub fn preferred_address(&self, remote: SocketAddr) -> Option<PreferredAddress> {
        self.peer_parameters.preferred_for(remote)
    }
}

/// The current details of quinn-proto's TLS session.
pub(super) fn session_details(conn: &quinn::Connection) -> SessionDetails {
    let details = conn.crypto_session().handshake_data();
    let details = details.and_then(|details| details.downcast().ok());
    *details.expect("sessions of this crate always have details")
}

#[cfg(test)]
mod tests {
    use quinn_proto::Side;
    use uringcore_wire::packet_header::{VERSION_1, VERSION_2};

    use super::*;

    fn details(version: u32) -> SessionDetails {
        SessionDetails {
            hook: Arc::default(),
            tickets: Arc::default(),
            versions: Versions::only(Side::Client, version),
            alpn: None,
            server_name: None,
            resumed: false,
            cipher_suite: None,
            group: None,
            peer_parameters: None,
        }
    }

    #[test]
    fn values_of_the_handshake_appear_when_they_are_negotiated() {
        let mut negotiated = Negotiated::new(&details(VERSION_1), Some("localhost".into()));
        negotiated.begin_again(&details(VERSION_2));
        assert_eq!(negotiated.versions().current(), VERSION_2);
        assert!(negotiated.alpn().is_none() && !negotiated.is_http3());
        negotiated.negotiate(SessionDetails {
            alpn: Some(b"h3".to_vec()),
            ..details(VERSION_2)
        });
        assert!(negotiated.is_http3());
        assert_eq!(negotiated.server_name(), Some("localhost"));
        negotiated.negotiate(SessionDetails {
            server_name: Some("example.com".into()),
            ..details(VERSION_2)
        });
        assert_eq!(negotiated.server_name(), Some("example.com"));
        assert_eq!(
            (negotiated.cipher_suite(), negotiated.group()),
            (None, None)
        );
        negotiated.establish(&SessionDetails {
            cipher_suite: Some(0x1301),
            group: Some(0x1d),
            ..details(VERSION_2)
        });
        assert_eq!(negotiated.cipher_suite(), Some(0x1301));
        assert_eq!(negotiated.group(), Some(0x1d));
    }

    #[test]
    fn a_peer_without_transport_parameters_allows_no_data() {
        let mut negotiated = Negotiated::new(&details(VERSION_1), None);
        assert_eq!(negotiated.initial_max_data(), 0);
        // The transport parameters `initial_max_data` of 50 and `disable_active_migration`.
        let encoded = vec![0x04, 1, 50, 0x0c, 0];
        negotiated.establish(&SessionDetails {
            peer_parameters: Some(encoded),
            ..details(VERSION_1)
        });
        assert!(negotiated.forbids_migration());
        assert_eq!(negotiated.initial_max_data(), 50);
        assert_eq!(
            negotiated.preferred_address(([192, 0, 2, 1], 443).into()),
            None
        );
        negotiated.establish(&details(VERSION_1));
        assert!(!negotiated.forbids_migration());
        assert_eq!(negotiated.initial_max_data(), 0);
    }
}
