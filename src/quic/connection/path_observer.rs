//! Packets of a connection whose client may be at an address that is not validated: sent PATH_CHALLENGE frames,
//! received PATH_RESPONSE frames (RFC 9000 section 8.2), and packets that are shortened.
//!
//! The observer exists while bytes are counted for the amplification limit, and after that until no acknowledgement
//! has to be hidden any more. Not here: the addresses (`paths::amplification_limits`), and the choice of the frames
//! that remain in a shortened packet (`workarounds::amplification_limited_packet`).

use bytes::BytesMut;
use uringcore_wire::frame_iterator::{Frame, Frames};

use crate::workarounds::amplification_limited_packet::{Withheld, cut, is_response_alone};

#[derive(Default)]
pub(crate) struct PathObserver {
    limit: PacketLimit,
    sealed: Sealed,
    responses: Vec<[u8; 8]>,
    withheld: Withheld,
    is_over: bool,
}

/// The size limit of the next packet in bytes, header and tag included. `None` if quinn-proto sets the size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PacketLimit {
    pub packet: Option<usize>,
    /// The limit of a packet that has nothing but a PATH_RESPONSE.
    pub response: Option<usize>,
}

/// The result of the packets that were sealed since the last call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sealed {
    /// The number of bytes at the end of the datagram that must not be sent.
    pub cut: usize,
    /// True if frames were left out of a packet.
    pub is_partial: bool,
    pub challenge: Option<[u8; 8]>,
    pub is_response_alone: bool,
}

impl PathObserver {
    pub fn limit(&mut self, limit: PacketLimit) {
        self.limit = limit;
        self.sealed = Sealed::default();
    }

    /// Returns the result of the sealed packets, and removes the limit.
    pub fn take_sealed(&mut self) -> Sealed {
        self.limit = PacketLimit::default();
        std::mem::take(&mut self.sealed)
    }

    /// The data of PATH_RESPONSE frames that have arrived since the last call.
    pub fn take_responses(&mut self) -> Vec<[u8; 8]> {
        std::mem::take(&mut self.responses)
    }

    /// Set to true when bytes are no longer counted, and to false when counting begins again.
    pub fn set_over(&mut self, is_over: bool) {
        self.is_over = is_over;
    }

    /// True if the observer can be dropped.
    pub fn may_end(&self) -> bool {
        self.is_over && self.withheld.is_empty()
    }

    /// Shortens a packet before it is sealed. Returns the length of the payload that remains.
    pub fn sealing(&mut self, number: u64, overhead: usize, payload: &mut [u8]) -> usize {
        for (_, _, frame) in Frames::new(payload) {
            if let Frame::PathChallenge(data) = frame {
                self.sealed.challenge = Some(data);
            }
        }
        self.sealed.is_response_alone = is_response_alone(payload);
        let limit = match self.sealed.is_response_alone {
            true => self.limit.response.or(self.limit.packet),
            false => self.limit.packet,
        };
        let Some(limit) = limit.filter(|limit| *limit < payload.len() + overhead) else {
            return payload.len();
        };
        // RFC 9000 section 8.2.1: the datagram is expanded to 1,200 bytes, unless the amplification limit forbids that.
        let least = match limit >= EXPANDED {
            true => EXPANDED - overhead,
            false => 0,
        };
        let may_be_partial = !self.withheld.is_full();
        let length = payload.len();
        let Some(part) = cut(
            payload,
            limit.saturating_sub(overhead),
            least,
            may_be_partial,
        ) else {
            return length;
        };
        self.sealed.cut = length - part.length;
        if !part.is_whole {
            self.sealed.is_partial = true;
            self.withheld.insert(number);
        }
        part.length
    }

    pub fn opened(&mut self, payload: &[u8]) {
        for (_, _, frame) in Frames::new(payload) {
            if let Frame::PathResponse(data) = frame
                && self.responses.len() < RESPONSES_MAX
            {
                self.responses.push(data);
            }
        }
    }

    /// Hides acknowledgements in a packet before quinn-proto reads it. Returns true if the observer can be dropped
    /// after that.
    pub fn passing_on(&mut self, payload: &mut BytesMut) -> bool {
        if self.withheld.is_empty() {
            return false;
        }
        self.withheld.hide(payload);
        self.may_end()
    }
}

/// RFC 9000 section 14.1: the smallest size of an expanded datagram.
pub(super) const EXPANDED: usize = 1_200;
/// PATH_RESPONSE frames that are stored of one datagram. More than one is useless.
const RESPONSES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const OVERHEAD: usize = 1 + 8 + 4 + 16;

    fn payload(frames: &[&[u8]]) -> Vec<u8> {
        let mut payload = frames.concat();
        payload.resize(1_200 - OVERHEAD, 0);
        payload
    }

    /// Seals a packet under a limit, and returns the packet's length.
    fn seal(observer: &mut PathObserver, limit: PacketLimit, number: u64, payload: &[u8]) -> usize {
        observer.limit(limit);
        observer.sealing(number, OVERHEAD, &mut payload.to_vec()) + OVERHEAD
    }

    #[test]
    fn padding_is_cut_even_if_no_more_partial_packets_are_allowed() {
        let path = |kind: u8| [&[kind][..], &[7; 8]].concat();
        let (challenge, response) = (path(0x1a), path(0x1b));
        let stream = [&[0x0a, 0, 40][..], &[7; 40]].concat();
        let limit = PacketLimit {
            packet: Some(60),
            response: Some(80),
        };
        let mut observer = PathObserver::default();
        let with_data = payload(&[&challenge, &stream]);
        let mut number = 0;
        while !observer.withheld.is_full() {
            number += 1;
            assert!(seal(&mut observer, limit, number, &with_data) <= 60);
            assert!(observer.take_sealed().is_partial);
        }
        // The list of partial packets is full, so this packet is sent whole.
        assert_eq!(seal(&mut observer, limit, number + 1, &with_data), 1_200);
        assert_eq!(observer.take_sealed().cut, 0);
        for (frame, most) in [(&response, 80), (&challenge, 60)] {
            let whole = payload(&[frame]);
            let length = seal(&mut observer, limit, number + 2, &whole);
            let sealed = observer.take_sealed();
            assert!(length <= most, "{length}");
            assert_eq!((sealed.cut, sealed.is_partial), (1_200 - length, false));
        }
    }
}
