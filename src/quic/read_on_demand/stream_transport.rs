//! The source of a program's streams and datagrams: a whole QUIC connection, or a session (WebTransport) on one.
//!
//! Not here: input that waits for the program (`inbox`), and the framing of a session (`webtransport`).

use bytes::Bytes;

use crate::{Connection, DatagramError, Priority, Received, StreamError};

/// The operations from which streams and datagrams are built. A stream is identified by its QUIC stream ID, and error
/// codes are the application's.
pub trait StreamTransport {
    /// Opens a stream. `None` if the peer's limit is reached; then an event follows.
    fn open_stream(&mut self, unidirectional: bool) -> Option<u64>;

    fn send_stream(&mut self, stream_id: u64, data: Bytes, fin: bool) -> Result<(), StreamError>;

    /// True if the application must wait before it sends more.
    fn is_stream_full(&self, stream_id: u64) -> bool;

    fn read_stream(&mut self, stream_id: u64, max: usize) -> Received;

    fn reset_stream(&mut self, stream_id: u64, error_code: u64) -> Result<(), StreamError>;

    fn stop_stream(&mut self, stream_id: u64, error_code: u64) -> Result<(), StreamError>;

    fn set_priority(&mut self, stream_id: u64, priority: Priority) -> Result<(), StreamError>;

    /// True if the peer has not yet acknowledged all data, and the FIN, that this side has sent on the stream.
    fn is_sending(&self, stream_id: u64) -> bool;

    /// True if this side has finished a stream whose data the peer has not acknowledged yet.
    fn is_finishing(&self) -> bool;

    fn send_datagram(&mut self, data: Bytes) -> Result<(), DatagramError>;

    fn max_datagram_size(&mut self) -> Option<usize>;

    /// Frees the state of a stream that the program has dropped.
    fn forget_stream(&mut self, stream_id: u64);

    /// The number of bits of an error code.
    fn code_bits(&self) -> u32;
}

impl StreamTransport for Connection {
    fn open_stream(&mut self, unidirectional: bool) -> Option<u64> {
        self.open_stream(unidirectional)
    }

    fn send_stream(&mut self, stream_id: u64, data: Bytes, fin: bool) -> Result<(), StreamError> {
        self.send_stream(stream_id, data, fin)
    }

    fn is_stream_full(&self, stream_id: u64) -> bool {
        self.is_stream_full(stream_id)
    }

    fn read_stream(&mut self, stream_id: u64, max: usize) -> Received {
        self.read_stream(stream_id, max)
    }

    fn reset_stream(&mut self, stream_id: u64, error_code: u64) -> Result<(), StreamError> {
        self.reset_stream(stream_id, error_code)
    }

    fn stop_stream(&mut self, stream_id: u64, error_code: u64) -> Result<(), StreamError> {
        self.stop_stream(stream_id, error_code)
    }

    fn set_priority(&mut self, stream_id: u64, priority: Priority) -> Result<(), StreamError> {
        self.set_priority(stream_id, priority)
    }

    fn is_sending(&self, stream_id: u64) -> bool {
        self.is_sending(stream_id)
    }

    fn is_finishing(&self) -> bool {
        self.is_finishing()
    }

    fn send_datagram(&mut self, data: Bytes) -> Result<(), DatagramError> {
        self.send_datagram(data)
    }

    fn max_datagram_size(&mut self) -> Option<usize> {
        self.max_datagram_size()
    }

    fn forget_stream(&mut self, _stream_id: u64) {}

    /// RFC 9000 section 16.
    fn code_bits(&self) -> u32 {
        62
    }
}
