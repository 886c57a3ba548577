//! The TLS session that quinn-proto drives during a handshake (RFC 9001), over `rustls::quic`.
//!
//! It replaces quinn-proto's own adapter for rustls, because that adapter lacks three features: transport parameters
//! as bytes, wrapped packet keys, and a choice of the QUIC version.
//!
//! | file | content |
//! | --- | --- |
//! | `session_factories` | factories of the sessions, from configurations that connections share |
//! | `packet_options` | extensions and recording of packets, for both roles |
//! | `client_hello_buffer` | buffers a ClientHello until it is complete |
//! | `error_text` | texts for TLS failures |
//!
//! Not here: the keys themselves (`keys`), and the choice of a version (`versions`).

use std::{any::Any, io::Cursor, sync::Arc, time::SystemTime};

use quinn_proto::{
    ConnectionId, Side, TransportError,
    crypto::{self, ExportKeyingMaterialError, KeyPair, Keys},
    transport_parameters::TransportParameters,
};
use rustls::{
    AlertDescription, Error, HandshakeKind,
    pki_types::CertificateDer,
    quic::{self, KeyChange, Version},
};
use uringcore_wire::{
    packet_header::{VERSION_1, version_of},
    tls::session_ticket::NewSessionTicket,
};

use super::{
    ApplicationClock, CipherSuite, SessionTicket,
    keys::{self, initial_keys::DerivedKeys, packet_hook::PacketHook, retry_tag},
    sessions::client_session_store::TicketInbox,
    versions::{VersionInformation, Versions},
};
use crate::{
    qlog::{ConnectionIds, Epoch},
    workarounds::{
        hkdf_labels::Scope,
        lazy_phase_keys::KeyPhases,
        max_datagram_frame_size, rejected_early_data,
        session_export::{self, Exporter},
    },
};

mod client_hello_buffer;
pub(super) mod error_text;
mod packet_options;
mod session_factories;
#[cfg(test)]
mod tests;

use client_hello_buffer::{ClientHelloBuffer, Progress};
use error_text::transport_error;
pub(crate) use packet_options::PacketOptions;
pub(crate) use session_factories::{ClientCrypto, ServerCrypto, server_initial_keys};

/// Details of a session for the QUIC layer. quinn-proto returns them as `handshake_data`.
pub(crate) struct SessionDetails {
    pub hook: Arc<PacketHook>,
    /// Session tickets that a client has received and not reported yet.
    pub tickets: Arc<TicketInbox>,
    pub versions: Arc<Versions>,
    /// The application protocol. `None` until the server has chosen it.
    pub alpn: Option<Vec<u8>>,
    /// On a server, the name in the client's SNI (RFC 6066 section 3).
    pub server_name: Option<String>,
    pub resumed: bool,
    /// The number of the cipher suite (RFC 8446 section B.4). `None` until it is negotiated.
    pub cipher_suite: Option<u16>,
    /// The number of the key exchange group (RFC 8446 section 4.2.7). `None` until it is negotiated.
    pub group: Option<u16>,
    /// The peer's transport parameters, encoded. `None` until they have arrived.
    pub peer_parameters: Option<Vec<u8>>,
}

struct Session {
    inner: Inner,
    clock: ApplicationClock,
    versions: Arc<Versions>,
    hook: Arc<PacketHook>,
    reported_handshake_data: bool,
    checked_versions: bool,
    phases: Option<KeyPhases>,
    /// A client's connection IDs. `None` after they were passed to the packet hook with the first packet's destination.
    ids: Option<ConnectionIds>,
    /// On a client, the name of the server that it connects to.
    requested_name: String,
    exporter: Exporter,
    tickets: Arc<TicketInbox>,
    /// On a server, the Initial keys that have opened the client's first packet. `None` once quinn-proto has them.
    first_keys: Option<Arc<DerivedKeys>>,
}

enum Inner {
    /// A server that waits for the rest of the ClientHello.
    Waiting(Box<Waiting>),
    Running(Box<quic::Connection>),
    /// A server whose handshake is complete. The TLS connection is dropped, because it would keep buffers and secrets:
    /// a client sends nothing more to TLS (RFC 9001 section 6).
    Done(Box<Done>),
}

/// The results of a handshake that are still needed after it.
#[derive(Clone)]
struct Done {
    alpn: Option<Vec<u8>>,
    server_name: Option<String>,
    resumed: bool,
    cipher_suite: Option<u16>,
    group: Option<u16>,
    peer_parameters: Option<Vec<u8>>,
    certificates: Vec<CertificateDer<'static>>,
}

struct Waiting {
    config: Arc<rustls::ServerConfig>,
    version: Version,
    /// This side's encoded transport parameters, without version information.
    params: Vec<u8>,
    first: ClientHelloBuffer,
    /// The only ClientHello that is accepted. `None`: any. Set if the application has already read the ClientHello.
    expected: Option<Arc<[u8]>>,
}

impl Session {
    fn new(
        inner: Inner,
        clock: ApplicationClock,
        versions: Arc<Versions>,
        hook: Arc<PacketHook>,
    ) -> Self {
        Self {
            inner,
            clock,
            versions,
            hook,
            reported_handshake_data: false,
            checked_versions: false,
            phases: None,
            ids: None,
            requested_name: String::new(),
            exporter: Exporter::default(),
            tickets: Arc::default(),
            first_keys: None,
        }
    }

    fn tls(&self) -> Option<&quic::Connection> {
        match &self.inner {
            Inner::Waiting(_) | Inner::Done(_) => None,
            Inner::Running(tls) => Some(tls),
        }
    }

    fn side(&self) -> Side {
        match self.tls() {
            Some(quic::Connection::Client(_)) => Side::Client,
            Some(quic::Connection::Server(_)) | None => Side::Server,
        }
    }

    /// Copies the results of the handshake so far.
    fn state(&self) -> Done {
        let tls = match &self.inner {
            Inner::Waiting(_) => None,
            Inner::Running(tls) => Some(tls),
            Inner::Done(done) => return (**done).clone(),
        };
        let server_name = match tls.map(|tls| &**tls) {
            Some(quic::Connection::Server(server)) => server.server_name(),
            Some(quic::Connection::Client(_)) | None => None,
        };
        let certificates = tls.and_then(|tls| tls.peer_certificates());
        Done {
            alpn: tls.and_then(|tls| tls.alpn_protocol()).map(Into::into),
            server_name: server_name.map(Into::into),
            resumed: tls.and_then(|tls| tls.handshake_kind()) == Some(HandshakeKind::Resumed),
            cipher_suite: tls
                .and_then(|tls| tls.negotiated_cipher_suite())
                .map(|suite| suite.suite().into()),
            group: tls
                .and_then(|tls| tls.negotiated_key_exchange_group())
                .map(|group| group.name().into()),
            peer_parameters: self.peer_parameters().map(Into::into),
            certificates: known(certificates.unwrap_or_default())
                .map(|certificate| certificate.clone().into_owned())
                .collect(),
        }
    }

    fn peer_parameters(&self) -> Option<&[u8]> {
        match &self.inner {
            Inner::Waiting(_) => None,
            Inner::Running(tls) => tls.quic_transport_parameters(),
            Inner::Done(done) => done.peer_parameters.as_deref(),
        }
    }

    /// True if the peer's first message was read. rustls does not report that.
    fn has_handshake_data(&self) -> bool {
        self.tls().is_some_and(|tls| {
            tls.alpn_protocol().is_some() || has_server_name(tls) || !tls.is_handshaking()
        })
    }

    /// Starts TLS on a server that has the complete ClientHello: chooses the QUIC version first.
    fn begin(
        versions: &Versions,
        hook: &PacketHook,
        waiting: &Waiting,
    ) -> Result<quic::Connection, TransportError> {
        if let Some(expected) = &waiting.expected
            && !waiting.first.begins_with(expected)
        {
            let error = Error::General("the ClientHello is not the one that was read first".into());
            return Err(transport_error(
                &error,
                Some(AlertDescription::IllegalParameter),
            ));
        }
        let hello = waiting.first.hello();
        let theirs = match hello.and_then(|hello| hello.transport_parameters()) {
            Some(params) => VersionInformation::find(params)?,
            None => None,
        };
        versions.decide(versions.choose(theirs.as_ref())?);
        if let Some(recorder) = hook.recorder() {
            let theirs = theirs.as_ref().map(|theirs| &theirs.available[..]);
            recorder.version_chosen(versions.supported(), theirs, versions.current());
        }
        let mut params = waiting.params.clone();
        versions.append_information(&mut params);
        hook.local_parameters(&params);
        let config = waiting.config.clone();
        let server = quic::ServerConnection::new(config, waiting.version, params)
            .expect("the configuration was checked when it was built");
        Ok(server.into())
    }

    /// On a client, compares the server's version information with the versions in packets, once TLS has authenticated
    /// it.
    fn check_versions(&mut self) -> Result<(), TransportError> {
        let Inner::Running(tls) = &self.inner else {
            return Ok(());
        };
        let is_client = matches!(**tls, quic::Connection::Client(_));
        if !is_client || self.checked_versions || tls.is_handshaking() {
            return Ok(());
        }
        self.checked_versions = true;
        match tls.quic_transport_parameters() {
            Some(params) => self
                .versions
                .check(VersionInformation::find(params)?.as_ref()),
            None => Ok(()),
        }
    }

    /// The QUIC version of packets with handshake keys. `None` if it is quinn-proto's version.
    fn handshake_wire(&self) -> Option<u32> {
        let version = self.versions.current();
        let is_plain = version == VERSION_1 && self.versions.original() == VERSION_1;
        (!is_plain).then_some(version)
    }

    fn read(&mut self, buf: &[u8]) -> Result<(), TransportError> {
        let tls = match &mut self.inner {
            Inner::Running(tls) => tls,
            Inner::Waiting(_) => return Ok(()),
            Inner::Done(_) => {
                let error = Error::General("a message after the handshake".into());
                return Err(transport_error(
                    &error,
                    Some(AlertDescription::UnexpectedMessage),
                ));
            }
        };
        let is_client = matches!(**tls, quic::Connection::Client(_));
        let (result, tickets) = match is_client && !tls.is_handshaking() {
            // After the handshake, a client receives only tickets (RFC 9001 section 6).
            true => self.exporter.read(buf, || tls.read_hs(buf)),
            false => (tls.read_hs(buf), Vec::new()),
        };
        result.map_err(|e| transport_error(&e, tls.alert()))?;
        for (ticket, secret) in tickets {
            if let Some(ticket) = self.completed(ticket, secret, self.clock.0.now()) {
                self.tickets.push(ticket);
            }
        }
        Ok(())
    }

    fn completed(
        &self,
        ticket: NewSessionTicket,
        secret: Vec<u8>,
        issued: SystemTime,
    ) -> Option<SessionTicket> {
        let tls = self.tls()?;
        let suite = tls.negotiated_cipher_suite()?.suite();
        let certificates = tls.peer_certificates().unwrap_or_default();
        Some(SessionTicket {
            server_name: self.requested_name.clone(),
            cipher_suite: CipherSuite::from_u16(suite.into())?,
            ticket: ticket.ticket,
            secret,
            age_add: ticket.age_add,
            issued,
            lifetime: ticket.lifetime,
            early_data: ticket.early_data,
            transport_params: tls.quic_transport_parameters()?.to_vec(),
            peer_certificates: known(certificates).map(|c| c.to_vec()).collect(),
            version: Some(self.versions.current()),
        })
    }
}

/// The certificates, without the placeholder of an imported session.
fn known<'a>(
    certificates: &'a [CertificateDer<'a>],
) -> impl Iterator<Item = &'a CertificateDer<'a>> {
    certificates
        .iter()
        .filter(|c| !session_export::is_unknown(c))
}

impl crypto::Session for Session {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        if let Some(ids) = &self.ids {
            // Sets the connection IDs for the first call only. After a Retry quinn-proto calls this method again, with
            // another ID.
            self.hook.set_ids(ConnectionIds {
                original: Some(dst_cid.to_vec()),
                ..ids.clone()
            });
        }
        let first = self.first_keys.clone();
        let derived = first
            .filter(|first| first.are_for(dst_cid, side))
            .unwrap_or_else(|| DerivedKeys::new(dst_cid, side));
        keys::initial_keys::initial(derived, &self.versions, &self.hook)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let state = self.state();
        Some(Box::new(SessionDetails {
            hook: self.hook.clone(),
            versions: self.versions.clone(),
            alpn: state.alpn,
            server_name: state.server_name,
            tickets: self.tickets.clone(),
            resumed: state.resumed,
            cipher_suite: state.cipher_suite,
            group: state.group,
            peer_parameters: state.peer_parameters,
        }))
    }

    /// The peer's certificates as `Vec<CertificateDer<'static>>`, leaf first.
    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        let certificates = self.state().certificates;
        match certificates.is_empty() {
            true => None,
            false => Some(Box::new(certificates)),
        }
    }

    /// 0-RTT packets have the original version, even if the handshake continues with another one (RFC 9369 section
    /// 4.1).
    fn early_crypto(&self) -> Option<(Box<dyn crypto::HeaderKey>, Box<dyn crypto::PacketKey>)> {
        // A client without the remembered limits of the server must not send 0-RTT data.
        if self.side().is_client() && !rejected_early_data::may_begin(&self.transport_parameters())
        {
            return None;
        }
        let early = self.tls()?.zero_rtt_keys()?;
        let first = self.versions.first();
        let wire = (first != VERSION_1).then_some(first);
        Some(keys::wrap_early(early, &self.hook, wire))
    }

    fn early_data_accepted(&self) -> Option<bool> {
        match self.tls()? {
            quic::Connection::Client(client) => Some(client.is_early_data_accepted()),
            quic::Connection::Server(_) => None,
        }
    }

    fn is_handshaking(&self) -> bool {
        match &self.inner {
            Inner::Waiting(_) => true,
            Inner::Running(tls) => tls.is_handshaking(),
            Inner::Done(_) => false,
        }
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.first_keys = None;
        let begun = match &mut self.inner {
            Inner::Waiting(waiting) => match waiting.first.push(buf) {
                Progress::Waiting => return Ok(false),
                Progress::Done => Some((
                    Self::begin(&self.versions, &self.hook, waiting)?,
                    std::mem::take(&mut waiting.first),
                )),
            },
            Inner::Running(_) | Inner::Done(_) => None,
        };
        let first = begun.map(|(tls, first)| {
            self.inner = Inner::Running(Box::new(tls));
            first
        });
        let buf = first.as_ref().map_or(buf, ClientHelloBuffer::bytes);
        self.versions.handshake_bytes();
        self.read(buf)?;
        self.check_versions()?;
        let first_time = !self.reported_handshake_data && self.has_handshake_data();
        self.reported_handshake_data |= first_time;
        Ok(first_time)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        match self.peer_parameters() {
            None => Ok(None),
            Some(bytes) => {
                if let Some(recorder) = self.hook.recorder() {
                    recorder.remote_parameters(bytes);
                }
                let bytes = max_datagram_frame_size::understood(bytes);
                Ok(Some(TransportParameters::read(
                    self.side(),
                    &mut Cursor::new(&*bytes),
                )?))
            }
        }
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let Inner::Running(tls) = &mut self.inner else {
            return None;
        };
        let change = {
            let _labels = Scope::open(self.versions.switched());
            tls.write_hs(buf)
        };
        let Some(change) = change else {
            if self.side().is_server() && !self.is_handshaking() {
                self.inner = Inner::Done(Box::new(self.state()));
            }
            return None;
        };
        Some(match change {
            KeyChange::Handshake { keys } => {
                let wire = self.handshake_wire();
                keys::wrap(keys, Epoch::Handshake, self.side(), &self.hook, wire)
            }
            KeyChange::OneRtt { keys, next } => {
                self.phases = Some(KeyPhases::new(next));
                keys::wrap(keys, Epoch::OneRtt(0), self.side(), &self.hook, None)
            }
        })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn crypto::PacketKey>>> {
        let keys = self.phases.as_mut()?.next(self.versions.switched());
        Some(keys::wrap_update(keys, self.side(), &self.hook))
    }

    /// A Retry has the version of the client's first packet (RFC 9369 section 4.1).
    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        let version = self.versions.original();
        let is_valid = version_of(header) == Some(version)
            && retry_tag::is_valid(version, orig_dst_cid, &[header, payload].concat());
        if is_valid {
            self.versions.set_retried();
            if let Some(recorder) = self.hook.recorder() {
                recorder.retry(header, payload.len());
            }
        }
        is_valid
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        // A server's session that has dropped its TLS connection cannot export keys. quinn-proto does not call this.
        let tls = self.tls().ok_or(ExportKeyingMaterialError)?;
        match tls.export_keying_material(output, label, Some(context)) {
            Ok(_) => Ok(()),
            Err(_) => Err(ExportKeyingMaterialError),
        }
    }
}

fn has_server_name(tls: &quic::Connection) -> bool {
    match tls {
        quic::Connection::Client(_) => false,
        quic::Connection::Server(server) => server.server_name().is_some(),
    }
}
