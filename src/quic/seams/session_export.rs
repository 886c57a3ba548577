//! Exports and imports sessions of clients.
//!
//! rustls resumes from a value of its own without an export or import: no field but the suite and the transport
//! parameters is public, and the value is bound to the certificate verifier of one configuration by address. Two
//! parts of rustls are accessible, though: the HKDF of a cipher suite, which derives a ticket's secret, is
//! replaceable; and in QUIC the handshake's messages pass through this crate in plain text.
//!
//! - *Export* reads NewSessionTicket messages along with rustls and records each secret as it is derived.
//! - *Import* runs a client's handshake with a server in memory, gives it a NewSessionTicket with the ticket, and
//!   answers the derivation of its secret with the ticket's. The session that rustls then stores is the ticket's,
//!   bound to the verifier that the connection will use.
//!
//! Assumed of rustls: a client derives the secret of each NewSessionTicket that it reads, at once, by
//! `expand_block` of the resumption master secret with the label "tls13 resumption" and the nonce (RFC 8446 section
//! 4.6.1), and puts the session into its store before `read_hs` returns; a verifier that accepts everything, and a
//! signature that it does not check, are enough for a handshake.
//!
//! The handling of a derivation is set for the thread, because a cipher suite is static and has no reference to a
//! connection. The calls into rustls are synchronous, so the setting affects no other call.

use std::{
    cell::RefCell,
    sync::{Arc, Mutex, PoisonError},
};

use rustls::{
    Error, NamedGroup, SignatureAlgorithm, SignatureScheme, SupportedCipherSuite,
    client::{
        ClientSessionStore, ResolvesClientCert, Resumption, Tls12ClientSessionValue,
        Tls13ClientSessionValue, danger::ServerCertVerifier,
    },
    crypto::{
        CryptoProvider, aws_lc_rs as provider,
        tls13::{HkdfExpander, OkmBlock, OutputLengthError},
    },
    pki_types::{CertificateDer, ServerName},
    quic,
    server::{ClientHello, ResolvesServerCert},
    sign::{CertifiedKey, Signer, SigningKey},
    time_provider::TimeProvider,
    version::TLS13,
};
use uringcore_wire::tls::{NEW_SESSION_TICKET, message, session_ticket::NewSessionTicket};

use super::hkdf_wrapper;

/// The handling of ticket secrets that are derived on this thread. Calls into rustls are synchronous, so it affects no
/// other call.
enum Seam {
    Closed,
    /// Nonces and secrets are recorded.
    Listening(Vec<Derived>),
    /// This secret replaces the next one.
    Answering(Vec<u8>),
}

struct Derived {
    nonce: Vec<u8>,
    secret: Vec<u8>,
}

thread_local! {
    static SEAM: RefCell<Seam> = const { RefCell::new(Seam::Closed) };
}

/// Runs `run` with the seam set, and returns the seam afterwards.
fn with_seam<R>(seam: Seam, run: impl FnOnce() -> R) -> (R, Seam) {
    struct Restore(Option<Seam>);
    impl Drop for Restore {
        fn drop(&mut self) {
            if let Some(before) = self.0.take() {
                SEAM.replace(before);
            }
        }
    }
    let mut restore = Restore(Some(SEAM.replace(seam)));
    let result = run();
    let before = restore.0.take().unwrap_or(Seam::Closed);
    (result, SEAM.replace(before))
}

/// True if this thread is importing a ticket: the certificate to verify is not the peer's, but part of a handshake in
/// memory.
pub fn is_importing() -> bool {
    SEAM.with_borrow(|seam| matches!(seam, Seam::Answering(_)))
}

/// `suite` with the seam in its key derivation.
pub fn seamed(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    hkdf_wrapper::with_expanders(suite, seam)
}

struct SeamedExpander(Box<dyn HkdfExpander>);

fn seam(expander: Box<dyn HkdfExpander>) -> Box<dyn HkdfExpander> {
    Box::new(SeamedExpander(expander))
}

impl HkdfExpander for SeamedExpander {
    fn expand_slice(&self, info: &[&[u8]], output: &mut [u8]) -> Result<(), OutputLengthError> {
        self.0.expand_slice(info, output)
    }

    fn expand_block(&self, info: &[&[u8]]) -> OkmBlock {
        let block = self.0.expand_block(info);
        match nonce_of_ticket(info) {
            Some(nonce) => SEAM.with_borrow_mut(|seam| match seam {
                Seam::Closed => block,
                Seam::Listening(derived) => {
                    let secret = block.as_ref().to_vec();
                    derived.push(Derived { nonce, secret });
                    block
                }
                Seam::Answering(secret) => OkmBlock::new(secret),
            }),
            None => block,
        }
    }

    fn hash_len(&self) -> usize {
        self.0.hash_len()
    }
}

/// The context of an HKDF label (RFC 8446 section 7.1) if the label is a ticket's (section 4.6.1).
fn nonce_of_ticket(info: &[&[u8]]) -> Option<Vec<u8>> {
    const LABEL: &[u8] = b"tls13 resumption";
    let joined = info.concat();
    let (label, context) = joined.get(3..)?.split_at_checked(LABEL.len())?;
    let is_ticket = usize::from(joined[2]) == LABEL.len() && label == LABEL;
    is_ticket.then(|| context.get(1..).map(<[u8]>::to_vec))?
}

/// Reads the tickets of a client along with rustls.
#[derive(Default)]
pub struct Exporter {
    /// The beginning of an incomplete message.
    unfinished: Vec<u8>,
}

impl Exporter {
    /// Runs `read`, in which rustls processes `messages` that follow the handshake. Returns the tickets among them,
    /// with their secrets.
    pub fn read<R>(
        &mut self,
        messages: &[u8],
        read: impl FnOnce() -> R,
    ) -> (R, Vec<(NewSessionTicket, Vec<u8>)>) {
        let (result, seam) = with_seam(Seam::Listening(Vec::new()), read);
        let Seam::Listening(mut derived) = seam else {
            return (result, Vec::new());
        };
        self.unfinished.extend_from_slice(messages);
        let mut tickets = Vec::new();
        while let Some((kind, content, rest)) = message(&self.unfinished) {
            if kind == NEW_SESSION_TICKET
                && let Some(ticket) = NewSessionTicket::read(content)
                && let Some(at) = derived.iter().position(|found| found.nonce == ticket.nonce)
            {
                tickets.push((ticket, derived.swap_remove(at).secret));
            }
            self.unfinished = rest.to_vec();
        }
        // rustls rejects longer messages, and then nothing more is read.
        self.unfinished.truncate(MESSAGE_MAX);
        (result, tickets)
    }
}

/// The objects that rustls binds a session to.
pub type Judges<'a> = (
    &'a Arc<dyn ServerCertVerifier>,
    &'a Arc<dyn ResolvesClientCert>,
);

/// A session from elsewhere.
pub struct Foreign<'a> {
    /// The session's NewSessionTicket message as of now, with an empty nonce.
    pub message: &'a [u8],
    /// The secret to derive for it.
    pub secret: &'a [u8],
    /// The session's suite, [`seamed`].
    pub suite: SupportedCipherSuite,
    /// The server's.
    pub transport_params: &'a [u8],
    /// The server's, DER, leaf first; empty if unknown.
    pub certificates: &'a [Vec<u8>],
}

/// The session as rustls stores it, for connections whose configuration has these `judges`. `None` if rustls does not
/// accept it.
pub fn import(
    foreign: &Foreign<'_>,
    name: &ServerName<'static>,
    judges: Judges<'_>,
    clock: Arc<dyn TimeProvider>,
) -> Option<Tls13ClientSessionValue> {
    let slot = Arc::new(Slot::default());
    let (client, _) = with_seam(Seam::Answering(foreign.secret.to_vec()), || {
        let mut client = shake_hands(foreign, name, judges, clock, slot.clone())?;
        client.read_hs(foreign.message)
    });
    if let Err(error) = client {
        log::debug!("a session ticket cannot be used: {error}");
        return None;
    }
    slot.take()
}

/// A client after a handshake with a server in memory. `verifier` is called, and can check [`is_importing`].
fn shake_hands(
    foreign: &Foreign<'_>,
    name: &ServerName<'static>,
    (verifier, credentials): Judges<'_>,
    clock: Arc<dyn TimeProvider>,
    slot: Arc<Slot>,
) -> Result<quic::ClientConnection, Error> {
    let provider = Arc::new(CryptoProvider {
        cipher_suites: vec![foreign.suite],
        kx_groups: vec![provider::kx_group::X25519],
        ..provider::default_provider()
    });
    let mut config = rustls::ClientConfig::builder_with_details(provider.clone(), clock.clone())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier.clone())
        .with_client_cert_resolver(credentials.clone());
    config.resumption = Resumption::store(slot);
    let mut client =
        quic::ClientConnection::new(Arc::new(config), quic::Version::V1, name.clone(), vec![])?;

    let chain = match foreign.certificates.is_empty() {
        true => vec![CertificateDer::from(UNKNOWN_CERTIFICATE)],
        false => foreign
            .certificates
            .iter()
            .cloned()
            .map(Into::into)
            .collect(),
    };
    let identity = CertifiedKey::new(chain, Arc::new(NoKey));
    let mut config = rustls::ServerConfig::builder_with_details(provider, clock)
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Always(Arc::new(identity))));
    config.send_tls13_tickets = 0;
    let params = foreign.transport_params.to_vec();
    let mut server = quic::ServerConnection::new(Arc::new(config), quic::Version::V1, params)?;

    let mut hello = Vec::new();
    client.write_hs(&mut hello);
    server.read_hs(&hello)?;
    while client.is_handshaking() {
        let mut flight = Vec::new();
        let key_change = server.write_hs(&mut flight);
        if key_change.is_none() && flight.is_empty() {
            return Err(Error::HandshakeNotComplete);
        }
        client.read_hs(&flight)?;
    }
    Ok(client)
}

/// True for the placeholder of a certificate that a ticket does not contain.
pub fn is_unknown(certificate: &[u8]) -> bool {
    certificate == UNKNOWN_CERTIFICATE
}

/// Stores the one session of an import.
#[derive(Debug, Default)]
struct Slot(Mutex<Option<Tls13ClientSessionValue>>);

impl Slot {
    fn take(&self) -> Option<Tls13ClientSessionValue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ClientSessionStore for Slot {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        None
    }
}

#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl ResolvesServerCert for Always {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// Signs nothing; the verifier does not check the signature.
#[derive(Debug)]
struct NoKey;

impl SigningKey for NoKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let scheme = offered
            .iter()
            .copied()
            .find(|scheme| *scheme == NO_KEY_SCHEME)?;
        Some(Box::new(NoSigner(scheme)))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }
}

#[derive(Debug)]
struct NoSigner(SignatureScheme);

impl Signer for NoSigner {
    fn sign(&self, _message: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(vec![0])
    }

    fn scheme(&self) -> SignatureScheme {
        self.0
    }
}

/// The limit of rustls for one message.
const MESSAGE_MAX: usize = 1 << 16;
const NO_KEY_SCHEME: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;
/// An empty SEQUENCE: no certificate is that short.
const UNKNOWN_CERTIFICATE: &[u8] = &[0x30, 0x00];

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    use crate::seams::bare_quinn;

    thread_local! {
        static DERIVED: RefCell<Vec<(Vec<u8>, Vec<u8>)>> = const { RefCell::new(Vec::new()) };
        static PUT: Cell<usize> = const { Cell::new(0) };
    }

    struct Recording(Box<dyn HkdfExpander>);

    impl HkdfExpander for Recording {
        fn expand_slice(&self, info: &[&[u8]], out: &mut [u8]) -> Result<(), OutputLengthError> {
            assert_eq!(nonce_of_ticket(info), None, "it is derived as a block");
            self.0.expand_slice(info, out)
        }

        fn expand_block(&self, info: &[&[u8]]) -> OkmBlock {
            let block = self.0.expand_block(info);
            if let Some(nonce) = nonce_of_ticket(info) {
                DERIVED.with_borrow_mut(|all| all.push((nonce, block.as_ref().to_vec())));
            }
            block
        }

        fn hash_len(&self) -> usize {
            self.0.hash_len()
        }
    }

    #[derive(Debug)]
    struct Counting;

    impl ClientSessionStore for Counting {
        fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

        fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
            None
        }

        fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

        fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
            None
        }

        fn remove_tls12_session(&self, _: &ServerName<'static>) {}

        fn insert_tls13_ticket(&self, _: ServerName<'static>, _: Tls13ClientSessionValue) {
            PUT.set(PUT.get() + 1);
        }

        fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
            None
        }
    }

    #[test]
    fn bare_rustls_derives_the_secret_of_a_ticket_and_stores_it_before_it_returns() {
        let plain = provider::cipher_suite::TLS13_AES_128_GCM_SHA256;
        let suite = hkdf_wrapper::with_expanders(plain, |expander| Box::new(Recording(expander)));
        let (mut client, server) = bare_quinn::tls(vec![suite]);
        client.resumption = Resumption::store(Arc::new(Counting));
        let name = ServerName::try_from("localhost").unwrap();
        let (client, server) = (Arc::new(client), Arc::new(server));
        let version = quic::Version::V1;
        let mut client = quic::ClientConnection::new(client, version, name, vec![]).unwrap();
        let mut server = quic::ServerConnection::new(server, version, vec![]).unwrap();
        let (mut messages, mut rounds) = (Vec::new(), 0);
        while client.is_handshaking() || server.is_handshaking() {
            let mut flight = Vec::new();
            client.write_hs(&mut flight);
            server.read_hs(&flight).unwrap();
            let mut flight = Vec::new();
            server.write_hs(&mut flight);
            match client.is_handshaking() {
                true => client.read_hs(&flight).unwrap(),
                false => messages.extend(flight),
            }
            rounds += 1;
            assert!(rounds < 20, "the handshake does not end");
        }
        server.write_hs(&mut messages);
        assert!(DERIVED.take().is_empty() && PUT.get() == 0);
        let (kind, content, _) = message(&messages).unwrap();
        assert_eq!(kind, NEW_SESSION_TICKET);
        let ticket = NewSessionTicket::read(content).unwrap();
        client.read_hs(&messages).unwrap();
        let derived = DERIVED.take();
        let secret = derived.iter().find(|(nonce, _)| *nonce == ticket.nonce);
        assert_eq!(secret.unwrap().1.len(), 32);
        assert_eq!(PUT.get(), derived.len(), "as many sessions as secrets");
    }
}
