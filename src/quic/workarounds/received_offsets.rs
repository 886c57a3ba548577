//! Records the offset up to which the data of each stream has arrived, to compute how much unread data quinn-proto
//! holds.
//!
//! quinn-proto gives credit within windows and does not report how much it stores. So the key that opens a packet
//! records where the data of its STREAM frames ends, and `quic::streams` compares that with the bytes read. Data that
//! arrives twice counts once, as it does for credit; data behind a gap counts with the gap.
//!
//! quinn-proto stores the whole datagrams, which are far larger than the data if the frames are small. So the sizes
//! of the packets are recorded as well. For a stream that was stopped or reset, quinn-proto gives credit up to its
//! final size, so that size is recorded, too.
//!
//! Bounds: consecutive frames of one stream share an entry. So there are at most as many entries as STREAM frames
//! arrived since the connection last took them, which it does in each loop iteration. Most loop iterations bring data
//! of one stream, so the first entry is kept in atomics and takes no lock.
//!
//! Assumed of quinn-proto: it rejects data beyond its windows, and closes the connection; of small frames it keeps no
//! more than two and a half times their data and 32 KiB a stream (`Assembler::insert`); data that it drops of a
//! stopped stream, and data that a RESET_STREAM leaves out, gives credit (`StreamsState::received_reset`).

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

/// Data that has arrived on one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    pub stream_id: u64,
    /// The offset after the last byte that has arrived. The bit [`FINAL`] is set if it is the stream's final size.
    end: u64,
    /// Bytes of the packets with this data. A packet with two frames of the stream counts twice.
    pub packet_bytes: usize,
}

/// The data that has arrived on the streams of one connection since the last [`take_each`](Self::take_each).
#[derive(Default)]
pub struct ReceivedOffsets {
    is_enabled: AtomicBool,
    /// True if `first` is an entry.
    is_used: AtomicBool,
    first: First,
    /// True if `others` has entries, so that the lock is taken only then.
    has_others: AtomicBool,
    others: Mutex<Vec<Arrived>>,
}

/// The entry for one stream, stored without a lock. A connection and its keys are used by one thread at a time, so the
/// three atomic values always belong together.
#[derive(Default)]
struct First {
    stream_id: AtomicU64,
    end: AtomicU64,
    packet_bytes: AtomicUsize,
}

impl First {
    fn set(&self, arrived: Arrived) {
        self.stream_id.store(arrived.stream_id, Ordering::Relaxed);
        self.end.store(arrived.end, Ordering::Relaxed);
        self.packet_bytes
            .store(arrived.packet_bytes, Ordering::Relaxed);
    }

    fn get(&self) -> Arrived {
        Arrived {
            stream_id: self.stream_id.load(Ordering::Relaxed),
            end: self.end.load(Ordering::Relaxed),
            packet_bytes: self.packet_bytes.load(Ordering::Relaxed),
        }
    }
}

impl Arrived {
    pub fn new(stream_id: u64, end: u64, is_final: bool, packet_bytes: usize) -> Self {
        let mark = if is_final { FINAL } else { 0 };
        Self {
            stream_id,
            end: end | mark,
            packet_bytes,
        }
    }

    /// The offset after the last byte that has arrived, or the final size.
    pub fn end(&self) -> u64 {
        self.end & !FINAL
    }

    /// True if [`end`](Self::end) is the final size of the stream.
    pub fn is_final(&self) -> bool {
        self.end & FINAL != 0
    }

    /// Adds more data of the same stream.
    fn extend(&mut self, end: u64, packet_bytes: usize) {
        // There is no data beyond a final size, because quinn-proto closes the connection for it.
        self.end = self.end.max(end);
        self.packet_bytes = self.packet_bytes.saturating_add(packet_bytes);
    }
}

impl ReceivedOffsets {
    /// Starts recording.
    pub fn enable(&self) {
        self.is_enabled.store(true, Ordering::Relaxed);
    }

    /// Stops recording. After a connection has ended, its keys still open packets, but quinn-proto ignores the frames
    /// in them.
    pub fn disable(&self) {
        self.is_enabled.store(false, Ordering::Relaxed);
    }

    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    /// Records data that has arrived on a stream.
    pub fn note(&self, arrived: Arrived) {
        let Arrived {
            stream_id,
            end,
            packet_bytes,
        } = arrived;
        if !self.is_used.load(Ordering::Relaxed) {
            self.first.set(arrived);
            self.is_used.store(true, Ordering::Relaxed);
            return;
        }
        let mut first = self.first.get();
        if first.stream_id == stream_id {
            first.extend(end, packet_bytes);
            return self.first.set(first);
        }
        let mut others = self.others();
        match others.last_mut() {
            Some(last) if last.stream_id == stream_id => last.extend(end, packet_bytes),
            _ => others.push(arrived),
        }
        self.has_others.store(true, Ordering::Relaxed);
    }

    /// Passes each stream with new data since the last call to `take`, and removes its entry.
    pub fn take_each(&self, mut take: impl FnMut(Arrived)) {
        if !self.is_used.load(Ordering::Relaxed) {
            return;
        }
        self.is_used.store(false, Ordering::Relaxed);
        take(self.first.get());
        if !self.has_others.load(Ordering::Relaxed) {
            return;
        }
        self.has_others.store(false, Ordering::Relaxed);
        let mut others = self.others();
        others.drain(..).for_each(&mut take);
        // Frees the capacity after a burst.
        others.shrink_to(ENTRIES_KEPT);
    }

    fn others(&self) -> MutexGuard<'_, Vec<Arrived>> {
        // Poisoning is ignored: no code that holds this lock panics, so the entries are valid.
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A bit above all offsets, which are below 2^62 (RFC 9000 section 4.5). So an end with this bit is the largest of a
/// stream.
const FINAL: u64 = 1 << 63;
const ENTRIES_KEPT: usize = 8;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use quinn_proto::{self as quinn, Dir};

    use super::*;
    use crate::workarounds::bare_quinn::BareQuinn;

    #[test]
    fn consecutive_frames_of_a_stream_share_an_entry() {
        let received_offsets = ReceivedOffsets::default();
        for (stream_id, end) in [(0, 10), (0, 30), (0, 20), (4, 5), (0, 40), (8, 1), (8, 2)] {
            received_offsets.note(Arrived::new(stream_id, end, false, 100));
        }
        received_offsets.note(Arrived::new(8, 2, true, 0));
        let mut found = Vec::new();
        received_offsets.take_each(|arrived| found.push(arrived));
        let expected = [(0, 40, false, 400), (4, 5, false, 100), (8, 2, true, 200)];
        let expected = expected.map(|(stream_id, end, is_final, packet_bytes)| {
            Arrived::new(stream_id, end, is_final, packet_bytes)
        });
        assert_eq!(found, expected);
        received_offsets.take_each(|_| panic!("it was taken"));
    }

    #[test]
    fn bare_quinn_gives_no_credit_for_unread_data() {
        let mut transport = quinn::TransportConfig::default();
        transport.stream_receive_window(10_000u32.into());
        let mut bare = BareQuinn::connected(transport);
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
