//! Keys of Initial packets. Anybody who sees the first packet of a connection can derive them (RFC 9001 section 5.2).

use std::sync::{Arc, OnceLock};

use bytes::BytesMut;
use quinn_proto::{
    ConnectionId, Side,
    crypto::{self, CryptoError, KeyPair, Keys},
};
use rustls::{
    crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256,
    quic::{self, Suite, Version},
};
use uringcore_wire::packet_header::{Space, VERSION_1, VERSION_2, version_of};

use super::{SAMPLE_LEN, TAG_LEN, mask, name, open, packet_hook::PacketHook, seal, unmask};
use crate::{
    qlog::Epoch,
    tls::versions::Versions,
    workarounds::{received_padding_removal, server_hello_ack_hiding, version_2_packets},
};

/// Keys of Initial packets of every version that may arrive (RFC 9001 section 5.2, RFC 9369 section 3.3.1).
pub(in crate::tls) fn initial(
    derived: Arc<DerivedKeys>,
    versions: &Arc<Versions>,
    hook: &Arc<PacketHook>,
) -> Keys {
    for sealer in [!derived.side, derived.side] {
        hook.key_made(name(Epoch::Initial, sealer));
    }
    let keys = Arc::new(InitialKeys {
        derived,
        versions: versions.clone(),
        hook: hook.clone(),
    });
    Keys {
        header: KeyPair {
            local: Box::new(LocalInitial(keys.clone())),
            remote: Box::new(RemoteInitial(keys.clone())),
        },
        packet: KeyPair {
            local: Box::new(LocalInitial(keys.clone())),
            remote: Box::new(RemoteInitial(keys)),
        },
    }
}

/// The Initial keys of one side for one destination connection ID, by version. Each set of keys is derived when it is
/// first used. The keys depend on the ID and the version alone, not on the configured cipher suites.
///
/// A server's endpoint opens a client's first packet before the connection exists. quinn-proto then requests the keys
/// again, for the connection. The two requests share these keys, because a derivation costs a twentieth of a handshake.
pub(in crate::tls) struct DerivedKeys {
    v1: OnceLock<quic::Keys>,
    v2: OnceLock<quic::Keys>,
    client_dst_cid: ConnectionId,
    side: Side,
}

impl DerivedKeys {
    pub fn new(client_dst_cid: &ConnectionId, side: Side) -> Arc<Self> {
        Arc::new(Self {
            v1: OnceLock::new(),
            v2: OnceLock::new(),
            client_dst_cid: *client_dst_cid,
            side,
        })
    }

    /// True if these are the keys of `side` for `client_dst_cid`.
    pub fn are_for(&self, client_dst_cid: &ConnectionId, side: Side) -> bool {
        self.client_dst_cid == *client_dst_cid && self.side == side
    }

    /// An unknown version gets the keys of version 1. It is used only to provoke a Version Negotiation packet, for
    /// which the first packet must look like an Initial packet.
    fn of(&self, version: u32) -> &quic::Keys {
        let (keys, version) = match version {
            VERSION_2 => (&self.v2, Version::V2),
            _ => (&self.v1, Version::V1),
        };
        let side = match self.side {
            Side::Client => rustls::Side::Client,
            Side::Server => rustls::Side::Server,
        };
        keys.get_or_init(|| initial_suite().keys(&self.client_dst_cid, side, version))
    }
}

/// The keys of Initial packets, with the versions and the packet hook of their user.
struct InitialKeys {
    derived: Arc<DerivedKeys>,
    versions: Arc<Versions>,
    hook: Arc<PacketHook>,
}

impl Drop for InitialKeys {
    fn drop(&mut self) {
        for sealer in [!self.derived.side, self.derived.side] {
            self.hook.key_dropped(name(Epoch::Initial, sealer));
        }
    }
}

impl InitialKeys {
    fn of(&self, version: u32) -> &quic::Keys {
        self.derived.of(version)
    }

    /// The keys of any version, for properties in which the versions do not differ.
    fn of_any_version(&self) -> &quic::Keys {
        self.of(self.versions.original())
    }

    /// The keys that open a received packet, and its version. `None` if that version is not acceptable.
    fn of_received(&self, packet: &[u8]) -> Option<(u32, &quic::Keys)> {
        let version = version_of(packet)?;
        match self.versions.is_acceptable(version) {
            true => Some((version, self.of(version))),
            false => None,
        }
    }
}

/// The keys that seal the Initial packets of this side.
struct LocalInitial(Arc<InitialKeys>);

impl crypto::PacketKey for LocalInitial {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        let version = self.0.versions.current();
        version_2_packets::show(buf, version);
        let key = &*self.0.of(version).local.packet;
        seal(key, Space::Initial, &self.0.hook, packet, buf, header_len);
    }

    /// These keys seal only this side's packets, which it never receives.
    fn decrypt(&self, _: u64, _: &[u8], _: &mut BytesMut) -> Result<(), CryptoError> {
        Err(CryptoError)
    }

    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn confidentiality_limit(&self) -> u64 {
        self.0.of_any_version().local.packet.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.0.of_any_version().local.packet.integrity_limit()
    }
}

impl crypto::HeaderKey for LocalInitial {
    fn decrypt(&self, _: usize, _: &mut [u8]) {}

    /// The version field of the packet has its final value already, so it is not rewritten here.
    fn encrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        let version = version_of(packet).unwrap_or(VERSION_1);
        mask(&*self.0.of(version).local.header, pn_offset, packet);
    }

    fn sample_size(&self) -> usize {
        SAMPLE_LEN
    }
}

/// Keys that open the peer's packets. A packet of an unacceptable version is left unchanged and fails to open.
struct RemoteInitial(Arc<InitialKeys>);

impl crypto::PacketKey for RemoteInitial {
    fn encrypt(&self, _: u64, _: &mut [u8], _: usize) {}

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        let Some((version, keys)) = self.0.of_received(header) else {
            self.0.hook.unopened(Space::Initial, header, false);
            return Err(CryptoError);
        };
        let header = version_2_packets::received(header);
        let key = &*keys.remote.packet;
        open(key, Space::Initial, &self.0.hook, packet, &header, payload)?;
        self.0.versions.received(version);
        let side = self.0.derived.side;
        if side.is_server() && self.0.versions.switched() == Some(version) {
            server_hello_ack_hiding::hide(payload);
        }
        match side {
            Side::Server => received_padding_removal::fold(payload),
            Side::Client => received_padding_removal::cut(payload),
        }
        Ok(())
    }

    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn confidentiality_limit(&self) -> u64 {
        self.0
            .of_any_version()
            .remote
            .packet
            .confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.0.of_any_version().remote.packet.integrity_limit()
    }
}

impl crypto::HeaderKey for RemoteInitial {
    fn decrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        if let Some((_, keys)) = self.0.of_received(packet) {
            unmask(&*keys.remote.header, pn_offset, packet);
        }
    }

    fn encrypt(&self, _: usize, _: &mut [u8]) {}

    fn sample_size(&self) -> usize {
        SAMPLE_LEN
    }
}

fn initial_suite() -> Suite {
    TLS13_AES_128_GCM_SHA256
        .tls13()
        .and_then(|suite| suite.quic_suite())
        .expect("the provider's AES-128-GCM works with QUIC")
}

#[cfg(test)]
mod tests {
    use uringcore_wire::packet_header::unshift_type;

    use super::{super::packet_hook::PacketObserver, *};

    /// The payload of a client's Initial packet of version 2 that a server opens.
    fn received_by(server: &Arc<Versions>, payload: &[u8]) -> Vec<u8> {
        seen_by(&Arc::default(), server, payload)
    }

    /// The payload that a server with this packet hook opens of a client's Initial packet of version 2.
    fn seen_by(hook: &Arc<PacketHook>, server: &Arc<Versions>, payload: &[u8]) -> Vec<u8> {
        let id = ConnectionId::new(&[5; 8]);
        let client = Versions::only(Side::Client, VERSION_2);
        let derived = DerivedKeys::new(&id, Side::Client);
        let local = initial(derived, &client, &Arc::default()).packet.local;
        let mut packet = vec![0xc0, 0, 0, 0, 1, 0, 0, 0, 0x40, 0x40, 3];
        let header_len = packet.len();
        packet.extend(payload);
        packet.resize(packet.len() + local.tag_len(), 0);
        local.encrypt(3, &mut packet, header_len);
        packet[0] = unshift_type(packet[0]);
        let mut sealed = BytesMut::from(&packet[header_len..]);
        let derived = DerivedKeys::new(&id, Side::Server);
        let remote = initial(derived, server, hook).packet.remote;
        let header = &packet[..header_len];
        remote.decrypt(3, header, &mut sealed).unwrap();
        sealed.to_vec()
    }

    #[test]
    fn acks_in_initial_packets_are_hidden_after_a_version_switch() {
        let both = [VERSION_1, VERSION_2];
        // The frames are an ACK, a CRYPTO with four bytes, and a PING.
        let payload = [2, 0, 0, 0, 0, 6, 0, 4, 1, 2, 3, 4, 1];
        let switched = Versions::server(VERSION_1, &both);
        switched.decide(VERSION_2);
        let hidden = [0, 0, 0, 0, 0, 6, 0, 4, 1, 2, 3, 4, 1];
        assert_eq!(received_by(&switched, &payload), hidden);
        let plain = Versions::server(VERSION_2, &both);
        plain.decide(VERSION_2);
        assert_eq!(received_by(&plain, &payload), payload);
    }
    #[derive(Default)]
    struct Watcher(std::sync::Mutex<Vec<u8>>);

    impl PacketObserver for Watcher {
        fn sealing(&self, _: Space, _: u64, _: usize, payload: &mut [u8]) -> usize {
            payload.len()
        }

        fn passing_on(&self, _: Space, _: &mut BytesMut) {}

        fn opened(&self, _: Space, payload: &[u8]) {
            *self.0.lock().unwrap() = payload.to_vec();
        }
    }

    #[test]
    fn the_packet_hook_sees_padding_unchanged() {
        let server = Versions::server(VERSION_2, &[VERSION_2]);
        let payload = [&[6, 0, 4, 1, 2, 3, 0][..], &[0; 1_100]].concat();
        let (hook, watcher) = (Arc::<PacketHook>::default(), Arc::<Watcher>::default());
        hook.attach(watcher.clone());
        hook.set_open(true);
        let opened = seen_by(&hook, &server, &payload);
        assert_eq!((&opened[..7], opened.len()), (&payload[..7], payload.len()));
        assert_ne!(opened, payload);
        assert_eq!(*watcher.0.lock().unwrap(), payload);
    }
}
