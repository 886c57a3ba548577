//! The methods of `TlsServerTransport` that encrypt written data.
//!
//! A response may be one object of many MiB. At most [`BATCH_BYTES`] of it are encrypted at once, and the rest when the
//! stream beneath accepts more.

use std::cell::Cell;
use std::collections::VecDeque;

use bytes::Bytes;
use pyo3::prelude::*;
use uringcore_engine::{self as engine, WriteOutcome};
use uringcore_http::tcp_output::{Closing, Piece, Source};
use uringcore_quic::tls::Failure;

use super::{Phase, TlsServerState, TlsServerTransport};
use crate::tcp::lower_transport::LowerTransport;
use crate::transport::stream::StreamTransport;

impl TlsServerTransport {
    /// Writes the output of a connection, if the transport beneath is a stream of this extension; otherwise returns
    /// `None`. Runs no Python code, so the caller may keep its state borrowed.
    pub fn write_output(
        &self,
        py: Python<'_>,
        http: &mut impl Source,
    ) -> PyResult<Option<WriteOutcome>> {
        self.state.with(py, |state| {
            let stream = match &state.lower {
                Some(LowerTransport::Stream(stream)) => stream.bind(py).clone(),
                Some(_) => return Ok(None),
                None => {
                    http.written();
                    return Ok(Some(WriteOutcome::Lost));
                }
            };
            let pieces = http.output().pieces();
            let outcome = match http.output().len() <= BATCH_BYTES && state.may_write() {
                true => state.encrypt_to(
                    &stream,
                    pieces.map(|piece| match piece {
                        Piece::Copied(bytes) => bytes,
                        Piece::Kept(content) => &**content,
                    }),
                ),
                false => {
                    pieces.for_each(|piece| {
                        state.push(match piece {
                            Piece::Copied(bytes) => Bytes::copy_from_slice(bytes),
                            Piece::Kept(content) => content.clone(),
                        });
                    });
                    state.write_waiting_to(&stream)
                }
            };
            http.written();
            outcome.map(Some)
        })
    }

    /// Writes several pieces together.
    pub fn write_pieces(slf: &Bound<'_, Self>, pieces: Vec<Bytes>) -> PyResult<()> {
        slf.get().state.with(slf.py(), |state| {
            pieces.into_iter().for_each(|piece| state.push(piece))
        });
        Self::write_waiting(slf).map(drop)
    }

    /// Writes the data that waits, while the transport beneath accepts it, and ends the connection if that was asked
    /// for. Returns true if a producer has to wait, or the connection has ended.
    pub(super) fn write_waiting(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let (py, this) = (slf.py(), slf.get());
        let Some(lower) = this.lower(py) else {
            return Ok(true);
        };
        match &lower {
            LowerTransport::Stream(stream) => {
                let stream = stream.bind(py);
                let outcome = this
                    .state
                    .with(py, |state| state.write_waiting_to(stream))?;
                StreamTransport::apply_write_outcome(stream, outcome)?;
            }
            other => loop {
                let records = this.state.with(py, |state| match state.is_writing_paused {
                    true => Ok(Vec::new()),
                    false => state.encrypt_batch(),
                });
                match records {
                    Ok(records) if records.is_empty() => break,
                    Ok(records) => other.write_pieces(py, vec![records.into()])?,
                    Err(_) => {
                        this.state.with(py, TlsServerState::stop_writing);
                        return other.end(py, Closing::AtOnce).map(|()| true);
                    }
                }
            },
        }
        let (waits, ending) = this.state.with(py, |state| {
            let is_sent = state.waiting.is_empty();
            let ending = state.ending.take_if(|_| is_sent);
            (!state.may_write(), ending)
        });
        match ending {
            Some(closing) => Self::end(slf, closing).map(|()| true),
            None => Ok(waits),
        }
    }
}

impl TlsServerState {
    /// True if data may be encrypted now: the stream accepts it, and no earlier data waits.
    fn may_write(&self) -> bool {
        self.waiting.is_empty() && !self.is_writing_paused
    }

    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() && self.session.is_some() {
            self.waiting_bytes += piece.len();
            self.waiting.push_back(piece);
        }
    }

    fn write_waiting_to(&mut self, stream: &Bound<'_, StreamTransport>) -> PyResult<WriteOutcome> {
        while !self.waiting.is_empty() {
            if self.is_writing_paused {
                // The producer has to wait for the end of the pause, even if the pause is an earlier one.
                return Ok(WriteOutcome::PauseWriting);
            }
            let outcome = match self.encrypt_batch() {
                Ok(records) => self.write_records_to(stream, records)?,
                Err(_) => return self.abort(stream),
            };
            if matches!(outcome, WriteOutcome::Lost) {
                self.waiting.clear();
                self.waiting_bytes = 0;
            }
            if !matches!(outcome, WriteOutcome::Queued) {
                return Ok(outcome);
            }
        }
        Ok(WriteOutcome::Queued)
    }

    fn encrypt_to<'a>(
        &mut self,
        stream: &Bound<'_, StreamTransport>,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> PyResult<WriteOutcome> {
        let mut records = RECORDS.take();
        match self.encrypt(pieces, &mut records) {
            Ok(()) => self.write_records_to(stream, records),
            Err(_) => self.abort(stream),
        }
    }

    /// Ends the connection after an encryption that has failed: the keys of TLS 1.2 may encrypt no further record. A
    /// part of the data is lost, so the client must not get later data or close_notify.
    fn abort(&mut self, stream: &Bound<'_, StreamTransport>) -> PyResult<WriteOutcome> {
        self.stop_writing();
        StreamTransport::end_at_once(stream).map(|()| WriteOutcome::Lost)
    }

    fn stop_writing(&mut self) {
        self.waiting = VecDeque::new();
        self.waiting_bytes = 0;
        if self.phase != Phase::Over {
            self.phase = Phase::Closing;
        }
    }

    fn write_records_to(
        &mut self,
        stream: &Bound<'_, StreamTransport>,
        mut records: Vec<u8>,
    ) -> PyResult<WriteOutcome> {
        let outcome = if records.len() < KEPT_FROM_BYTES {
            let piece = engine::Piece::Copied(&records);
            let outcome = StreamTransport::write_pieces(stream, std::iter::once(piece));
            records.clear();
            RECORDS.set(records);
            outcome
        } else {
            let piece = engine::Piece::Kept(records.into());
            StreamTransport::write_pieces(stream, std::iter::once(piece))
        }?;
        self.is_writing_paused |= matches!(outcome, WriteOutcome::PauseWriting);
        Ok(outcome)
    }

    /// Encrypts a part of the data that waits.
    fn encrypt_batch(&mut self) -> Result<Vec<u8>, Failure> {
        let (mut batch, mut room) = (Vec::new(), BATCH_BYTES);
        while room > 0
            && let Some(piece) = self.waiting.front_mut()
        {
            let part = piece.split_to(room.min(piece.len()));
            room -= part.len();
            batch.push(part);
            if piece.is_empty() {
                self.waiting.pop_front();
            }
        }
        self.waiting_bytes -= BATCH_BYTES - room;
        let mut records = Vec::new();
        self.encrypt(batch.iter().map(|part| &**part), &mut records)?;
        Ok(records)
    }

    fn encrypt<'a>(
        &mut self,
        pieces: impl Iterator<Item = &'a [u8]>,
        records: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        match &mut self.session {
            Some(session) => session.encrypt(pieces, records),
            None => Ok(()),
        }
    }
}

thread_local! {
    /// The memory for records of small writes, which the engine copies. Empty while it is in use.
    static RECORDS: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The data that is encrypted at once, as in `tls`.
const BATCH_BYTES: usize = 256 << 10;
/// Records of at least this size are not copied. The engine would copy shorter pieces anyway.
const KEPT_FROM_BYTES: usize = 4096;
