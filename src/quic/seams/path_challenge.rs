//! A packet of our own in the place of a PING: how a path is asked that the state machine does not
//! know of (RFC 9000 section 8.2).
//!
//! A PING that the state machine sends alone brings a packet number that nothing hangs on. The key
//! that is to seal it seals another packet with that number, for another connection ID and with
//! another payload, and leaves the PING as it is: that must not go out. To the state machine, a PING
//! was acknowledged in the end, or lost.
//!
//! Assumed of quinn-proto: when nothing else is to be sent, `ping` brings one packet with a short
//! header whose payload is a PING and no more padding than header protection needs; the packet key
//! gets it, and right after that the header key; and a PING that is lost for ever does no harm.
//!
//! Not here: when a path is asked, and what becomes of the answer (`quic::connection::preferred`).

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use rustls::quic;
use uringcore_wire::header::{is_long, number_len};

/// Where the keys of a connection find what they are to seal, and leave it.
#[derive(Default)]
pub struct ProbeSlot {
    /// Kept beside the rest so that a packet costs one relaxed load.
    is_wanted: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    wanted: Option<Probe>,
    made: Option<Made>,
}

pub struct Probe {
    /// The connection ID that the packet is for. Not one that is in use on the path there is.
    pub destination: Vec<u8>,
    /// Its frames.
    pub payload: Vec<u8>,
    /// How long the whole packet is.
    pub length: usize,
}

struct Made {
    packet: Vec<u8>,
    number_at: usize,
}

impl ProbeSlot {
    /// The next PING that is sealed alone becomes this, until [`take`](Self::take).
    pub fn want(&self, probe: Probe) {
        let mut state = self.state();
        state.wanted = Some(probe);
        state.made = None;
        self.is_wanted.store(true, Ordering::Relaxed);
    }

    /// The packet, if there was a PING. Then the state machine's own must not go out.
    pub fn take(&self) -> Option<Vec<u8>> {
        self.is_wanted.store(false, Ordering::Relaxed);
        let mut state = self.state();
        state.wanted = None;
        state.made.take().map(|made| made.packet)
    }

    /// True if the packet was sealed that takes this one's place. Its header and its payload are
    /// shown to `record` before that.
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
            .expect("a packet is far shorter than what an AEAD can seal");
        packet.extend(sealed);
        packet.extend(tag.as_ref());
        state.made = Some(Made { packet, number_at });
        true
    }

    /// Protects the header of a packet that was sealed, by `mask` with where its number is.
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

/// True if a packet's only frame is a PING that is there for itself: one that looks for the path MTU
/// is padded.
fn is_ping_alone(payload: &[u8]) -> bool {
    match payload.split_first() {
        Some((&PING, rest)) => rest.len() < SAMPLE_MAX && rest.iter().all(|byte| *byte == PADDING),
        _ => false,
    }
}

/// True if a short header has another connection ID than the probe is to have.
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

    use crate::seams::bare::Bare;

    #[test]
    fn bare_quinn_sends_a_ping_alone_and_can_do_without_its_answer() {
        let mut bare = Bare::connected(quinn_proto::TransportConfig::default());
        // An ACK that waits goes along with the first.
        bare.client.connection().ping();
        bare.exchange();
        for _ in 0..3 {
            bare.client.spy.steps.lock().unwrap().clear();
            bare.client.connection().ping();
            // It never arrives.
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
            "nothing but an ID is in between"
        );
        bare.sleep(Duration::from_secs(2));
        bare.exchange();
        assert!(!bare.client.connection().is_closed());
    }
}
