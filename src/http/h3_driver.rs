//! Drives an HTTP/3 connection over a QUIC connection: passes in QUIC's events about streams, and carries out HTTP/3's
//! commands on QUIC at once.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};
use std::time::Instant;

use bytes::Bytes;
use uringcore_h3::{self as h3, Code, Role, Sink};
use uringcore_quic as quic;

/// An HTTP/3 connection, and its state on the QUIC connection below. All methods get that QUIC connection as an
/// argument.
pub(crate) struct H3Driver {
    h3: h3::Connection,
    outcome: Outcome,
    knows_datagrams: bool,
}

/// Results of commands on the QUIC connection.
#[derive(Debug, Default)]
struct Outcome {
    /// The last stream on which QUIC refused to send because the stream has ended there. HTTP/3 gets an event about
    /// that end, or has got it.
    refused: Option<u64>,
    /// True if the connection was closed because its peer misused the protocol.
    is_abused: bool,
}

impl Deref for H3Driver {
    type Target = h3::Connection;

    fn deref(&self) -> &h3::Connection {
        &self.h3
    }
}

impl DerefMut for H3Driver {
    fn deref_mut(&mut self) -> &mut h3::Connection {
        &mut self.h3
    }
}

impl H3Driver {
    /// Makes the HTTP/3 connection, which sends its SETTINGS at once.
    pub fn new(
        quic: &mut quic::Connection,
        role: Role,
        settings: h3::Settings,
        now: Instant,
    ) -> Self {
        let first = quic.next_stream_id(true);
        // RFC 9000 section 2.1: identifiers of streams of one type are four apart.
        let own = [first, first + 4, first + 8];
        let mut outcome = Outcome::default();
        let h3 = h3::Connection::new(role, settings, own, &mut outcome.sink(quic, now));
        Self {
            h3,
            outcome,
            knows_datagrams: false,
        }
    }

    /// The HTTP/3 connection, and the sink for its commands.
    pub fn parts<'a>(
        &'a mut self,
        quic: &'a mut quic::Connection,
        now: Instant,
    ) -> (&'a mut h3::Connection, QuicSink<'a>) {
        (&mut self.h3, self.outcome.sink(quic, now))
    }

    /// Handles a QUIC event that concerns HTTP/3.
    pub fn handle(&mut self, quic: &mut quic::Connection, event: quic::Event, now: Instant) {
        let (h3, mut out) = self.parts(quic, now);
        match event {
            quic::Event::StreamData {
                stream_id,
                data,
                fin,
            } => {
                let (last, first) = data.into_last_and_first();
                for piece in first {
                    h3.handle_stream_data(&mut out, stream_id, piece, false);
                }
                h3.handle_stream_data(&mut out, stream_id, last, fin);
            }
            quic::Event::StreamReset {
                stream_id,
                error_code,
            } => h3.handle_stream_reset(&mut out, stream_id, error_code),
            quic::Event::StopSending {
                stream_id,
                error_code,
                ..
            } => h3.handle_stop_sending(&mut out, stream_id, error_code),
            quic::Event::Datagram { data, .. } => h3.handle_datagram(&mut out, data),
            _ => {}
        }
    }

    /// Sets from the peer's transport parameters if it accepts DATAGRAM frames (RFC 9297 section 2.1.1). Called when
    /// the parameters are known and SETTINGS are not read yet.
    pub fn read_datagram_support(&mut self, quic: &mut quic::Connection) {
        if !std::mem::replace(&mut self.knows_datagrams, true) {
            let takes_any = quic.peer_max_datagram_size().is_some();
            self.h3.set_peer_quic_datagrams(takes_any);
        }
    }

    /// Ends the open directions of a request's stream: resets this side's, and stops the peer's.
    pub fn end_stream(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        code: Code,
        now: Instant,
    ) {
        let (h3, mut out) = self.parts(quic, now);
        h3.cancel_request(&mut out, stream_id, code.0);
    }

    /// Closes the connection because its peer misuses the protocol.
    pub fn close_for_abuse(&mut self, quic: &mut quic::Connection, reason: &[u8], now: Instant) {
        self.outcome.sink(quic, now).close_for_abuse(reason);
    }

    /// True if the connection was closed because its peer misused the protocol.
    pub fn is_closed_for_abuse(&self) -> bool {
        self.outcome.is_abused
    }

    /// True if QUIC refused a command on this stream since the last call, and refused none on another stream after it.
    pub fn take_refused(&mut self, stream_id: u64) -> bool {
        self.outcome.refused.take() == Some(stream_id)
    }
}

impl Outcome {
    fn sink<'a>(&'a mut self, quic: &'a mut quic::Connection, now: Instant) -> QuicSink<'a> {
        QuicSink {
            quic,
            now,
            outcome: self,
        }
    }
}

/// Carries out the commands of an HTTP/3 connection on a QUIC connection.
pub(crate) struct QuicSink<'a> {
    quic: &'a mut quic::Connection,
    now: Instant,
    outcome: &'a mut Outcome,
}

impl QuicSink<'_> {
    fn close_for_abuse(&mut self, reason: &[u8]) {
        let code = Code::H3_EXCESSIVE_LOAD.0;
        self.quic.close(self.now, code, None, reason);
        self.outcome.is_abused = true;
    }
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
            // The control and QPACK streams carry a few bytes for each request that cannot be left out. RFC 9114
            // section 6.2 requires the peer to give credit for them. Without credit the connection would be in the
            // deadlock that RFC 9204 section 2.1.3 describes.
            self.close_for_abuse(b"the control or QPACK streams get no flow-control credit");
        }
    }

    fn send_datagram(&mut self, data: Bytes) {
        // A datagram that cannot be sent now is dropped; datagrams are unreliable.
        let _ = self.quic.send_datagram(data);
    }

    fn reset_stream(&mut self, stream_id: u64, code: Code) {
        // The reset fails if the stream has ended. Then an event reports the end.
        let _ = self.quic.reset_stream(stream_id, code.0);
    }

    fn stop_sending(&mut self, stream_id: u64, code: Code) {
        let _ = self.quic.stop_stream(stream_id, code.0);
    }

    fn close(&mut self, code: Code, reason: Cow<'static, str>) {
        self.quic.close(self.now, code.0, None, reason.as_bytes());
    }
}

/// The maximum number of bytes that may wait on a critical stream. An honest client leaves at most 4 KiB waiting on
/// the QPACK encoder stream, the size of the table, because no entry is evicted before it is acknowledged. On the
/// decoder stream 8 KiB are the acknowledgments of some thousand requests.
const CRITICAL_QUEUE_MAX: usize = 8 << 10;
