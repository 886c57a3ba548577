//! The output of a connection: commands for the QUIC connection below, carried out at once.

use std::borrow::Cow;

use bytes::Bytes;

use super::error::Code;

/// The QUIC connection below. An HTTP/3 connection calls it in the order in which its commands have to take effect.
///
/// A stream that has ended on QUIC's side ignores commands; the host passes an event about its end to the HTTP/3
/// connection.
pub trait Sink {
    /// Sends data, and with `fin` the end of the stream. Empty data without `fin` occurs only with
    /// [`Settings::separate_writes`](super::Settings::separate_writes).
    fn write(&mut self, stream_id: u64, data: Bytes, fin: bool);

    /// Sends data on one of our critical streams: for control, QPACK's encoder and its decoder. A peer has to give
    /// them credit (RFC 9114 section 6.2), so a host may bound what waits for it.
    fn write_critical(&mut self, stream_id: u64, data: Bytes) {
        self.write(stream_id, data, false);
    }

    /// Sends a DATAGRAM frame with this payload.
    fn send_datagram(&mut self, data: Bytes);

    fn reset_stream(&mut self, stream_id: u64, code: Code);

    fn stop_sending(&mut self, stream_id: u64, code: Code);

    /// Closes the QUIC connection with this application error. No other command follows.
    fn close(&mut self, code: Code, reason: Cow<'static, str>);
}
