//! The packet keys of consecutive key phases (RFC 9001 section 6). The keys of a phase are made when a packet first
//! needs them.
//!
//! quinn-proto requests the keys of the second phase together with the first ones, but most connections end in their
//! first phase. Making the keys at once would cost each handshake six derivations and two AEADs, and each connection
//! a kilobyte. Section 6.3 allows keys to be made while a packet is processed, but warns of a side channel: the first
//! packet of a phase takes some microseconds longer, so an observer of the timing could learn the Key Phase bit of
//! that packet. That discloses one key update, and nothing else.
//!
//! Assumed of quinn-proto: it requests a phase's keys one update ahead, the first time with the keys of the first
//! phase, and does not use them before an update. Assumed of rustls: its secrets advance one phase a call, in one
//! direction.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustls::{
    Error,
    quic::{PacketKey, PacketKeySet, Secrets, Tag},
};

use super::hkdf_labels::Scope;

/// The secrets from which the keys of later phases are made, and the phase that was requested last.
pub struct KeyPhases {
    secrets: Arc<Mutex<Secrets>>,
    last: Option<Arc<Phase>>,
}

impl KeyPhases {
    /// Begins with `secrets`, from which the keys of the second key phase are derived.
    pub fn new(secrets: Secrets) -> Self {
        Self {
            secrets: Arc::new(Mutex::new(secrets)),
            last: None,
        }
    }

    /// The keys of the next phase. They have the labels of `version`, if that differs from the session's version.
    pub fn next(&mut self, version: Option<u32>) -> PacketKeySet {
        // Making keys advances the secrets by one phase. So the keys of the last phase are made first, if they were not
        // used yet.
        if let Some(last) = &self.last {
            last.keys();
        }
        let phase = Arc::new(Phase {
            secrets: self.secrets.clone(),
            version,
            keys: OnceLock::new(),
        });
        self.last = Some(phase.clone());
        let key = |side: Side| Box::new(Key(phase.clone(), side));
        PacketKeySet {
            local: key(|keys| &*keys.local),
            remote: key(|keys| &*keys.remote),
        }
    }
}

struct Phase {
    secrets: Arc<Mutex<Secrets>>,
    version: Option<u32>,
    keys: OnceLock<PacketKeySet>,
}

impl Phase {
    fn keys(&self) -> &PacketKeySet {
        self.keys.get_or_init(|| {
            let _labels = Scope::open(self.version);
            let secrets = self.secrets.lock();
            secrets
                .unwrap_or_else(PoisonError::into_inner)
                .next_packet_keys()
        })
    }
}

type Side = fn(&PacketKeySet) -> &dyn PacketKey;

/// The key of one direction in one phase.
struct Key(Arc<Phase>, Side);

impl Key {
    fn key(&self) -> &dyn PacketKey {
        self.1(self.0.keys())
    }
}

impl PacketKey for Key {
    fn encrypt_in_place(
        &self,
        packet_number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<Tag, Error> {
        self.key().encrypt_in_place(packet_number, header, payload)
    }

    fn decrypt_in_place<'a>(
        &self,
        packet_number: u64,
        header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], Error> {
        self.key().decrypt_in_place(packet_number, header, payload)
    }

    fn tag_len(&self) -> usize {
        self.key().tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key().confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key().integrity_limit()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use crate::workarounds::bare_quinn::{BareQuinn, End};

    /// Returns how often quinn-proto has requested keys of later key phases, and true if it has used such keys.
    fn later(end: &End) -> (u64, bool) {
        let touched = end.spy.touches_of_later.load(Ordering::Relaxed);
        (end.spy.phases.load(Ordering::Relaxed), touched > 0)
    }

    #[test]
    fn bare_quinn_requests_keys_one_phase_ahead_and_uses_them_at_an_update() {
        let mut bare = BareQuinn::connected(quinn_proto::TransportConfig::default());
        bare.client.connection().ping();
        bare.exchange();
        assert_eq!(later(&bare.client), (1, false));
        assert_eq!(later(&bare.server), (1, false));
        bare.client.connection().force_key_update();
        assert_eq!(later(&bare.client).0, 2);
        bare.client.connection().ping();
        bare.exchange();
        assert_eq!(later(&bare.client), (2, true));
        assert_eq!(later(&bare.server), (2, true), "it follows");
    }
}
