//! Sends a packet with a PATH_CHALLENGE in place of a PING of quinn-proto, to probe a path that quinn-proto does not
//! manage (RFC 9000 section 8.2).
//!
//! quinn-proto is made to send a PING alone in a packet, which reserves a packet number. The key that would seal the
//! PING seals another packet with that number, with another connection ID and other frames. The packet with the PING
//! must not be sent. quinn-proto later treats the PING as acknowledged or lost.
//!
//! Assumed of quinn-proto: when nothing else is to be sent, `ping` produces one packet with a short header whose
//! payload is a PING and no more padding than header protection needs; the packet key gets it, and right after that
//! the header key; and a PING that is lost for good does no harm.
//!
//! Not here: when a path is probed, and the handling of the answer (`quic::connection::preferred_address`).

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use rustls::quic;
use uringcore_wire::packet_header::{is_long, number_len};

/// Passes probes to the keys of a connection, and sealed probes back.
#[derive(Default)]
pub struct ProbeSlot {
    /// True if a probe is wanted. Separate from `state`, so that a packet without a probe costs one relaxed load.
    is_wanted: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    wanted: Option<Probe>,
    made: Option<Made>,
}

pub struct Probe {
    /// The destination connection ID of the packet. It must not be the one in use on the current path.
    pub destination: Vec<u8>,
    /// The frames of the packet.
    pub payload: Vec<u8>,
    /// The length of the whole packet in bytes.
    pub length: usize,
}

struct Made {
    packet: Vec<u8>,
    number_at: usize,
}

impl ProbeSlot {
    /// Replaces the next PING that is sealed alone by `probe`, until [`take`](Self::take) is called.
    pub fn want(&self, probe: Probe) {
        let mut state = self.state();
        state.wanted = Some(probe);
        state.made = None;
        self.is_wanted.store(true, Ordering::Relaxed);
    }

    /// The sealed probe, if a PING was sealed. The caller must then drop quinn-proto's packet.
    pub fn take(&self) -> Option<Vec<u8>> {
        self.is_wanted.store(false, Ordering::Relaxed);
        let mut state = self.state();
        state.wanted = None;
        state.made.take().map(|made| made.packet)
    }

    /// Seals the probe instead of this packet, if the packet is a PING alone. Returns true if it did. Header and
    /// payload of the probe are passed to `record` first.
    pub fn seal(
        &self,
        key: &dyn quic::PacketKey,
        number: u64,
        header: &[u8],
        payload: &[u8],
        record: impl FnOnce(&[u8], &[u8]),
    ) -> bool {
        if !self.is_wanted.load(Ordering::Relaxed) || !is_ping_alone(payload) {
            return false;
        }
        let mut state = self.state();
        let Some(probe) = state.wanted.take_if(|probe| is_for_other(header, probe)) else {
            return false;
        };
        let number_len = number_len(header[0]);
        let number_at = 1 + probe.destination.len();
        let number_bytes = &header[header.len() - number_len..];
        let mut packet = [&header[..1], &probe.destination, number_bytes].concat();
        let mut sealed = probe.payload;
        sealed.resize(probe.length - packet.len() - key.tag_len(), PADDING);
        record(&packet, &sealed);
        let tag = key
            .encrypt_in_place(number, &packet, &mut sealed)
            .expect("a packet is far shorter than an AEAD's limit");
        packet.extend(sealed);
        packet.extend(tag.as_ref());
        state.made = Some(Made { packet, number_at });
        true
    }

    /// Protects the header of a sealed probe. `mask` gets the offset of the packet number, and the packet.
    pub fn mask(&self, mask: impl FnOnce(usize, &mut [u8])) {
        if !self.is_wanted.load(Ordering::Relaxed) {
            return;
        }
        if let Some(made) = &mut self.state().made {
            mask(made.number_at, &mut made.packet);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True if a packet has a PING and no other frame. An MTU probe has a PING, too, but much PADDING.
fn is_ping_alone(payload: &[u8]) -> bool {
    match payload.split_first() {
        Some((&PING, rest)) => rest.len() < SAMPLE_MAX && rest.iter().all(|byte| *byte == PADDING),
        _ => false,
    }
}

/// True if a packet's connection ID differs from the probe's.
fn is_for_other(header: &[u8], probe: &Probe) -> bool {
    let Some((first, rest)) = header.split_first() else {
        return false;
    };
    let id_len = rest.len().saturating_sub(number_len(*first));
    !is_long(header) && rest.get(..id_len) != Some(&probe.destination[..])
}

const PADDING: u8 = 0;
const PING: u8 = 1;
/// A packet with only a PING is padded for the sample of header protection, to less than this many bytes.
const SAMPLE_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::workarounds::bare_quinn::BareQuinn;

    #[test]
    fn bare_quinn_sends_a_ping_alone_and_survives_its_loss() {
        let mut bare = BareQuinn::connected(quinn_proto::TransportConfig::default());
        // The client pings once first, because a pending ACK would be sent together with the first PING.
        bare.client.connection().ping();
        bare.exchange();
        for _ in 0..3 {
            bare.client.spy.steps.lock().unwrap().clear();
            bare.client.connection().ping();
            // The packet is lost.
            assert_eq!(bare.client.transmit(bare.now).len(), 1);
            let packet = bare.client.spy.last_sealed();
            assert!(
                !packet.is_long() && is_ping_alone(&packet.payload),
                "{packet:?}"
            );
            assert_eq!(*bare.client.spy.steps.lock().unwrap(), ["seal", "mask"]);
            bare.sleep(Duration::from_millis(500));
            bare.exchange();
            bare.client.connection().ping();
            bare.exchange();
        }
        let number_len = number_len(bare.client.spy.last_sealed().header[0]);
        let header = bare.client.spy.last_sealed().header;
        assert_eq!(
            header.len(),
            1 + 8 + number_len,
            "only the connection ID is between the first byte and the packet number"
        );
        bare.sleep(Duration::from_secs(2));
        bare.exchange();
        assert!(!bare.client.connection().is_closed());
    }
}
