//! What HTTP/3 wants done on QUIC, done.

use std::time::Instant;

use bytes::{Bytes, BytesMut};

use super::connection::Connection;
use crate::h3::{Code, Output};
use crate::quic;

impl Connection {
    /// Does on QUIC what HTTP/3 wants done.
    pub(super) fn perform(&mut self, quic: &mut quic::Connection, now: Instant) {
        let mut joined: Option<Joined> = None;
        while let Some(output) = self.h3.poll_output() {
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
                    self.write(quic, write.stream_id, write.data.freeze(), write.fin, now);
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
                } => self.write(quic, stream_id, data, fin, now),
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
            self.write(quic, write.stream_id, write.data.freeze(), write.fin, now);
        }
    }

    fn write(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        data: Bytes,
        fin: bool,
        now: Instant,
    ) {
        if quic.send_stream(stream_id, data, fin).is_err() {
            self.refused = Some(stream_id);
        } else if self.h3.is_own_critical(stream_id)
            && quic.send_queue_bytes(stream_id) > CRITICAL_QUEUE_MAX
        {
            // What these streams carry answers the client, a few bytes for each request, and cannot be left
            // out. RFC 9114 section 6.2 has it give them credit, and RFC 9204 section 2.1.3 says what comes of
            // one that does not.
            let reason = b"the control or QPACK streams are given no credit";
            quic.close(now, Code::H3_EXCESSIVE_LOAD.0, None, reason);
            self.is_abused = true;
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
