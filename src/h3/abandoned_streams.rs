//! The streams that this side stopped reading with STOP_SENDING, on which data may still arrive.

use std::collections::VecDeque;

/// Identifiers of abandoned streams, at most [`ABANDONED_MAX`]. If there are more, the oldest is forgotten.
#[derive(Debug, Default)]
pub(super) struct AbandonedStreams(VecDeque<u64>);

impl AbandonedStreams {
    /// Adds a stream. Its further data is discarded.
    pub fn note(&mut self, stream_id: u64) {
        if self.0.len() == ABANDONED_MAX {
            self.0.pop_front();
        }
        self.0.push_back(stream_id);
    }

    /// Called for data of any stream, with `fin` for its last data. True if the stream is abandoned: the caller
    /// discards the data.
    pub fn receive(&mut self, stream_id: u64, fin: bool) -> bool {
        let position = self.0.iter().position(|&abandoned| abandoned == stream_id);
        if let Some(position) = position
            && fin
        {
            self.0.remove(position);
        }
        position.is_some()
    }

    /// Removes a stream on which no more data can arrive.
    pub fn forget(&mut self, stream_id: u64) {
        self.0.retain(|&abandoned| abandoned != stream_id);
    }

    pub fn shrink_to_fit(&mut self) {
        self.0.shrink_to_fit();
    }
}

/// A list is needed only with a QUIC implementation that delivers data after STOP_SENDING, so a small bound is enough.
const ABANDONED_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_an_abandoned_stream_is_refused_until_it_ends() {
        let mut streams = AbandonedStreams::default();
        assert!(!streams.receive(4, false));
        streams.note(4);
        streams.note(8);
        assert!(streams.receive(4, false));
        assert!(streams.receive(4, true));
        assert!(!streams.receive(4, false));
        streams.forget(8);
        assert!(!streams.receive(8, false));
    }

    #[test]
    fn the_oldest_abandoned_stream_is_forgotten_first() {
        let mut streams = AbandonedStreams::default();
        let ids = (0..=ABANDONED_MAX as u64).map(|number| number * 4);
        ids.for_each(|id| streams.note(id));
        assert!(!streams.receive(0, false));
        assert!(streams.receive(4, false));
        assert!(streams.receive(4 * ABANDONED_MAX as u64, false));
    }
}
