//! The interface through which an HTTP/3 connection sends: commands for the QUIC connection below it, which are
//! carried out at once.

use std::borrow::Cow;

use bytes::Bytes;

use super::error::Code;

/// Sends on the QUIC connection below an HTTP/3 connection. The HTTP/3 connection calls the methods in the order in
/// which they must take effect.
///
/// On a stream that has ended in QUIC the commands have no effect; the host passes the event about the stream's end to
/// the HTTP/3 connection.
pub trait Sink {
    /// Sends data; `fin` ends the stream. Empty data without `fin` occurs only with
    /// [`Settings::separate_writes`](super::Settings::separate_writes).
    fn write(&mut self, stream_id: u64, data: Bytes, fin: bool);

    /// Sends data on one of this side's critical streams (control, QPACK encoder, QPACK decoder). The peer has to give
    /// them flow-control credit (RFC 9114 section 6.2), so a host may limit the bytes that wait for credit.
    fn write_critical(&mut self, stream_id: u64, data: Bytes) {
        self.write(stream_id, data, false);
    }

    /// Sends a DATAGRAM frame; `data` is its payload.
    fn send_datagram(&mut self, data: Bytes);

    fn reset_stream(&mut self, stream_id: u64, code: Code);

    fn stop_sending(&mut self, stream_id: u64, code: Code);

    /// Closes the QUIC connection with this application error. No command follows.
    fn close(&mut self, code: Code, reason: Cow<'static, str>);
}
