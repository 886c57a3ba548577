//! Sends a packet of our own instead of a PING: probes a path that the state machine does not manage (RFC 9000 section
//! 8.2).
//!
//! A PING that the state machine sends alone reserves a packet number without other content. The key that would
//! seal it seals another packet with that number, for another connection ID and with another payload. The PING
//! itself must not be sent. The state machine later treats the PING as acknowledged or lost.
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
use uringcore_wire::header::{is_long, number_len};

/// Passes probes to the keys of a connection, and sealed packets back.
#[derive(Default)]
pub struct ProbeSlot {
    /// Separate from `state`, so that a packet costs one relaxed load.
    is_wanted: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    wanted: Option<Probe>,
    made: Option<Made>,
}

pub struct Probe {
    /// The connection ID of the packet. It must not be the one in use on the current path.
    pub destination: Vec<u8>,
    /// The packet's frames.
    pub payload: Vec<u8>,
    /// The length of the whole packet.
    pub length: usize,
}

struct Made {
    packet: Vec<u8>,
    number_at: usize,
}

impl ProbeSlot {
    /// Replaces the next PING that is sealed alone by this probe, until [`take`](Self::take).
    pub fn want(&self, probe: Probe) {
        let mut state = self.state();
        state.wanted = Some(probe);
        state.made = None;
        self.is_wanted.store(true, Ordering::Relaxed);
    }

    /// The sealed packet, if there was a PING. The caller must then drop the state machine's own packet.
    pub fn take(&self) -> Option<Vec<u8>> {
        self.is_wanted.store(false, Ordering::Relaxed);
        let mut state = self.state();
        state.wanted = None;
        state.made.take().map(|made| made.packet)
    }

    /// True if a probe was sealed instead of this packet. Its header and payload are passed to `record` before that.
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

    /// Protects the header of a sealed probe. `mask` gets the offset of the packet number.
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

/// True if a packet's only frame is a PING of its own. An MTU probe has a PING, too, but is padded.
fn is_ping_alone(payload: &[u8]) -> bool {
    match payload.split_first() {
        Some((&PING, rest)) => rest.len() < SAMPLE_MAX && rest.iter().all(|byte| *byte == PADDING),
        _ => false,
    }
}

/// True if a short header has another connection ID than the probe will have.
fn is_for_other(header: &[u8], probe: &Probe) -> bool {
    let Some((first, rest)) = header.split_first() else {
        return false;
    };
    let id_len = rest.len().saturating_sub(number_len(*first));
    !is_long(header) && rest.get(..id_len) != Some(&probe.destination[..])
}

const PADDING: u8 = 0;
const PING: u8 = 1;
/// A short packet is padded for the sample of header protection, which is shorter than this.
const SAMPLE_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::seams::bare_quinn::BareQuinn;

    #[test]
    fn bare_quinn_sends_a_ping_alone_and_can_do_without_its_answer() {
        let mut bare = BareQuinn::connected(quinn_proto::TransportConfig::default());
        // A pending ACK is sent with the first PING.
        bare.client.connection().ping();
        bare.exchange();
        for _ in 0..3 {
            bare.client.spy.steps.lock().unwrap().clear();
            bare.client.connection().ping();
            // The packet never arrives.
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
            "only a connection ID is between them"
        );
        bare.sleep(Duration::from_secs(2));
        bare.exchange();
        assert!(!bare.client.connection().is_closed());
    }
}
