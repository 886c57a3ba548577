//! Applies the commands of an HTTP/3 connection to its QUIC connection.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use uringcore_h3::{self as h3, Code, Output};
use uringcore_quic as quic;

/// The result of a run.
#[derive(Debug, Default)]
pub struct Performed {
    /// The last stream on which QUIC refused to send. It has ended on QUIC's side, and the event that reports its
    /// end has been or will be delivered.
    pub refused: Option<u64>,
    /// The connection was closed because the peer let our answers pile up.
    pub is_overloaded: bool,
}

/// Runs the queued commands of `h3` on `quic`.
pub fn perform(h3: &mut h3::Connection, quic: &mut quic::Connection, now: Instant) -> Performed {
    let mut performed = Performed::default();
    while let Some(output) = h3.poll_output() {
        // A stream that refuses has ended on QUIC's side; an event reports its end.
        match output {
            Output::Write {
                stream_id,
                data,
                fin,
            } => {
                let (data, fin) = joined(h3, stream_id, data, fin);
                performed.write(h3, quic, stream_id, data, fin, now);
            }
            Output::Datagram { data } => {
                let _ = quic.send_datagram(data);
            }
            Output::ResetStream { stream_id, code } => {
                let _ = quic.reset_stream(stream_id, code.0);
            }
            Output::StopSending { stream_id, code } => {
                let _ = quic.stop_stream(stream_id, code.0);
            }
            Output::CloseConnection { code, reason } => {
                quic.close(now, code.0, None, reason.as_bytes());
            }
        }
    }
    performed
}

impl Performed {
    fn write(
        &mut self,
        h3: &h3::Connection,
        quic: &mut quic::Connection,
        stream_id: u64,
        data: Bytes,
        fin: bool,
        now: Instant,
    ) {
        if quic.send_stream(stream_id, data, fin).is_err() {
            self.refused = Some(stream_id);
        } else if h3.is_own_critical(stream_id)
            && quic.send_queue_bytes(stream_id) > CRITICAL_QUEUE_MAX
        {
            // These streams carry answers to the peer, a few bytes for each request, that cannot be left out. RFC
            // 9114 section 6.2 requires the peer to give them credit; RFC 9204 section 2.1.3 describes the deadlock
            // otherwise.
            // one that does not.
            let reason = b"the control or QPACK streams are given no credit";
            quic.close(now, Code::H3_EXCESSIVE_LOAD.0, None, reason);
            self.is_overloaded = true;
        }
    }
}

/// A write joined with the small writes on the same stream that directly follow it.
fn joined(h3: &mut h3::Connection, stream_id: u64, first: Bytes, mut fin: bool) -> (Bytes, bool) {
    let (mut length, mut count) = (first.len(), 0);
    for output in h3.outputs() {
        match output {
            Output::Write {
                stream_id: next,
                data,
                fin: ends,
            } if *next == stream_id && !fin && length + data.len() <= JOINED_MAX => {
                length += data.len();
                count += 1;
                fin = *ends;
            }
            _ => break,
        }
    }
    if count == 0 {
        return (first, fin);
    }
    let mut all = BytesMut::with_capacity(length);
    all.extend_from_slice(&first);
    for _ in 0..count {
        if let Some(Output::Write { data, .. }) = h3.poll_output() {
            all.extend_from_slice(&data);
        }
    }
    (all.freeze(), fin)
}

/// Writes up to this total size are copied into one.
const JOINED_MAX: usize = 4096;
/// The most bytes that may wait on a critical stream. On QPACK's encoder stream an honest client leaves at most its
/// table's 4 KiB, because no entry is evicted before it is acknowledged; on the decoder stream that much covers
/// some thousand requests.
const CRITICAL_QUEUE_MAX: usize = 8 << 10;
