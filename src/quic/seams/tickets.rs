//! Sessions of clients that go to other processes and come from there.
//!
//! rustls resumes from a value of its own that has no way out and no way in: no field but the suite
//! and the transport parameters is public, and it is bound to the certificate verifier of one
//! configuration by address. Two of its seams are public, though: the HKDF of a cipher suite, which
//! derives a ticket's secret, is pluggable; and in QUIC the handshake's messages pass through our
//! hands in the clear.
//!
//! - *Export* reads NewSessionTicket messages along with rustls and notes each secret as it is
//!   derived.
//! - *Import* has a client shake hands with a server in memory, hands it a NewSessionTicket with the
//!   ticket, and answers the derivation of its secret with the ticket's. What rustls then stores is
//!   the session of the ticket, bound to the verifier that the connection will use.
//!
//! Assumed of rustls: a client derives the secret of each NewSessionTicket that it reads, at once, by
//! `expand_block` of the resumption master secret with the label "tls13 resumption" and the nonce
//! (RFC 8446 section 4.6.1), and puts the session into its store before `read_hs` returns; a verifier
//! that is content, and a signature that it does not look at, are all that a handshake needs.
//!
//! What is to become of a derivation is set for the thread, because a cipher suite lives for ever and
//! knows no connection: rustls has no other way to tell its HKDF anything. Its calls are synchronous,
//! so nothing outside of one sees what was set for it.

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

use super::hkdf;

/// What happens on this thread to secrets of tickets as they are derived. Calls into rustls are
/// synchronous, so nothing outside of one call sees what was set for it.
enum Seam {
    Closed,
    /// Nonces and secrets are noted.
    Listening(Vec<Derived>),
    /// The next secret is this one.
    Answering(Vec<u8>),
}

struct Derived {
    nonce: Vec<u8>,
    secret: Vec<u8>,
}

thread_local! {
    static SEAM: RefCell<Seam> = const { RefCell::new(Seam::Closed) };
}

/// Runs `run` with the seam set, and gives back what became of it.
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

/// True if this thread is importing a ticket: the certificate shown now is not the peer's, but part
/// of a handshake with ourselves.
pub fn is_importing() -> bool {
    SEAM.with_borrow(|seam| matches!(seam, Seam::Answering(_)))
}

/// `suite` with the seam in its key derivation.
pub fn seamed(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    hkdf::with_expanders(suite, seam)
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

/// Reads the tickets along with rustls that a client gets.
#[derive(Default)]
pub struct Exporter {
    /// The beginning of a message whose end has not come.
    unfinished: Vec<u8>,
}

impl Exporter {
    /// Runs `read`, in which rustls takes in `messages` that follow the handshake. Gives back the
    /// tickets among them, with their secrets.
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
        // rustls refuses longer messages, and then nobody reads on.
        self.unfinished.truncate(MESSAGE_MAX);
        (result, tickets)
    }
}

/// What rustls binds a session to.
pub type Judges<'a> = (
    &'a Arc<dyn ServerCertVerifier>,
    &'a Arc<dyn ResolvesClientCert>,
);

/// A session that was made elsewhere.
pub struct Foreign<'a> {
    /// The NewSessionTicket message that it would come by now, with an empty nonce.
    pub message: &'a [u8],
    /// What is to be derived for that.
    pub secret: &'a [u8],
    /// Of the session, [`seamed`].
    pub suite: SupportedCipherSuite,
    /// The server's.
    pub transport_params: &'a [u8],
    /// The server's, DER, leaf first; none if they are not known.
    pub certificates: &'a [Vec<u8>],
}

/// The session as rustls has it, fit for connections whose configuration has these judges. `None`
/// when it is not one that rustls takes.
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

/// A client that has shaken hands with a server in memory. `verifier` is asked, and knows by
/// [`is_importing`] what for.
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

/// True if this is what stands for a certificate that a ticket does not tell.
pub fn is_unknown(certificate: &[u8]) -> bool {
    certificate == UNKNOWN_CERTIFICATE
}

/// Keeps the one session that an import is about.
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

/// Signs nothing, for a verifier that knows not to look.
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

/// The most that rustls takes of one message.
const MESSAGE_MAX: usize = 1 << 16;
const NO_KEY_SCHEME: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;
/// An empty SEQUENCE: no certificate is that short.
const UNKNOWN_CERTIFICATE: &[u8] = &[0x30, 0x00];

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    use crate::seams::bare;

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
        let suite = hkdf::with_expanders(plain, |expander| Box::new(Recording(expander)));
        let (mut client, server) = bare::tls(vec![suite]);
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
