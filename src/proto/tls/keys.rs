//! Packet and header keys: rustls' own, behind the state machine's traits, with a [`Tap`] on the
//! clear text.
//!
//! Not here: where keys come from (`session`), and Retry, which has no keys (`retry`).

use std::sync::Arc;

use bytes::BytesMut;
use quinn_proto::crypto::{self, CryptoError, KeyPair, Keys};
use rustls::quic;

use super::tap::{Space, Tap};

/// A full set of keys for `space`.
pub(super) fn wrap(keys: quic::Keys, space: Space, tap: &Arc<Tap>) -> Keys {
    Keys {
        header: KeyPair {
            local: Box::new(HeaderKey(keys.local.header)),
            remote: Box::new(HeaderKey(keys.remote.header)),
        },
        packet: KeyPair {
            local: packet_key(keys.local.packet, space, tap),
            remote: packet_key(keys.remote.packet, space, tap),
        },
    }
}

/// The packet keys of the next key phase (RFC 9001 section 6). Header keys stay.
pub(super) fn wrap_update(
    keys: quic::PacketKeySet,
    tap: &Arc<Tap>,
) -> KeyPair<Box<dyn crypto::PacketKey>> {
    tap.made_keys();
    KeyPair {
        local: packet_key(keys.local, Space::Data, tap),
        remote: packet_key(keys.remote, Space::Data, tap),
    }
}

/// Keys for 0-RTT packets, which only ever go one way.
pub(super) fn wrap_early(
    keys: quic::DirectionalKeys,
    tap: &Arc<Tap>,
) -> (Box<dyn crypto::HeaderKey>, Box<dyn crypto::PacketKey>) {
    (
        Box::new(HeaderKey(keys.header)),
        packet_key(keys.packet, Space::Data, tap),
    )
}

fn packet_key(
    key: Box<dyn quic::PacketKey>,
    space: Space,
    tap: &Arc<Tap>,
) -> Box<dyn crypto::PacketKey> {
    Box::new(PacketKey {
        key,
        space,
        tap: tap.clone(),
    })
}

struct PacketKey {
    key: Box<dyn quic::PacketKey>,
    space: Space,
    tap: Arc<Tap>,
}

impl crypto::PacketKey for PacketKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        let (header, rest) = buf.split_at_mut(header_len);
        let (payload, tag) = rest.split_at_mut(rest.len() - self.key.tag_len());
        self.tap
            .sealing(self.space, packet, header, payload, tag.len());
        let sealed = self
            .key
            .encrypt_in_place(packet, header, payload)
            .expect("a packet is far shorter than what an AEAD can seal");
        tag.copy_from_slice(sealed.as_ref());
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        let length = self
            .key
            .decrypt_in_place(packet, header, payload)
            .map_err(|_| CryptoError)?
            .len();
        payload.truncate(length);
        self.tap
            .opened(self.space, packet, header, payload, self.key.tag_len());
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.key.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key.integrity_limit()
    }
}

struct HeaderKey(Box<dyn quic::HeaderProtectionKey>);

impl HeaderKey {
    /// The first byte, the bytes that may hold the packet number, and the sample (RFC 9001 section
    /// 5.4.2).
    fn parts<'a>(
        &self,
        pn_offset: usize,
        packet: &'a mut [u8],
    ) -> (&'a mut u8, &'a mut [u8], &'a [u8]) {
        let (header, sample) = packet.split_at_mut(pn_offset + 4);
        let (first, rest) = header.split_at_mut(1);
        let number = &mut rest[pn_offset - 1..pn_offset + 3];
        (&mut first[0], number, &sample[..self.0.sample_len()])
    }
}

impl crypto::HeaderKey for HeaderKey {
    fn decrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        let (first, number, sample) = self.parts(pn_offset, packet);
        self.0
            .decrypt_in_place(sample, first, number)
            .expect("the sample has the key's length");
    }

    fn encrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        let (first, number, sample) = self.parts(pn_offset, packet);
        self.0
            .encrypt_in_place(sample, first, number)
            .expect("the sample has the key's length");
    }

    fn sample_size(&self) -> usize {
        self.0.sample_len()
    }
}
