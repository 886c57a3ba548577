//! Session tickets of clients that outlive the process which got them (RFC 8446 section 4.6.1).
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
//! Nothing of a peer's is believed on the way: whether the server owns the secret shows in the
//! resumed handshake itself. Not here: when a ticket is used (`resumption`).

use std::{
    cell::RefCell,
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, SystemTime},
};

use quinn_proto::transport_parameters::TransportParameters;
use rustls::{
    CipherSuite as SuiteName, Error, NamedGroup, SignatureAlgorithm, SignatureScheme,
    SupportedCipherSuite, Tls13CipherSuite,
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
    version::TLS13,
};

use crate::wire::tls::{NEW_SESSION_TICKET, message, session_ticket::NewSessionTicket};
use crate::{
    seams::hkdf,
    tls::{CipherSuite, ConfigError, HostClock, versions::with_labels},
};

/// What a client needs to resume a session, as plain data.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionTicket {
    /// The name that the server was connected to by. It resumes for no other.
    pub server_name: String,
    pub cipher_suite: CipherSuite,
    /// What the server recognises it by.
    pub ticket: Vec<u8>,
    /// The pre-shared key: to be kept as secret as a private key.
    pub secret: Vec<u8>,
    pub age_add: u32,
    pub issued: SystemTime,
    pub lifetime: Duration,
    /// Whether the server takes 0-RTT data with it.
    pub early_data: bool,
    /// The server's transport parameters, whose limits 0-RTT data has to keep (RFC 9000 section
    /// 7.4.1).
    pub transport_params: Vec<u8>,
    /// The certificates that the server showed, DER, leaf first: a resumed handshake shows none.
    pub peer_certificates: Vec<Vec<u8>>,
    /// The QUIC version that it is for: only connections that begin with it show the ticket (RFC
    /// 9369 section 5). `None`: the host answers for it.
    pub version: Option<u32>,
}

impl SessionTicket {
    /// Refuses what no server can have issued, before anything is made of it.
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

    /// How old the ticket is at `now`; `None` when its time is over, or has not begun.
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

/// Whether this thread is importing a ticket: the certificate shown now is not the peer's, but part
/// of a handshake with ourselves.
pub(in crate::tls) fn is_importing() -> bool {
    SEAM.with_borrow(|seam| matches!(seam, Seam::Answering(_)))
}

/// `suite` with the seam in its key derivation. Made once each.
pub(in crate::tls) fn seamed(suite: CipherSuite) -> SupportedCipherSuite {
    static MADE: OnceLock<[&'static Tls13CipherSuite; 3]> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        ALL.map(|suite| {
            let suite = plain(suite).tls13();
            let suite = suite.expect("QUIC has no suites but TLS 1.3's");
            &*Box::leak(Box::new(hkdf::with_expanders(suite, seam)))
        })
    });
    let at = ALL.iter().position(|known| *known == suite).unwrap_or(0);
    SupportedCipherSuite::Tls13(made[at])
}

/// The provider's own.
pub(in crate::tls) fn plain(suite: CipherSuite) -> SupportedCipherSuite {
    match suite {
        CipherSuite::Aes128GcmSha256 => provider::cipher_suite::TLS13_AES_128_GCM_SHA256,
        CipherSuite::Aes256GcmSha384 => provider::cipher_suite::TLS13_AES_256_GCM_SHA384,
        CipherSuite::ChaCha20Poly1305Sha256 => {
            provider::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256
        }
    }
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
pub(in crate::tls) struct Exporter {
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

/// A NewSessionTicket message that says what `ticket` says, to a client that gets it at `age`.
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

/// What rustls binds a session to.
type Judges<'a> = (
    &'a Arc<dyn ServerCertVerifier>,
    &'a Arc<dyn ResolvesClientCert>,
);

/// The session of `ticket`, fit for connections whose configuration has this verifier and these
/// credentials. `None` when the ticket's time is over or it is not one that rustls takes.
pub(in crate::tls) fn import(
    ticket: &SessionTicket,
    name: &ServerName<'static>,
    judges: Judges<'_>,
    clock: &HostClock,
) -> Option<Tls13ClientSessionValue> {
    let message = message_of(ticket, ticket.age(clock.0.now())?)?;
    let slot = Arc::new(Slot::default());
    let (client, seam) = with_seam(Seam::Answering(ticket.secret.clone()), || {
        let mut client = shake_hands(ticket, name, judges, clock, slot.clone())?;
        client.read_hs(&message)
    });
    drop(seam);
    if let Err(error) = client {
        log::debug!("a session ticket cannot be used: {error}");
        return None;
    }
    slot.take()
}

/// A client that has shaken hands with a server in memory. `verifier` is asked, and knows by
/// [`is_importing`] what for.
fn shake_hands(
    ticket: &SessionTicket,
    name: &ServerName<'static>,
    (verifier, credentials): Judges<'_>,
    clock: &HostClock,
    slot: Arc<Slot>,
) -> Result<quic::ClientConnection, Error> {
    let provider = Arc::new(CryptoProvider {
        // The keys of a resumed connection come by the suite of the session.
        cipher_suites: vec![with_labels(seamed(ticket.cipher_suite))],
        kx_groups: vec![provider::kx_group::X25519],
        ..provider::default_provider()
    });
    let time = Arc::new(clock.clone());
    let mut config = rustls::ClientConfig::builder_with_details(provider.clone(), time.clone())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier.clone())
        .with_client_cert_resolver(credentials.clone());
    config.resumption = Resumption::store(slot);
    let mut client =
        quic::ClientConnection::new(Arc::new(config), quic::Version::V1, name.clone(), vec![])?;

    let chain = match ticket.peer_certificates.is_empty() {
        true => vec![CertificateDer::from(UNKNOWN_CERTIFICATE)],
        false => ticket
            .peer_certificates
            .iter()
            .cloned()
            .map(Into::into)
            .collect(),
    };
    let identity = CertifiedKey::new(chain, Arc::new(NoKey));
    let mut config = rustls::ServerConfig::builder_with_details(provider, time)
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Always(Arc::new(identity))));
    config.send_tls13_tickets = 0;
    let params = ticket.transport_params.clone();
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

/// Whether this is what stands for a certificate that a ticket does not tell.
pub(in crate::tls) fn is_unknown(certificate: &[u8]) -> bool {
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

impl CipherSuite {
    pub(in crate::tls) fn of(name: SuiteName) -> Option<Self> {
        Self::from_u16(name.into())
    }
}

const ALL: [CipherSuite; 3] = [
    CipherSuite::Aes128GcmSha256,
    CipherSuite::Aes256GcmSha384,
    CipherSuite::ChaCha20Poly1305Sha256,
];
/// The most that rustls takes of one message.
const MESSAGE_MAX: usize = 1 << 16;
/// A ticket has to fit into a ClientHello.
const TICKET_BYTES_MAX: usize = 1 << 15;
const PARAMS_BYTES_MAX: usize = 1 << 14;
const CERTIFICATES_BYTES_MAX: usize = 1 << 20;
const NO_KEY_SCHEME: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;
/// An empty SEQUENCE: no certificate is that short.
const UNKNOWN_CERTIFICATE: &[u8] = &[0x30, 0x00];
