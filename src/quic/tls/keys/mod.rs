//! Wraps the packet keys and header keys of rustls for quinn-proto. A wrapped key shows packets in plain text to a
//! [`PacketHook`], and writes the real QUIC version into packets.
//!
//! quinn-proto writes and reads long headers in the layout of version 1, with the version that the connection began
//! with. A key gets the whole packet before it is sealed, so it writes the real version and type bits; nothing
//! changes these bytes after that, header protection included. A received packet has the type bits of version 1,
//! because the endpoint has converted it, and its own version field.
//!
//! - `initial_keys`: keys of Initial packets, of every version.
//! - `stateless_reset_keys`: the keys of stateless reset tokens.
//! - `retry_tag`: the tag of Retry packets, which have no keys.
//! - `packet_hook`: shows packets in plain text to the layer above.
//! - `address_token_keys`: the keys of address validation tokens.
//!
//! Not here: the derivation of keys (`handshake`), and keys of later key phases (`workarounds::lazy_phase_keys`).

use std::sync::Arc;

use bytes::BytesMut;
use quinn_proto::{
    Side,
    crypto::{self, CryptoError, KeyPair, Keys},
};
use rustls::quic;
use uringcore_wire::packet_header::Space;

use crate::{
    qlog::{Direction, Epoch, KeyName},
    workarounds::{received_padding_removal, version_2_packets},
};

pub(super) mod address_token_keys;
pub(super) mod initial_keys;
pub(super) mod packet_hook;
pub(super) mod retry_tag;
pub(super) mod stateless_reset_keys;

use packet_hook::PacketHook;

/// Wraps the keys of one encryption level. Long headers get the version `wire`. `None`: quinn-proto's version is
/// right.
pub(super) fn wrap(
    keys: quic::Keys,
    epoch: Epoch,
    side: Side,
    hook: &Arc<PacketHook>,
    wire: Option<u32>,
) -> Keys {
    Keys {
        header: KeyPair {
            local: Box::new(LocalHeaderKey {
                key: keys.local.header,
                hook: hook.clone(),
            }),
            remote: Box::new(HeaderKey(keys.remote.header)),
        },
        packet: KeyPair {
            remote: packet_key(keys.remote.packet, name(epoch, !side), hook, wire),
            local: packet_key(keys.local.packet, name(epoch, side), hook, wire),
        },
    }
}

/// Wraps the packet keys of the next key phase (RFC 9001 section 6). Header keys do not change.
pub(super) fn wrap_update(
    keys: quic::PacketKeySet,
    side: Side,
    hook: &Arc<PacketHook>,
) -> KeyPair<Box<dyn crypto::PacketKey>> {
    let epoch = Epoch::OneRtt(hook.count_key_phase());
    KeyPair {
        local: packet_key(keys.local, name(epoch, side), hook, None),
        remote: packet_key(keys.remote, name(epoch, !side), hook, None),
    }
}

/// Wraps the keys of 0-RTT packets, which have only one direction.
pub(super) fn wrap_early(
    keys: quic::DirectionalKeys,
    hook: &Arc<PacketHook>,
    wire: Option<u32>,
) -> (Box<dyn crypto::HeaderKey>, Box<dyn crypto::PacketKey>) {
    (
        Box::new(HeaderKey(keys.header)),
        packet_key(keys.packet, name(Epoch::Early, Side::Client), hook, wire),
    )
}

fn name(epoch: Epoch, side: Side) -> KeyName {
    KeyName {
        epoch,
        is_clients: side.is_client(),
    }
}

fn packet_key(
    key: Box<dyn quic::PacketKey>,
    name: KeyName,
    hook: &Arc<PacketHook>,
    wire: Option<u32>,
) -> Box<dyn crypto::PacketKey> {
    hook.key_made(name);
    Box::new(PacketKey {
        key,
        name,
        space: match name.epoch {
            Epoch::Initial => Space::Initial,
            Epoch::Handshake => Space::Handshake,
            Epoch::Early | Epoch::OneRtt(_) => Space::Data,
        },
        hook: hook.clone(),
        wire,
    })
}

struct PacketKey {
    key: Box<dyn quic::PacketKey>,
    name: KeyName,
    space: Space,
    hook: Arc<PacketHook>,
    wire: Option<u32>,
}

impl Drop for PacketKey {
    fn drop(&mut self) {
        self.hook.key_dropped(self.name);
    }
}

impl crypto::PacketKey for PacketKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        if let Some(version) = self.wire {
            version_2_packets::show(buf, version);
        }
        seal(&*self.key, self.space, &self.hook, packet, buf, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        match self.wire {
            None => open(&*self.key, self.space, &self.hook, packet, header, payload),
            Some(_) => {
                let header = version_2_packets::received(header);
                open(&*self.key, self.space, &self.hook, packet, &header, payload)
            }
        }?;
        received_padding_removal::cut(payload);
        Ok(())
    }

    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key.integrity_limit()
    }
}

struct HeaderKey(Box<dyn quic::HeaderProtectionKey>);

impl crypto::HeaderKey for HeaderKey {
    fn decrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        unmask(&*self.0, pn_offset, packet);
    }

    fn encrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        mask(&*self.0, pn_offset, packet);
    }

    fn sample_size(&self) -> usize {
        SAMPLE_LEN
    }
}

/// A header key for this side's packets. It also protects the header of a packet that was sealed in place of a PING.
struct LocalHeaderKey {
    key: Box<dyn quic::HeaderProtectionKey>,
    hook: Arc<PacketHook>,
}

impl crypto::HeaderKey for LocalHeaderKey {
    /// This key protects only this side's packets, which it never receives.
    fn decrypt(&self, _: usize, _: &mut [u8]) {}

    fn encrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        mask(&*self.key, pn_offset, packet);
        let probe = self.hook.probe();
        probe.mask(|number_at, packet| mask(&*self.key, number_at, packet));
    }

    fn sample_size(&self) -> usize {
        SAMPLE_LEN
    }
}

/// Seals a packet, or a probe in place of the packet. If only a part of the payload is sealed, the authentication tag
/// follows that part, and the bytes of `buf` behind the tag must not be sent.
fn seal(
    key: &dyn quic::PacketKey,
    space: Space,
    hook: &PacketHook,
    number: u64,
    buf: &mut [u8],
    header_len: usize,
) {
    let (header, rest) = buf.split_at_mut(header_len);
    let tag_len = TAG_LEN;
    let payload_len = rest.len() - tag_len;
    let payload = &mut rest[..payload_len];
    if space == Space::Data {
        let record = |header: &[u8], payload: &[u8]| {
            hook.record(Direction::Sent, space, number, header, payload, tag_len);
        };
        if hook.probe().seal(key, number, header, payload, record) {
            return;
        }
    }
    let length = hook.sealing(space, number, header, payload, tag_len);
    let (payload, behind) = rest.split_at_mut(length);
    let sealed = key
        .encrypt_in_place(number, header, payload)
        .expect("a packet is far shorter than an AEAD's limit");
    behind[..tag_len].copy_from_slice(sealed.as_ref());
}

fn open(
    key: &dyn quic::PacketKey,
    space: Space,
    hook: &PacketHook,
    number: u64,
    header: &[u8],
    payload: &mut BytesMut,
) -> Result<(), CryptoError> {
    let Ok(opened) = key.decrypt_in_place(number, header, payload) else {
        hook.unopened(space, header, true);
        return Err(CryptoError);
    };
    let length = opened.len();
    payload.truncate(length);
    hook.opened(space, number, header, payload, TAG_LEN);
    match space {
        Space::Data => {
            hook.datagram_limit().enforce(payload);
            hook.resets().opened(payload, hook.received_offsets());
        }
        Space::Handshake => hook.handshake_opened(),
        Space::Initial => {}
    }
    Ok(())
}

fn mask(key: &dyn quic::HeaderProtectionKey, pn_offset: usize, packet: &mut [u8]) {
    let (first, number, sample) = parts(pn_offset, packet);
    key.encrypt_in_place(sample, first, number)
        .expect("the sample has the key's length");
}

fn unmask(key: &dyn quic::HeaderProtectionKey, pn_offset: usize, packet: &mut [u8]) {
    let (first, number, sample) = parts(pn_offset, packet);
    key.decrypt_in_place(sample, first, number)
        .expect("the sample has the key's length");
}

/// The parts of a packet that header protection needs (RFC 9001 section 5.4.2): the first byte, the bytes that may
/// contain the packet number, and the sample.
fn parts(pn_offset: usize, packet: &mut [u8]) -> (&mut u8, &mut [u8], &[u8]) {
    let (header, sample) = packet.split_at_mut(pn_offset + 4);
    let (first, rest) = header.split_at_mut(1);
    let number = &mut rest[pn_offset - 1..pn_offset + 3];
    (&mut first[0], number, &sample[..SAMPLE_LEN])
}

/// The length of the tag of every AEAD that QUIC uses (RFC 9001 section 5.3). quinn-proto asks for it several times a
/// packet, and the key of a later phase would have to be looked up each time.
const TAG_LEN: usize = 16;
/// The length of the sample for header protection, with every cipher (RFC 9001 section 5.4.2).
const SAMPLE_LEN: usize = 16;
