//! How far the data of each stream has come, which says how much of it the state machine holds unread.
//!
//! quinn-proto gives credit within windows and does not say what it keeps. So the key that opens a packet notes
//! where the data of its STREAM frames ends, and `quic::streams` compares that with what was read. Data that
//! arrives twice counts once, as it does for credit; data behind a gap counts with the gap.
//!
//! The state machine keeps the datagrams that the data came in, too: for small frames that is far more than the
//! data. So the sizes of the packets are noted as well.
//!
//! Bounds: neighbouring frames of one stream share an entry, so there are at most as many entries as STREAM
//! frames came since the connection looked last, which it does in each turn.
//!
//! Assumed of quinn-proto: it refuses data beyond its windows, and closes the connection; of small frames it keeps
//! no more than two and a half times their data and 32 KiB a stream (`Assembler::insert`).

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// What came on one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    pub stream_id: u64,
    /// Behind the last byte that has come.
    pub end: u64,
    /// Bytes of the packets that brought it, each counted for each of its frames.
    pub packet_bytes: usize,
}

/// What came on the streams of one connection since the last look.
#[derive(Default)]
pub struct Inflow {
    is_enabled: AtomicBool,
    /// Kept beside the list, so that a look at an empty one costs a relaxed load.
    is_used: AtomicBool,
    arrived: Mutex<Vec<Arrived>>,
}

impl Inflow {
    /// From now on frames are noted.
    pub fn enable(&self) {
        self.is_enabled.store(true, Ordering::Relaxed);
    }

    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    /// A packet of `packet_bytes` has brought data of this stream up to `end`.
    pub fn note(&self, stream_id: u64, end: u64, packet_bytes: usize) {
        let mut arrived = self.arrived();
        match arrived.last_mut() {
            Some(last) if last.stream_id == stream_id => {
                last.end = last.end.max(end);
                last.packet_bytes += packet_bytes;
            }
            _ => arrived.push(Arrived {
                stream_id,
                end,
                packet_bytes,
            }),
        }
        self.is_used.store(true, Ordering::Relaxed);
    }

    /// Looks at what has come since the last time.
    pub fn take_each(&self, mut take: impl FnMut(Arrived)) {
        if !self.is_used.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut arrived = self.arrived();
        arrived.drain(..).for_each(&mut take);
        // The room of a burst is given back.
        arrived.shrink_to(ENTRIES_KEPT);
    }

    fn arrived(&self) -> MutexGuard<'_, Vec<Arrived>> {
        // Nothing in here panics half-way.
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const ENTRIES_KEPT: usize = 8;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use quinn_proto::{self as quinn, Dir};

    use super::*;
    use crate::seams::bare::Bare;

    #[test]
    fn frames_of_one_stream_in_a_row_share_an_entry() {
        let inflow = Inflow::default();
        for (stream_id, end) in [(0, 10), (0, 30), (0, 20), (4, 5), (0, 40)] {
            inflow.note(stream_id, end, 100);
        }
        let mut found = Vec::new();
        inflow.take_each(|arrived| found.push(arrived));
        let expected = [(0, 30, 300), (4, 5, 100), (0, 40, 100)];
        let expected = expected.map(|(stream_id, end, packet_bytes)| Arrived {
            stream_id,
            end,
            packet_bytes,
        });
        assert_eq!(found, expected);
        inflow.take_each(|_| panic!("it was taken"));
    }

    #[test]
    fn bare_quinn_keeps_what_is_not_read_and_gives_no_credit_for_it() {
        let mut transport = quinn::TransportConfig::default();
        transport.stream_receive_window(10_000u32.into());
        let mut bare = Bare::connected(transport);
        let client = bare.client.connection();
        let id = client.streams().open(Dir::Uni).unwrap();
        let mut written = 0;
        for _ in 0..10 {
            let client = bare.client.connection();
            let part = Bytes::from(vec![1; 4_000]);
            written += client.send_stream(id).write(&part).unwrap_or(0);
            bare.exchange();
        }
        assert_eq!(written, 10_000);
        let server = bare.server.connection();
        let mut stream = server.recv_stream(id);
        let mut chunks = stream.read(true).unwrap();
        let mut read = 0;
        while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
            read += chunk.bytes.len();
        }
        let _ = chunks.finalize();
        assert_eq!(read, 10_000);
    }
}
