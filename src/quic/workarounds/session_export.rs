//! Exports and imports TLS sessions of clients.
//!
//! rustls resumes from a value that cannot be exported or imported: of its fields only the suite and the transport
//! parameters are public, and it is bound to the certificate verifier of one configuration by address. But two parts
//! of rustls are accessible: the HKDF of a cipher suite, which derives the secret of a ticket, can be replaced; and
//! in QUIC the messages of a handshake pass through this crate in plain text.
//!
//! - *Export* reads NewSessionTicket messages beside rustls, and records each secret when it is derived.
//! - *Import* runs a client's handshake with a server in memory and sends the client a NewSessionTicket with the
//!   imported ticket. When rustls derives the ticket's secret, the wrapped HKDF returns the imported one. Then rustls
//!   stores a session with that ticket and secret, which is bound to the verifier that the connection will use.
//!
//! Assumed of rustls: a client derives the secret of each NewSessionTicket that it reads, at once, by `expand_block`
//! of the resumption master secret with the label "tls13 resumption" and the nonce (RFC 8446 section 4.6.1), and puts
//! the session into its store before `read_hs` returns; a verifier that accepts everything, and a signature that it
//! does not check, are enough for a handshake.
//!
//! The wrapped HKDF finds out by a thread-local value what to do, because a cipher suite is static and has no
//! reference to a connection. Calls into rustls are synchronous, so the value affects no other call.

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

/// The task of the wrapped HKDF when rustls derives a ticket's secret on this thread.
enum SecretHook {
    Off,
    /// Records the nonces and the secrets, to export the session.
    Recording(Vec<Derived>),
    /// Returns this secret instead of the derived one, to import a session.
    Replacing(Vec<u8>),
}

struct Derived {
    nonce: Vec<u8>,
    secret: Vec<u8>,
}

thread_local! {
    static SECRET_HOOK: RefCell<SecretHook> = const { RefCell::new(SecretHook::Off) };
}

/// Sets the thread's `SecretHook` to `hooked`, calls `run`, and sets the former hook again. Returns the new hook as
/// `run` has left it.
fn with_hook<R>(hooked: SecretHook, run: impl FnOnce() -> R) -> (R, SecretHook) {
    struct Restore(Option<SecretHook>);
    impl Drop for Restore {
        fn drop(&mut self) {
            if let Some(before) = self.0.take() {
                SECRET_HOOK.replace(before);
            }
        }
    }
    let mut restore = Restore(Some(SECRET_HOOK.replace(hooked)));
    let result = run();
    let before = restore.0.take().unwrap_or(SecretHook::Off);
    (result, SECRET_HOOK.replace(before))
}

/// True if this thread is importing a ticket. Then the certificate to verify is not the peer's, but belongs to the
/// handshake in memory.
pub fn is_importing() -> bool {
    SECRET_HOOK.with_borrow(|hooked| matches!(hooked, SecretHook::Replacing(_)))
}

/// A copy of `suite` whose HKDF records or replaces ticket secrets.
pub fn with_secret_hook(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    hkdf_wrapper::with_expanders(suite, hooked)
}

struct HookedExpander(Box<dyn HkdfExpander>);

fn hooked(expander: Box<dyn HkdfExpander>) -> Box<dyn HkdfExpander> {
    Box::new(HookedExpander(expander))
}

impl HkdfExpander for HookedExpander {
    fn expand_slice(&self, info: &[&[u8]], output: &mut [u8]) -> Result<(), OutputLengthError> {
        self.0.expand_slice(info, output)
    }

    fn expand_block(&self, info: &[&[u8]]) -> OkmBlock {
        let block = self.0.expand_block(info);
        match nonce_of_ticket(info) {
            Some(nonce) => SECRET_HOOK.with_borrow_mut(|hooked| match hooked {
                SecretHook::Off => block,
                SecretHook::Recording(derived) => {
                    let secret = block.as_ref().to_vec();
                    derived.push(Derived { nonce, secret });
                    block
                }
                SecretHook::Replacing(secret) => OkmBlock::new(secret),
            }),
            None => block,
        }
    }

    fn hash_len(&self) -> usize {
        self.0.hash_len()
    }
}

/// The context of an HkdfLabel (RFC 8446 section 7.1), which is the nonce of the ticket (section 4.6.1). `None` if
/// the label is not that of ticket secrets.
fn nonce_of_ticket(info: &[&[u8]]) -> Option<Vec<u8>> {
    const LABEL: &[u8] = b"tls13 resumption";
    let joined = info.concat();
    let (label, context) = joined.get(3..)?.split_at_checked(LABEL.len())?;
    let is_ticket = usize::from(joined[2]) == LABEL.len() && label == LABEL;
    is_ticket.then(|| context.get(1..).map(<[u8]>::to_vec))?
}

/// Reads NewSessionTicket messages of a client beside rustls.
#[derive(Default)]
pub struct Exporter {
    /// The beginning of an incomplete message.
    unfinished: Vec<u8>,
}

impl Exporter {
    /// Calls `read`, in which rustls processes `messages`, which follow the handshake. Returns the tickets among them,
    /// each with its secret.
    pub fn read<R>(
        &mut self,
        messages: &[u8],
        read: impl FnOnce() -> R,
    ) -> (R, Vec<(NewSessionTicket, Vec<u8>)>) {
        let (result, hooked) = with_hook(SecretHook::Recording(Vec::new()), read);
        let SecretHook::Recording(mut derived) = hooked else {
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
        // rustls rejects a longer message, and then reads nothing more.
        self.unfinished.truncate(MESSAGE_MAX);
        (result, tickets)
    }
}

/// The objects that verify a session's peer. rustls binds a session to their addresses.
pub type Verifiers<'a> = (
    &'a Arc<dyn ServerCertVerifier>,
    &'a Arc<dyn ResolvesClientCert>,
);

/// A session that is imported.
pub struct ImportedSession<'a> {
    /// The session's NewSessionTicket message, with the ticket's present age and an empty nonce.
    pub message: &'a [u8],
    /// The secret that belongs to the ticket.
    pub secret: &'a [u8],
    /// The session's cipher suite, wrapped by [`with_secret_hook`].
    pub suite: SupportedCipherSuite,
    /// The transport parameters of the server.
    pub transport_params: &'a [u8],
    /// The certificate chain of the server in DER, leaf first. Empty if it is unknown.
    pub certificates: &'a [Vec<u8>],
}

/// Converts `imported` to the form in which rustls stores a session. rustls binds it to `verifiers`: only configurations
/// with the same objects can resume it. `None` if rustls rejects the session.
pub fn import(
    imported: &ImportedSession<'_>,
    name: &ServerName<'static>,
    verifiers: Verifiers<'_>,
    clock: Arc<dyn TimeProvider>,
) -> Option<Tls13ClientSessionValue> {
    let slot = Arc::new(Slot::default());
    let (client, _) = with_hook(SecretHook::Replacing(imported.secret.to_vec()), || {
        let mut client = shake_hands(imported, name, verifiers, clock, slot.clone())?;
        client.read_hs(imported.message)
    });
    if let Err(error) = client {
        log::debug!("a session ticket cannot be used: {error}");
        return None;
    }
    slot.take()
}

/// Returns a client after a handshake with a server in memory. The handshake calls `verifier`, which can use
/// [`is_importing`].
fn shake_hands(
    imported: &ImportedSession<'_>,
    name: &ServerName<'static>,
    (verifier, credentials): Verifiers<'_>,
    clock: Arc<dyn TimeProvider>,
    slot: Arc<Slot>,
) -> Result<quic::ClientConnection, Error> {
    let provider = Arc::new(CryptoProvider {
        cipher_suites: vec![imported.suite],
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

    let chain = match imported.certificates.is_empty() {
        true => vec![CertificateDer::from(UNKNOWN_CERTIFICATE)],
        false => imported
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
    let params = imported.transport_params.to_vec();
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

/// True for the certificate that stands for the unknown chain of an imported session.
pub fn is_unknown(certificate: &[u8]) -> bool {
    certificate == UNKNOWN_CERTIFICATE
}

/// A session store for the one session of an import.
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

/// A signing key whose signatures are empty. The verifier does not check them.
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

/// The longest handshake message that rustls accepts, in bytes.
const MESSAGE_MAX: usize = 1 << 16;
const NO_KEY_SCHEME: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;
/// An empty SEQUENCE. No certificate is that short.
const UNKNOWN_CERTIFICATE: &[u8] = &[0x30, 0x00];

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    use crate::workarounds::bare_quinn;

    thread_local! {
        static DERIVED: RefCell<Vec<(Vec<u8>, Vec<u8>)>> = const { RefCell::new(Vec::new()) };
        static PUT: Cell<usize> = const { Cell::new(0) };
    }

    struct Recording(Box<dyn HkdfExpander>);

    impl HkdfExpander for Recording {
        fn expand_slice(&self, info: &[&[u8]], out: &mut [u8]) -> Result<(), OutputLengthError> {
            assert_eq!(
                nonce_of_ticket(info),
                None,
                "rustls derives the secret by `expand_block`"
            );
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
    fn bare_rustls_derives_and_stores_a_tickets_secret_at_once() {
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
        assert_eq!(
            PUT.get(),
            derived.len(),
            "rustls has stored a session for each derived secret"
        );
    }
}
