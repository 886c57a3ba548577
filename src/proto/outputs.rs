//! What an HTTP/3 connection wants of QUIC, done: for whoever attaches one to the other.

use std::time::Instant;

use bytes::{Bytes, BytesMut};

use crate::h3::{self, Code, Output};
use crate::quic;

/// What came of it.
#[derive(Debug, Default)]
pub struct Performed {
    /// The stream on which QUIC has refused to send last: it has ended on QUIC's side, and the event that says
    /// so has come or will.
    pub refused: Option<u64>,
    /// The connection was closed, because its peer lets what answers it pile up.
    pub is_overloaded: bool,
}

/// Does on QUIC what HTTP/3 wants done.
pub fn perform(h3: &mut h3::Connection, quic: &mut quic::Connection, now: Instant) -> Performed {
    let mut performed = Performed::default();
    let mut joined: Option<Joined> = None;
    while let Some(output) = h3.poll_output() {
        let output = match (joined.take(), output) {
            (
                Some(mut write),
                Output::Write {
                    stream_id,
                    data,
                    fin,
                },
            ) if write.takes(stream_id, &data) => {
                write.data.extend_from_slice(&data);
                write.fin = fin;
                joined = Some(write);
                continue;
            }
            (Some(write), output) => {
                let data = write.data.freeze();
                performed.write(h3, quic, write.stream_id, data, write.fin, now);
                output
            }
            (None, output) => output,
        };
        // A stream that refuses has ended on QUIC's side, and the event that says so has come or will.
        match output {
            Output::Write {
                stream_id,
                data,
                fin: false,
            } if data.len() <= JOINED_MAX => {
                joined = Some(Joined {
                    stream_id,
                    data: data.into(),
                    fin: false,
                });
            }
            Output::Write {
                stream_id,
                data,
                fin,
            } => performed.write(h3, quic, stream_id, data, fin, now),
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
    if let Some(write) = joined {
        let data = write.data.freeze();
        performed.write(h3, quic, write.stream_id, data, write.fin, now);
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
            // What these streams carry answers the peer, a few bytes for each request, and cannot be left
            // out. RFC 9114 section 6.2 has it give them credit, and RFC 9204 section 2.1.3 says what comes of
            // one that does not.
            let reason = b"the control or QPACK streams are given no credit";
            quic.close(now, Code::H3_EXCESSIVE_LOAD.0, None, reason);
            self.is_overloaded = true;
        }
    }
}

/// Small writes on one stream that go to QUIC as one.
struct Joined {
    stream_id: u64,
    data: BytesMut,
    fin: bool,
}

impl Joined {
    fn takes(&self, stream_id: u64, data: &[u8]) -> bool {
        stream_id == self.stream_id && !self.fin && self.data.len() + data.len() <= JOINED_MAX
    }
}

/// Writes up to this size together are copied into one.
const JOINED_MAX: usize = 4096;
/// What may wait on one of the streams that last as long as the connection. Of QPACK's encoder an honest client
/// leaves no more than its table's 4 KiB, for no entry goes before it is acknowledged; of the decoder some
/// thousand requests.
const CRITICAL_QUEUE_MAX: usize = 8 << 10;
