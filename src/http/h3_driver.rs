//! Carries out the commands of an HTTP/3 connection on its QUIC connection, at once.

use std::borrow::Cow;
use std::time::Instant;

use bytes::Bytes;
use uringcore_h3::{Code, Sink};
use uringcore_quic as quic;

/// What became of commands; the parts above look at it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The last stream on which QUIC refused to send. It has ended on QUIC's side, and the event that reports its
    /// end has been or will be delivered.
    pub refused: Option<u64>,
    /// The connection was closed for its peer's behaviour.
    pub is_abused: bool,
}

impl Outcome {
    /// The sink for the commands of one call.
    pub fn sink<'a>(&'a mut self, quic: &'a mut quic::Connection, now: Instant) -> QuicSink<'a> {
        QuicSink {
            quic,
            now,
            outcome: self,
        }
    }
}

/// A QUIC connection as the sink of an HTTP/3 connection.
pub(crate) struct QuicSink<'a> {
    quic: &'a mut quic::Connection,
    now: Instant,
    outcome: &'a mut Outcome,
}

impl Sink for QuicSink<'_> {
    fn write(&mut self, stream_id: u64, data: Bytes, fin: bool) {
        if self.quic.send_stream(stream_id, data, fin).is_err() {
            self.outcome.refused = Some(stream_id);
        }
    }

    fn write_critical(&mut self, stream_id: u64, data: Bytes) {
        self.write(stream_id, data, false);
        if self.quic.send_queue_bytes(stream_id) > CRITICAL_QUEUE_MAX {
            // These streams carry answers to the peer, a few bytes for each request, that cannot be left out. RFC
            // 9114 section 6.2 requires the peer to give them credit; RFC 9204 section 2.1.3 describes the deadlock
            // otherwise.
            let reason = b"the control or QPACK streams are given no credit";
            self.quic
                .close(self.now, Code::H3_EXCESSIVE_LOAD.0, None, reason);
            self.outcome.is_abused = true;
        }
    }

    fn send_datagram(&mut self, data: Bytes) {
        // One that cannot be sent is lost, as any may be.
        let _ = self.quic.send_datagram(data);
    }

    fn reset_stream(&mut self, stream_id: u64, code: Code) {
        // A stream that refuses has ended on QUIC's side; an event reports its end.
        let _ = self.quic.reset_stream(stream_id, code.0);
    }

    fn stop_sending(&mut self, stream_id: u64, code: Code) {
        let _ = self.quic.stop_stream(stream_id, code.0);
    }

    fn close(&mut self, code: Code, reason: Cow<'static, str>) {
        self.quic.close(self.now, code.0, None, reason.as_bytes());
    }
}

/// The most bytes that may wait on a critical stream. On QPACK's encoder stream an honest client leaves at most its
/// table's 4 KiB, because no entry is evicted before it is acknowledged; on the decoder stream that much covers
/// some thousand requests.
const CRITICAL_QUEUE_MAX: usize = 8 << 10;
