//! QUIC versions 1 and 2 (RFC 9000, RFC 9369) and the choice between them (RFC 9368).
//!
//! For quinn-proto a connection has one version, the *original* one. The packets may have another, the *negotiated*
//! one. A connection's session and its keys share both through [`Versions`]. Version 2 differs from version 1 in four
//! things: salts and labels of keys (`workarounds::hkdf_labels`, and rustls for Initial packets), the type bits of long
//! headers (`wire::packet_header`), and the Retry tag (`keys::retry_tag`).
//!
//! - `version_information`: the transport parameter `version_information`, and its checks.
//!
//! Not here: Version Negotiation packets and splitting of datagrams, which the endpoint does.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use quinn_proto::Side;
use rustls::quic::Version;
use uringcore_wire::packet_header::{VERSION_1, VERSION_2};

mod version_information;

pub(super) use version_information::VersionInformation;

/// The version in rustls' form. `None` for a version that this crate does not implement.
pub(super) fn known(version: u32) -> Option<Version> {
    match version {
        VERSION_1 => Some(Version::V1),
        VERSION_2 => Some(Version::V2),
        _ => None,
    }
}

/// A random reserved version (RFC 9000 section 15), which every peer must ignore.
pub(crate) fn reserved() -> u32 {
    let mut bytes = [0; 4];
    // If the random number generator fails, a fixed reserved version is good enough.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    u32::from_be_bytes(bytes) & 0xf0f0_f0f0 | 0x0a0a_0a0a
}

/// A reserved version other than `asked`.
pub(crate) fn reserved_besides(asked: u32) -> u32 {
    let any = reserved();
    any ^ u32::from(any == asked) << 4
}

/// How a client has chosen the version that it begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Beginning {
    /// The client has chosen the version itself.
    #[default]
    Chosen,
    /// A Version Negotiation packet has offered the version. Anybody could have sent that packet (RFC 9368 section 4).
    Reported,
}

/// The versions of one connection. Its session, its keys and the connection share them.
#[derive(Debug)]
pub(crate) struct Versions {
    side: Side,
    /// The version of quinn-proto's connection.
    original: u32,
    /// The version in the packets of the first flight. It differs from `original` only for a client that uses an
    /// unknown version to provoke a Version Negotiation packet.
    first: u32,
    /// The supported versions, the preferred one first. A client's list contains `original`.
    supported: Vec<u32>,
    beginning: Beginning,
    /// The negotiated version. 0: it is not decided yet.
    negotiated: AtomicU32,
    /// The version of the last authentic Initial packet that has arrived. 0: there was none.
    received: AtomicU32,
    retried: AtomicBool,
}

impl Versions {
    /// The versions of a client. `first` is the version in its first packets.
    pub(super) fn client(
        original: u32,
        first: u32,
        supported: &[u32],
        beginning: Beginning,
    ) -> Arc<Self> {
        let mut supported = supported.to_vec();
        if !supported.contains(&original) {
            supported.insert(0, original);
        }
        Arc::new(Self {
            first,
            beginning,
            ..Self::new(Side::Client, original, supported)
        })
    }

    pub(super) fn server(original: u32, supported: &[u32]) -> Arc<Self> {
        Arc::new(Self::new(Side::Server, original, supported.to_vec()))
    }

    /// A version that is decided without a negotiation. A server answers a first packet with it, before it has a
    /// connection.
    pub fn only(side: Side, version: u32) -> Arc<Self> {
        let versions = Self::new(side, version, vec![version]);
        versions.decide(version);
        Arc::new(versions)
    }

    fn new(side: Side, original: u32, supported: Vec<u32>) -> Self {
        Self {
            side,
            original,
            first: original,
            supported,
            beginning: Beginning::Chosen,
            negotiated: AtomicU32::new(UNDECIDED),
            received: AtomicU32::new(UNDECIDED),
            retried: AtomicBool::new(false),
        }
    }

    pub fn original(&self) -> u32 {
        self.original
    }

    /// The versions that this side supports, the preferred one first.
    pub fn supported(&self) -> &[u32] {
        &self.supported
    }

    /// The version in the packets of the first flight.
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// The version that was negotiated. `None` until it is decided.
    pub fn negotiated(&self) -> Option<u32> {
        match self.negotiated.load(Ordering::Relaxed) {
            UNDECIDED => None,
            version => Some(version),
        }
    }

    /// The version in the packets that this side sends now.
    pub fn current(&self) -> u32 {
        self.negotiated().unwrap_or(self.first)
    }

    pub(super) fn decide(&self, version: u32) {
        self.negotiated.store(version, Ordering::Relaxed);
    }

    /// The negotiated version if it differs from the original one, for which rustls makes keys by itself.
    pub(super) fn switched(&self) -> Option<u32> {
        self.negotiated()
            .filter(|version| *version != self.original)
    }

    /// True if an Initial packet of this version is acceptable (RFC 9369 section 4.1). A client accepts every version
    /// that it has offered, until one is decided. A server accepts the original version besides the negotiated one,
    /// because the client does not know that one at first.
    pub(super) fn is_acceptable(&self, version: u32) -> bool {
        match (self.negotiated(), self.side) {
            (Some(negotiated), Side::Client) => version == negotiated,
            (Some(negotiated), Side::Server) => version == negotiated || version == self.original,
            (None, Side::Client) => known(version).is_some() && self.supported.contains(&version),
            (None, Side::Server) => version == self.original,
        }
    }

    /// Records that an authentic Initial packet of this version has arrived.
    pub(super) fn received(&self, version: u32) {
        self.received.store(version, Ordering::Relaxed);
    }

    /// Called when handshake bytes have arrived. On a client they decide the version. An ACK alone does not decide it,
    /// because a server sends that before it has the whole ClientHello.
    pub(super) fn handshake_bytes(&self) {
        if self.side.is_client() && self.negotiated().is_none() {
            let received = match self.received.load(Ordering::Relaxed) {
                UNDECIDED => self.original,
                version => version,
            };
            self.decide(received);
        }
    }

    pub(super) fn set_retried(&self) {
        self.retried.store(true, Ordering::Relaxed);
    }

    /// True if the server has sent a Retry (RFC 9000 section 17.2.5).
    pub fn is_retried(&self) -> bool {
        self.retried.load(Ordering::Relaxed)
    }

    /// A client's reaction to a Version Negotiation packet that offers these versions (RFC 9000 section 6.2, RFC 9368
    /// section 2.1). The packet is ignored if another packet of the server has arrived before.
    pub fn answer(&self, offered: &[u32]) -> Answer {
        let was_answered = self.received.load(Ordering::Relaxed) != UNDECIDED
            || self.is_retried()
            || self.beginning == Beginning::Reported;
        if was_answered || offered.contains(&self.first) {
            return Answer::Ignore;
        }
        match preferred(&self.supported, offered) {
            Some(version) => Answer::BeginAgain(version),
            None => Answer::GiveUp,
        }
    }
}

/// A client's reaction to a Version Negotiation packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Ignore,
    BeginAgain(u32),
    GiveUp,
}

/// The first version of `supported` that is `offered` and that this crate implements.
fn preferred(supported: &[u32], offered: &[u32]) -> Option<u32> {
    supported
        .iter()
        .copied()
        .find(|version| known(*version).is_some() && offered.contains(version))
}

const UNDECIDED: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_versions_have_the_rfcs_pattern() {
        for _ in 0..100 {
            let one = reserved();
            let other = reserved_besides(one);
            assert_eq!((one | other) & 0x0f0f_0f0f, 0x0a0a_0a0a);
            assert_ne!(one, other);
        }
    }

    #[test]
    fn version_negotiation_is_accepted_only_before_other_packets() {
        let begun = |first, supported: &[u32], beginning| {
            Versions::client(VERSION_1, first, supported, beginning)
        };
        let both = [VERSION_2, VERSION_1];
        let versions = begun(VERSION_1, &both, Beginning::Chosen);
        assert_eq!(
            versions.answer(&[0x0a0a_0a0a, VERSION_2]),
            Answer::BeginAgain(VERSION_2)
        );
        assert_eq!(versions.answer(&[7]), Answer::GiveUp);
        assert_eq!(versions.answer(&both), Answer::Ignore);
        versions.received(VERSION_1);
        assert_eq!(versions.answer(&[VERSION_2]), Answer::Ignore);
        let versions = begun(VERSION_1, &both, Beginning::Chosen);
        versions.set_retried();
        assert_eq!(versions.answer(&[VERSION_2]), Answer::Ignore);
        let versions = begun(VERSION_1, &both, Beginning::Reported);
        assert_eq!(versions.answer(&[VERSION_2]), Answer::Ignore);
        let versions = begun(0x1a2a_3a4a, &[0x1a2a_3a4a, VERSION_1], Beginning::Chosen);
        assert_eq!(
            versions.answer(&[VERSION_2, VERSION_1]),
            Answer::BeginAgain(VERSION_1)
        );
    }

    #[test]
    fn initial_packets_are_accepted_only_of_acceptable_versions() {
        let both = [VERSION_1, VERSION_2];
        let client = Versions::client(VERSION_1, VERSION_1, &both, Beginning::Chosen);
        assert!(client.is_acceptable(VERSION_1) && client.is_acceptable(VERSION_2));
        client.received(VERSION_1);
        assert_eq!(
            client.negotiated(),
            None,
            "an ACK alone does not decide the version"
        );
        client.received(VERSION_2);
        client.handshake_bytes();
        assert_eq!(client.switched(), Some(VERSION_2));
        assert!(!client.is_acceptable(VERSION_1) && client.is_acceptable(VERSION_2));
        let client = Versions::client(VERSION_1, VERSION_1, &[VERSION_1], Beginning::Chosen);
        assert!(!client.is_acceptable(VERSION_2), "not offered");
        let server = Versions::server(VERSION_1, &both);
        assert!(server.is_acceptable(VERSION_1) && !server.is_acceptable(VERSION_2));
        server.decide(VERSION_2);
        assert!(server.is_acceptable(VERSION_1) && server.is_acceptable(VERSION_2));
    }
}
