//! What HTTP/3 wants done on QUIC, done.

use std::time::Instant;

use bytes::{Bytes, BytesMut};

use super::connection::Connection;
use crate::h3::Output;
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
                    self.write(quic, write.stream_id, write.data.freeze(), write.fin);
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
                } => self.write(quic, stream_id, data, fin),
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
            self.write(quic, write.stream_id, write.data.freeze(), write.fin);
        }
    }

    fn write(&mut self, quic: &mut quic::Connection, stream_id: u64, data: Bytes, fin: bool) {
        if quic.send_stream(stream_id, data, fin).is_err() {
            self.refused = Some(stream_id);
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
