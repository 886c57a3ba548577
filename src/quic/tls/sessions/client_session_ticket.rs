//! Session tickets of clients as plain data, which can outlive the process that has received them (RFC 8446 section
//! 4.6.1).
//!
//! An imported ticket need not be trustworthy: the resumed handshake proves that the server has its secret. Not here:
//! export from and import into rustls (`workarounds::session_export`), and the use of a ticket
//! (`client_session_store`).

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use quinn_proto::transport_parameters::TransportParameters;
use rustls::{client::Tls13ClientSessionValue, pki_types::ServerName};
use uringcore_wire::tls::session_ticket::NewSessionTicket;

use crate::{
    tls::{ApplicationClock, CipherSuite, ConfigError},
    workarounds::{
        hkdf_labels::with_labels,
        session_export::{self, Verifiers},
    },
};

/// The data with which a client resumes a session.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionTicket {
    /// The name with which the client has connected to the server. The ticket is not valid for another name.
    pub server_name: String,
    pub cipher_suite: CipherSuite,
    /// The ticket that the server has issued, opaque to the client.
    pub ticket: Vec<u8>,
    /// The pre-shared key. It must be kept as secret as a private key.
    pub secret: Vec<u8>,
    pub age_add: u32,
    pub issued: SystemTime,
    pub lifetime: Duration,
    /// True if the server accepts 0-RTT data with this ticket.
    pub early_data: bool,
    /// The server's transport parameters. Their limits apply to 0-RTT data (RFC 9000 section 7.4.1).
    pub transport_params: Vec<u8>,
    /// The server's certificate chain in DER, leaf first, because a resumed handshake does not contain it.
    pub peer_certificates: Vec<Vec<u8>>,
    /// The QUIC version of the ticket. Only connections that begin with this version use it (RFC 9369 section 5).
    /// `None`: every connection does.
    pub version: Option<u32>,
}

impl SessionTicket {
    /// Returns an error for values that no server can have issued.
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

    /// The age of the ticket at the time `now`. `None` if it has expired, or was issued later.
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

/// A NewSessionTicket message with the content of `ticket`, for a client that gets it when the ticket has this age.
fn message_of(ticket: &SessionTicket, age: Duration) -> Option<Vec<u8>> {
    let left = Duration::from_secs((ticket.lifetime - age).as_secs().max(1));
    NewSessionTicket {
        lifetime: left,
        // rustls counts the ticket's age from now on (RFC 8446 section 4.2.11.1), so the present age is added.
        age_add: ticket.age_add.wrapping_add(age.as_millis() as u32),
        nonce: Vec::new(),
        ticket: ticket.ticket.clone(),
        early_data: ticket.early_data,
    }
    .write()
}

/// Converts the ticket to a session, for connections whose configuration has these certificate verifiers. `None` if the
/// ticket has expired or rustls rejects it.
pub(in crate::tls) fn import(
    ticket: &SessionTicket,
    name: &ServerName<'static>,
    verifiers: Verifiers<'_>,
    clock: &ApplicationClock,
) -> Option<Tls13ClientSessionValue> {
    let message = message_of(ticket, ticket.age(clock.0.now())?)?;
    let imported = session_export::ImportedSession {
        message: &message,
        secret: &ticket.secret,
        // The keys of the resumed connection are derived with this suite, so it needs the labels of other QUIC
        // versions, too.
        suite: with_labels(session_export::with_secret_hook(
            ticket.cipher_suite.in_provider(),
        )),
        transport_params: &ticket.transport_params,
        certificates: &ticket.peer_certificates,
    };
    session_export::import(&imported, name, verifiers, Arc::new(clock.clone()))
}

/// The bounds of a ticket's fields in bytes. A ticket must fit in a ClientHello.
const TICKET_BYTES_MAX: usize = 1 << 15;
const PARAMS_BYTES_MAX: usize = 1 << 14;
const CERTIFICATES_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8446 section 4.2.11.1: a ticket's age and `age_add` are added modulo 2^32.
    #[test]
    fn a_tickets_age_is_added_modulo_2_to_the_32() {
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
