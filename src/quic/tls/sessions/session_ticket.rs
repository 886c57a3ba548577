//! Session tickets of clients as plain data, which can outlive the process that received them (RFC 8446 section
//! 4.6.1).
//!
//! No data of a peer is trusted here: the resumed handshake itself proves that the server has the secret. Not here:
//! export from and import into rustls (`seams::session_export`), and the use of a ticket (`resumption`).

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use quinn_proto::transport_parameters::TransportParameters;
use rustls::{client::Tls13ClientSessionValue, pki_types::ServerName};
use uringcore_wire::tls::session_ticket::NewSessionTicket;

use crate::{
    seams::{
        key_labels::with_labels,
        session_export::{self, Judges},
    },
    tls::{CipherSuite, ConfigError, HostClock},
};

/// The data that a client needs to resume a session.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionTicket {
    /// The name that was used to connect to the server. The ticket is valid for no other name.
    pub server_name: String,
    pub cipher_suite: CipherSuite,
    /// The ticket's identity for the server.
    pub ticket: Vec<u8>,
    /// The pre-shared key, as secret as a private key.
    pub secret: Vec<u8>,
    pub age_add: u32,
    pub issued: SystemTime,
    pub lifetime: Duration,
    /// True if the server accepts 0-RTT data with it.
    pub early_data: bool,
    /// The server's transport parameters, whose limits apply to 0-RTT data (RFC 9000 section 7.4.1).
    pub transport_params: Vec<u8>,
    /// The server's certificates, DER, leaf first: a resumed handshake has none.
    pub peer_certificates: Vec<Vec<u8>>,
    /// The ticket's QUIC version: only connections that begin with it use the ticket (RFC 9369 section 5). `None`:
    /// the host guarantees that it fits.
    pub version: Option<u32>,
}

impl SessionTicket {
    /// Rejects values that no server can have issued, before they are used.
    pub(in crate::tls) fn check(&self) -> Result<(), ConfigError> {
        let hash = match self.cipher_suite {
            CipherSuite::Aes256GcmSha384 => 48,
            CipherSuite::Aes128GcmSha256 | CipherSuite::ChaCha20Poly1305Sha256 => 32,
        };
        let complain = |message: &str| Err(ConfigError::new("session_ticket", message));
        if self.secret.len() != hash {
            return complain("the secret's length is not that of the cipher suite's hash");
        }
        if !(1..=TICKET_BYTES_MAX).contains(&self.ticket.len()) {
            return complain("a ticket has from 1 to 32768 bytes");
        }
        if self.transport_params.len() > PARAMS_BYTES_MAX {
            return complain("the transport parameters are too long");
        }
        let side = quinn_proto::Side::Client;
        let params = TransportParameters::read(side, &mut self.transport_params.as_slice());
        if self.early_data && params.is_err() {
            return complain("0-RTT data needs the server's transport parameters, which are bad");
        }
        if self.peer_certificates.iter().map(Vec::len).sum::<usize>() > CERTIFICATES_BYTES_MAX {
            return complain("the server's certificates are too long");
        }
        Ok(())
    }

    /// The age of the ticket at `now`; `None` if it has expired or is from the future.
    fn age(&self, now: SystemTime) -> Option<Duration> {
        let age = now.duration_since(self.issued).ok()?;
        (age < self.lifetime).then_some(age)
    }
}

impl fmt::Debug for SessionTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionTicket")
            .field("server_name", &self.server_name)
            .field("cipher_suite", &self.cipher_suite)
            .field("early_data", &self.early_data)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// A NewSessionTicket message with the content of `ticket`, for a client that gets it at `age`.
fn message_of(ticket: &SessionTicket, age: Duration) -> Option<Vec<u8>> {
    let left = Duration::from_secs((ticket.lifetime - age).as_secs().max(1));
    NewSessionTicket {
        lifetime: left,
        // rustls counts the ticket's age from now on (RFC 8446 section 4.2.11.1).
        age_add: ticket.age_add.wrapping_add(age.as_millis() as u32),
        nonce: Vec::new(),
        ticket: ticket.ticket.clone(),
        early_data: ticket.early_data,
    }
    .write()
}

/// The session of `ticket`, for connections whose configuration has these judges. `None` if the ticket has expired
/// or rustls does not accept it.
pub(in crate::tls) fn import(
    ticket: &SessionTicket,
    name: &ServerName<'static>,
    judges: Judges<'_>,
    clock: &HostClock,
) -> Option<Tls13ClientSessionValue> {
    let message = message_of(ticket, ticket.age(clock.0.now())?)?;
    let foreign = session_export::Foreign {
        message: &message,
        secret: &ticket.secret,
        // The keys of a resumed connection are derived with the session's suite.
        suite: with_labels(session_export::seamed(ticket.cipher_suite.of_provider())),
        transport_params: &ticket.transport_params,
        certificates: &ticket.peer_certificates,
    };
    session_export::import(&foreign, name, judges, Arc::new(clock.clone()))
}

/// A ticket has to fit in a ClientHello.
const TICKET_BYTES_MAX: usize = 1 << 15;
const PARAMS_BYTES_MAX: usize = 1 << 14;
const CERTIFICATES_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A ticket's age and `age_add` are added modulo 2^32 (RFC 8446 section 4.2.11.1).
    #[test]
    fn the_age_of_a_ticket_is_added_where_the_sum_wraps() {
        let ticket = SessionTicket {
            server_name: "localhost".into(),
            cipher_suite: CipherSuite::Aes128GcmSha256,
            ticket: vec![1],
            secret: vec![0; 32],
            age_add: u32::MAX - 1_000,
            issued: SystemTime::UNIX_EPOCH,
            lifetime: Duration::from_secs(7_200),
            early_data: false,
            transport_params: Vec::new(),
            peer_certificates: Vec::new(),
            version: None,
        };
        let message = message_of(&ticket, Duration::from_secs(3)).unwrap();
        let read = NewSessionTicket::read(&message[4..]).unwrap();
        assert_eq!(read.age_add, 1_999);
    }
}
