//! The methods by which a host (the bindings, or a native program) controls the WebTransport sessions of a connection.

use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use uringcore_h3::Code;
use uringcore_quic::{self as quic, DatagramError, Priority, Received, StreamError};
use uringcore_wire::varint;

use super::event::Event;
use super::session::{Error, SessionStats};
use super::sessions::{LowerLayers, Sessions};
use super::{Draft, draft_versions};
use crate::h3_driver::H3Driver;

/// The commands and events of a connection's sessions, for both roles.
///
/// The methods get the QUIC connection below. A session is identified by the stream identifier of its CONNECT stream.
/// Commands for a session that has ended fail. Commands may cause events, which [`poll_event`](Self::poll_event)
/// returns.
pub struct SessionCommands<'a> {
    pub(super) sessions: &'a mut Sessions,
    pub(super) h3: &'a mut H3Driver,
}

impl<'a> SessionCommands<'a> {
    pub(crate) fn new(sessions: &'a mut Sessions, h3: &'a mut H3Driver) -> Self {
        Self { sessions, h3 }
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.sessions.poll_event()
    }

    // Sessions -----------------------------------------------------------------------------------

    /// Server: accepts a session, with one of the protocols that the client offered or with none. `fields` are sent in
    /// the response, beside those that the drafts define.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] if the session was answered before or has ended, or if its client accepts no response of any
    /// size, which ends the session. [`Error::Invalid`] for a protocol that was not offered and for fields that make
    /// the message malformed, and [`Error::TooLarge`]; in these cases nothing was sent.
    pub fn accept(
        &mut self,
        quic: &mut quic::Connection,
        session_id: u64,
        fields: &[(&[u8], &[u8])],
        protocol: Option<&str>,
        now: Instant,
    ) -> Result<(), Error> {
        self.run(quic, now, |sessions, below| {
            sessions.accept(below, session_id, fields, protocol)
        })
    }

    /// Server: refuses a session with a status of 300 or higher. Only its `Released` event follows. Fields that are
    /// too large for the client are left out. If the client accepts no response of any size, the stream is reset with
    /// H3_REQUEST_REJECTED.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] if the session was answered before or has ended. [`Error::Invalid`] for another status and for
    /// fields that make the message malformed; then nothing was sent.
    pub fn refuse(
        &mut self,
        quic: &mut quic::Connection,
        session_id: u64,
        status: u16,
        fields: &[(&[u8], &[u8])],
        now: Instant,
    ) -> Result<(), Error> {
        self.run(quic, now, |sessions, below| {
            sessions.refuse(below, session_id, status, fields)
        })
    }

    /// Closes a session with a code and a reason, of which at most 1,024 bytes are sent. `Ended` follows at once. A
    /// session that is not open is aborted.
    pub fn close(
        &mut self,
        quic: &mut quic::Connection,
        session_id: u64,
        code: u32,
        reason: &str,
        now: Instant,
    ) {
        self.run(quic, now, |sessions, below| {
            sessions.close(below, session_id, code, reason);
        });
    }

    /// Aborts a session: resets and stops its CONNECT stream with this code. `Ended` follows.
    pub fn abort(
        &mut self,
        quic: &mut quic::Connection,
        session_id: u64,
        code: Code,
        now: Instant,
    ) {
        self.run(quic, now, |sessions, below| {
            sessions.abort(below, session_id, code, "");
        });
    }

    /// Asks the peer to end a session (draft section 4.7). The session continues until this side or the peer closes it.
    /// Causes no event.
    pub fn drain(&mut self, quic: &mut quic::Connection, session_id: u64, now: Instant) {
        self.run(quic, now, |sessions, below| {
            sessions.drain(below, session_id)
        });
    }

    /// Ends all sessions, because the connection has ended.
    pub fn connection_lost(&mut self) {
        self.sessions.connection_lost();
    }

    /// The draft that a session uses; `None` before the peer's SETTINGS have arrived.
    pub fn draft(&self, session_id: u64) -> Option<Draft> {
        self.sessions.draft(session_id)
    }

    pub fn stats(&self, session_id: u64) -> Option<SessionStats> {
        let session = self.sessions.table.get(&session_id)?;
        Some(session.stats)
    }

    /// The number of sessions that are open or wait for their response.
    pub fn sessions(&self) -> usize {
        self.sessions.table.len()
    }

    /// The number of streams that this object tracks: streams of sessions, and streams that wait for their header or
    /// their session.
    pub fn streams(&self) -> usize {
        let sessions = &self.sessions;
        sessions.streams.len() + sessions.unidentified.len() + sessions.pre_session.streams()
    }

    /// True if no session is open, and no CONNECT stream of a closed session remains.
    pub fn is_drained(&self) -> bool {
        self.sessions.is_drained()
    }

    // Streams ------------------------------------------------------------------------------------

    /// Opens a stream in a session. `None` if the peer allows no more streams now; `StreamsAvailable` follows when it
    /// does.
    pub fn open_stream(
        &mut self,
        quic: &mut quic::Connection,
        session_id: u64,
        unidirectional: bool,
        now: Instant,
    ) -> Result<Option<u64>, Error> {
        self.run(quic, now, |sessions, below| {
            sessions.open_stream(below, session_id, unidirectional)
        })
    }

    /// Sends data like [`quic::Connection::send_stream`]. Data that exceeds the session's credit waits in this crate.
    pub fn send_stream(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        data: Bytes,
        fin: bool,
        now: Instant,
    ) -> Result<(), StreamError> {
        self.run(quic, now, |sessions, below| {
            sessions.send_stream(below, stream_id, data, fin)
        })
    }

    /// True if the host must not send more on a stream now. `StreamWritable`, `StreamAbandoned` or `StopSending`
    /// follows.
    pub fn is_stream_full(&self, quic: &quic::Connection, stream_id: u64) -> bool {
        self.sessions.is_stream_full(quic, stream_id)
    }

    /// True if data that this side sent on a stream, or the end of the stream, is not acknowledged yet.
    pub fn is_sending(&self, quic: &quic::Connection, stream_id: u64) -> bool {
        self.sessions.is_sending(quic, stream_id)
    }

    /// True if the session has a stream that the host has finished and that is not wholly acknowledged.
    pub fn is_finishing(&self, session_id: u64) -> bool {
        self.sessions.is_finishing(session_id)
    }

    /// Reads data as [`quic::Connection::read_stream`] does. If the stream was reset, returns the application's error
    /// code.
    pub fn read_stream(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        max: usize,
        now: Instant,
    ) -> Received {
        self.run(quic, now, |sessions, below| {
            sessions.read_stream(below, stream_id, max)
        })
    }

    /// Resets this side's direction of a stream with an application's code.
    pub fn reset_stream(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        code: u32,
        now: Instant,
    ) -> Result<(), StreamError> {
        self.run(quic, now, |sessions, below| {
            sessions.reset_stream(below, stream_id, code)
        })
    }

    /// Sends STOP_SENDING with an application's code. Further data of the stream is discarded.
    pub fn stop_stream(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        code: u32,
        now: Instant,
    ) -> Result<(), StreamError> {
        self.run(quic, now, |sessions, below| {
            sessions.stop_stream(below, stream_id, code)
        })
    }

    /// Sets the priority of a stream: it is sent before less urgent streams (RFC 9218).
    pub fn set_priority(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        priority: Priority,
    ) -> Result<(), StreamError> {
        match self.sessions.streams.contains_key(&stream_id) {
            true => quic.set_priority(stream_id, priority),
            false => Err(StreamError::Over),
        }
    }

    /// The host is done with a stream and gets no more events of it. A stream that the host has not finished is reset,
    /// and a stream that it has not read to the end is stopped, both with code 0. The data of a finished stream is
    /// still delivered.
    pub fn forget_stream(&mut self, quic: &mut quic::Connection, stream_id: u64, now: Instant) {
        self.run(quic, now, |sessions, below| {
            sessions.forget_stream(below, stream_id);
        });
    }

    // Datagrams ----------------------------------------------------------------------------------

    /// Queues a datagram. If the connection's queue is full, its oldest datagrams are dropped.
    pub fn send_datagram(
        &mut self,
        quic: &mut quic::Connection,
        session_id: u64,
        data: &[u8],
    ) -> Result<(), DatagramError> {
        let session = self.sessions.table.get_mut(&session_id);
        let Some(session) = session.filter(|session| session.is_open) else {
            return Err(DatagramError::Closed);
        };
        let peer = self.h3.received_settings();
        if !peer.is_some_and(draft_versions::takes_datagrams) {
            return Err(DatagramError::Unsupported);
        }
        let quarter = session_id / 4;
        let mut datagram = BytesMut::with_capacity(varint::size(quarter) + data.len());
        varint::put(&mut datagram, quarter);
        datagram.put_slice(data);
        quic.send_datagram(datagram.freeze())
            .map_err(|error| match error {
                DatagramError::TooLarge { max } => DatagramError::TooLarge {
                    max: max.saturating_sub(varint::size(quarter)),
                },
                other => other,
            })?;
        session.stats.datagrams_sent += 1;
        Ok(())
    }

    /// The largest datagram of a session that can be sent now, in bytes; `None` if one side does not support
    /// datagrams.
    pub fn max_datagram_size(&self, quic: &mut quic::Connection, session_id: u64) -> Option<usize> {
        let peer = self.h3.received_settings();
        let size = quic
            .max_datagram_size()
            .filter(|_| peer.is_some_and(draft_versions::takes_datagrams))?;
        Some(size.saturating_sub(varint::size(session_id / 4)))
    }

    fn run<R>(
        &mut self,
        quic: &mut quic::Connection,
        now: Instant,
        run: impl FnOnce(&mut Sessions, &mut LowerLayers<'_>) -> R,
    ) -> R {
        let mut below = LowerLayers {
            h3: self.h3,
            quic,
            now,
        };
        run(self.sessions, &mut below)
    }
}
