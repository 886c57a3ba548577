//! The critical streams of both sides: the control stream, the QPACK encoder stream and the QPACK decoder stream.
//!
//! Not here: sending (`connection`) and receiving on them (`unidirectional_stream`).

use super::error::{Code, ConnectionError};
use super::stream_type;

/// Identifiers of the critical streams (RFC 9114 section 6.2.1, RFC 9204 section 4.2). Arrays are in the order of
/// [`CriticalStream`].
#[derive(Debug)]
pub(super) struct CriticalStreams {
    own: [u64; 3],
    peers: [Option<u64>; 3],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CriticalStream {
    Control,
    Encoder,
    Decoder,
}

impl CriticalStreams {
    pub fn new(own: [u64; 3]) -> Self {
        Self {
            own,
            peers: [None; 3],
        }
    }

    pub fn own(&self) -> [u64; 3] {
        self.own
    }

    /// Returns the identifier of one of this side's critical streams.
    pub fn id(&self, stream: CriticalStream) -> u64 {
        self.own[stream as usize]
    }

    /// Returns the identifiers of this side's critical streams, each with its stream type.
    pub fn own_types(&self) -> [(u64, u64); 3] {
        let [control, encoder, decoder] = self.own;
        [
            (control, stream_type::CONTROL),
            (encoder, stream_type::QPACK_ENCODER),
            (decoder, stream_type::QPACK_DECODER),
        ]
    }

    pub fn is_own(&self, stream_id: u64) -> bool {
        self.own.contains(&stream_id)
    }

    pub fn is_peers(&self, stream_id: u64) -> bool {
        self.peers.contains(&Some(stream_id))
    }

    /// Records a critical stream that the peer has opened.
    ///
    /// # Errors
    ///
    /// The peer has opened a stream of this type before (RFC 9114 section 6.2.1, RFC 9204 section 4.2).
    pub fn claim(&mut self, stream: CriticalStream, stream_id: u64) -> Result<(), ConnectionError> {
        match self.peers[stream as usize].replace(stream_id) {
            None => Ok(()),
            Some(_) => Err(ConnectionError::new(
                Code::H3_STREAM_CREATION_ERROR,
                "a second control or QPACK stream of one type",
            )),
        }
    }
}

/// The connection error if the peer ends a critical stream (RFC 9114 section 6.2.1, RFC 9204 section 4.2).
pub(super) fn closed() -> ConnectionError {
    ConnectionError::new(
        Code::H3_CLOSED_CRITICAL_STREAM,
        "a control or QPACK stream was closed",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_opens_each_critical_stream_once() {
        let mut streams = CriticalStreams::new([2, 6, 10]);
        assert!(!streams.is_peers(3));
        streams.claim(CriticalStream::Control, 3).unwrap();
        streams.claim(CriticalStream::Decoder, 7).unwrap();
        streams.claim(CriticalStream::Encoder, 11).unwrap();
        assert!([3, 7, 11].iter().all(|id| streams.is_peers(*id)));
        let error = streams.claim(CriticalStream::Decoder, 15).unwrap_err();
        assert_eq!(error.code, Code::H3_STREAM_CREATION_ERROR);
    }

    #[test]
    fn own_streams_are_not_the_peers() {
        let streams = CriticalStreams::new([2, 6, 10]);
        assert_eq!(streams.own(), [2, 6, 10]);
        assert_eq!(streams.id(CriticalStream::Encoder), 6);
        assert_eq!(streams.own_types()[2], (10, stream_type::QPACK_DECODER));
        assert!(streams.is_own(10) && !streams.is_own(3));
        assert!(!streams.is_peers(10));
    }
}
