//! Factories of TLS sessions, from configurations that the connections of an endpoint share. Also creates the keys of
//! first packets, which are needed before there is a session.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use quinn_proto::{
    ConnectError, ConnectionId, Side,
    crypto::{self, Keys, UnsupportedVersion},
    transport_parameters::TransportParameters,
};
use rustls::{
    client::Resumption,
    pki_types::ServerName,
    quic::{self, Version},
};

use super::client_hello_buffer::ClientHelloBuffer;
use super::packet_options::PacketOptions;
use super::{Inner, Session, Waiting};
use crate::{
    qlog::{ConnectionIds, Recorder},
    tls::{
        ApplicationClock,
        keys::{self, initial_keys::DerivedKeys, packet_hook::PacketHook, retry_tag},
        sessions::{
            self, ScopedSessions,
            client_session_store::{ConnectionSessions, Sessions},
        },
        versions::{self, Beginning, Versions},
    },
};

/// Creates the sessions of clients.
pub(crate) struct ClientCrypto {
    config: Arc<rustls::ClientConfig>,
    /// The sessions that connections may resume. `None`: nothing is resumed.
    sessions: Option<Arc<Sessions>>,
    clock: ApplicationClock,
    /// QUIC versions, the preferred one first.
    supported: Vec<u32>,
    /// The QUIC version of the client's first packets, if it differs from the version that quinn-proto uses.
    first: Option<u32>,
    beginning: Beginning,
    packet_options: PacketOptions,
    /// The recorder that a connection continues to use when it restarts with another version. `None` for a new
    /// connection.
    recorder: Option<Arc<Recorder>>,
}

impl ClientCrypto {
    pub fn new(
        config: Arc<rustls::ClientConfig>,
        clock: ApplicationClock,
        supported: Vec<u32>,
        first: Option<u32>,
    ) -> Self {
        Self {
            config,
            sessions: None,
            clock,
            supported,
            first,
            beginning: Beginning::Chosen,
            packet_options: PacketOptions::default(),
            recorder: None,
        }
    }

    /// Sets the sessions that connections may resume.
    pub(in crate::tls) fn resuming(self, sessions: Sessions) -> Self {
        Self {
            sessions: Some(Arc::new(sessions)),
            ..self
        }
    }

    pub fn with_packet_options(self, packet_options: PacketOptions) -> Self {
        Self {
            packet_options,
            ..self
        }
    }

    /// A copy for a connection that restarts after a Version Negotiation packet. Its version does not change again.
    pub fn after_version_negotiation(&self, recorder: Option<Arc<Recorder>>) -> Self {
        // A ticket is valid for the version of the first attempt, so this attempt sends no 0-RTT data.
        let mut config = (*self.config).clone();
        config.enable_early_data = false;
        Self {
            config: Arc::new(config),
            sessions: self.sessions.clone(),
            clock: self.clock.clone(),
            supported: self.supported.clone(),
            first: None,
            beginning: Beginning::Reported,
            packet_options: self.packet_options,
            recorder,
        }
    }
}

impl crypto::ClientConfig for ClientCrypto {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn crypto::Session>, ConnectError> {
        let known = known_version(version)?;
        let name = ServerName::try_from(server_name)
            .map_err(|_| ConnectError::InvalidServerName(server_name.into()))?
            .to_owned();
        let first = self.first.unwrap_or(version);
        let versions = Versions::client(version, first, &self.supported, self.beginning);
        let mut params = self.packet_options.encode(params);
        versions.append_information(&mut params);
        let ids = ConnectionIds::from_parameters(&params);
        let recorder = self
            .packet_options
            .is_recorded
            .then(|| self.recorder.clone())
            .map(|begun| begun.unwrap_or_else(|| Arc::new(Recorder::new(true))));
        let hook = self.packet_options.hook(recorder);
        hook.local_parameters(&params);
        let mut config = self.config.clone();
        if let Some(sessions) = self.sessions.clone() {
            let versions = versions.clone();
            let sessions = ConnectionSessions { sessions, versions };
            Arc::make_mut(&mut config).resumption = Resumption::store(Arc::new(sessions));
        }
        let connection = quic::ClientConnection::new(config, known, name, params)
            // Only a failure of the random number generator can cause an error here.
            .map_err(|_| ConnectError::EndpointStopping)?;
        let inner = Inner::Running(Box::new(connection.into()));
        let mut session = Session::new(inner, self.clock.clone(), versions, hook);
        session.ids = Some(ids);
        session.requested_name = server_name.into();
        Ok(Box::new(session))
    }
}

/// Creates the sessions of servers.
pub(crate) struct ServerCrypto {
    config: Arc<rustls::ServerConfig>,
    /// The store of sessions. `None`: clients get no tickets.
    sessions: Option<Arc<ScopedSessions>>,
    clock: ApplicationClock,
    supported: Vec<u32>,
    packet_options: PacketOptions,
    /// Recorders of first packets whose connection has no session yet, by the destination connection ID of the packet.
    /// At most [`FIRST_PACKETS_MAX`], the newest last.
    first_packets: Mutex<VecDeque<(Vec<u8>, Arc<Recorder>)>>,
    /// The Initial keys of the last first packet, until its connection has a session. In most cases the session follows
    /// at once.
    first_keys: Mutex<Option<Arc<DerivedKeys>>>,
    /// The only ClientHello that is accepted. `None`: any. Set if the application has already read the ClientHello.
    expected: Option<Arc<[u8]>>,
}

impl ServerCrypto {
    pub fn new(
        config: Arc<rustls::ServerConfig>,
        clock: ApplicationClock,
        supported: Vec<u32>,
    ) -> Self {
        Self {
            config,
            sessions: None,
            clock,
            supported,
            packet_options: PacketOptions::default(),
            first_packets: Mutex::default(),
            first_keys: Mutex::default(),
            expected: None,
        }
    }

    /// A copy for one connection whose ClientHello the application has read. TLS rejects another ClientHello.
    pub fn expecting(&self, hello: &[u8]) -> Self {
        Self {
            config: self.config.clone(),
            sessions: self.sessions.clone(),
            clock: self.clock.clone(),
            supported: self.supported.clone(),
            packet_options: self.packet_options,
            first_packets: Mutex::default(),
            first_keys: Mutex::default(),
            expected: Some(hello.into()),
        }
    }

    /// Sets the store of sessions.
    pub(in crate::tls) fn keeping(self, sessions: Option<ScopedSessions>) -> Self {
        Self {
            sessions: sessions.map(Arc::new),
            ..self
        }
    }

    pub fn with_packet_options(self, packet_options: PacketOptions) -> Self {
        Self {
            packet_options,
            ..self
        }
    }

    /// Creates the packet hook for the keys of a first packet, before its connection has a session.
    fn first_hook(&self, dst_cid: &ConnectionId) -> Arc<PacketHook> {
        if !self.packet_options.is_recorded {
            return Arc::default();
        }
        let recorder = Arc::new(Recorder::new(false));
        let mut first = self
            .first_packets
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if first.len() == FIRST_PACKETS_MAX {
            first.pop_front();
        }
        first.push_back((dst_cid.to_vec(), recorder.clone()));
        Arc::new(PacketHook::recorded(recorder))
    }

    fn first_keys(&self) -> MutexGuard<'_, Option<Arc<DerivedKeys>>> {
        // A poisoned lock is no error, because no code panics while it changes the keys.
        self.first_keys
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The recorder of the connection's first packet. A new one if that packet was not recorded.
    fn recorder(&self, ids: &ConnectionIds) -> Option<Arc<Recorder>> {
        if !self.packet_options.is_recorded {
            return None;
        }
        let mut first = self
            .first_packets
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // After a Retry, the client's first packet is addressed to the connection ID in the Retry.
        let is_it =
            |id: &Vec<u8>| Some(id) == ids.original.as_ref() || Some(id) == ids.retry.as_ref();
        let at = first.iter().rposition(|(id, _)| is_it(id));
        let found = at.and_then(|at| first.remove(at));
        Some(match found {
            Some((_, recorder)) => recorder,
            None => Arc::new(Recorder::new(false)),
        })
    }
}

impl crypto::ServerConfig for ServerCrypto {
    fn initial_keys(
        &self,
        version: u32,
        dst_cid: &ConnectionId,
    ) -> Result<Keys, UnsupportedVersion> {
        if !self.supported.contains(&version) {
            return Err(UnsupportedVersion);
        }
        known_version(version)?;
        let versions = Versions::only(Side::Server, version);
        let hook = self.first_hook(dst_cid);
        let derived = DerivedKeys::new(dst_cid, Side::Server);
        *self.first_keys() = Some(derived.clone());
        Ok(keys::initial_keys::initial(derived, &versions, &hook))
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        retry_tag::tag(version, orig_dst_cid, &[packet])
    }

    /// Creates a session that waits for the ClientHello. TLS cannot start before: its input includes this side's
    /// transport parameters, which contain the QUIC version, which depends on the ClientHello.
    fn start_session(
        self: Arc<Self>,
        version: u32,
        params: &TransportParameters,
    ) -> Box<dyn crypto::Session> {
        let versions = Versions::server(version, &self.supported);
        let mut config = self.config.clone();
        if let Some(sessions) = self.sessions.clone() {
            let versions = versions.clone();
            let sessions = sessions::ConnectionSessions { sessions, versions };
            Arc::make_mut(&mut config).session_storage = Arc::new(sessions);
        }
        let waiting = Waiting {
            config,
            version: known_version(version).expect("`initial_keys` rejected other versions"),
            params: self.packet_options.encode(params),
            first: ClientHelloBuffer::default(),
            expected: self.expected.clone(),
        };
        let ids = ConnectionIds::from_parameters(&waiting.params);
        let hook = self.packet_options.hook(self.recorder(&ids));
        hook.set_ids(ids);
        let inner = Inner::Waiting(Box::new(waiting));
        let mut session = Session::new(inner, self.clock.clone(), versions, hook);
        session.first_keys = self.first_keys().take();
        Box::new(session)
    }
}

/// The keys that open a client's first packets. `None` for an unknown version.
pub(crate) fn server_initial_keys(version: u32, dst_cid: &[u8]) -> Option<Keys> {
    known_version(version).ok()?;
    // RFC 9000 section 17.2: in versions 1 and 2, connection IDs have at most 20 bytes.
    if dst_cid.len() > 20 {
        return None;
    }
    let versions = Versions::only(Side::Server, version);
    let dst_cid = ConnectionId::new(dst_cid);
    let derived = DerivedKeys::new(&dst_cid, Side::Server);
    Some(keys::initial_keys::initial(
        derived,
        &versions,
        &Arc::default(),
    ))
}

fn known_version(version: u32) -> Result<Version, UnsupportedVersion> {
    versions::known(version).ok_or(UnsupportedVersion)
}

/// The number of recorders of first packets that are stored until it is clear if the packets begin a connection.
const FIRST_PACKETS_MAX: usize = 16;
