//! The send methods of a stream: their work, which runs again after each event until there is space in the send
//! queue.
//!
//! The data of a call is queued as a whole when there is space, and not before. So a call that is cancelled while it
//! waits has sent nothing.

use bytes::{Buf, Bytes};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_quic::StreamError;
use uringcore_quic::read_on_demand::{Key, StreamTransport};

use super::errors;
use super::stream::Stream;
use super::stream_awaitables::Polled;
use super::stream_manager::Abandoned;
use crate::capi::{bytes_like_objects, integer_arguments};

/// The data of a call that is not queued yet.
pub enum Unsent {
    Whole(Bytes),
    /// The last data of the stream. The stream's FIN follows it.
    Last(Bytes),
    /// Several objects, queued together in this order.
    Together(Vec<Bytes>),
    /// The data of `send_all` that is not sent yet. It is immutable, and is queued in pieces, each when the send queue
    /// has space for it.
    Cut(Bytes),
    /// A mutable object of `send_all` and the position of the next byte to send. The bytes are read when they are
    /// queued.
    Lent(Py<PyAny>, usize),
}

impl Unsent {
    /// Makes the data of `send_all`.
    pub fn in_pieces(data: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = data.cast::<PyBytes>() {
            return Ok(Self::Cut(bytes_like_objects::hold_bytes(bytes)));
        }
        bytes_like_objects::check_contiguous(data, "data")?;
        Ok(Self::Lent(data.clone().unbind(), 0))
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Lent(data, _) => visit.call(data),
            Self::Whole(_) | Self::Last(_) | Self::Together(_) | Self::Cut(_) => Ok(()),
        }
    }

    /// The data to queue next. `None` if everything is queued.
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<Next>> {
        match self {
            Self::Together(pieces) if pieces.is_empty() => Ok(None),
            Self::Together(pieces) => Ok(Some(Next::Several(pieces.clone()))),
            Self::Whole(data) | Self::Cut(data) if data.is_empty() => Ok(None),
            Self::Whole(data) => Ok(Some(Next::One(data.clone()))),
            Self::Last(data) => Ok(Some(Next::Last(data.clone()))),
            Self::Cut(data) => Ok(Some(Next::One(data.slice(..data.len().min(PIECE))))),
            Self::Lent(data, start) => {
                let piece = bytes_like_objects::with_readable(data.bind(py), |bytes| {
                    let rest = bytes.get(*start..).unwrap_or_default();
                    Bytes::copy_from_slice(&rest[..rest.len().min(PIECE)])
                });
                match piece {
                    Some(piece) if piece.is_empty() => Ok(None),
                    Some(piece) => Ok(Some(Next::One(piece))),
                    None => Err(PyTypeError::new_err(
                        "data is no longer a bytes-like object",
                    )),
                }
            }
        }
    }

    /// Removes `count` bytes, which were queued.
    fn sent(&mut self, count: usize) {
        match self {
            Self::Together(pieces) => pieces.clear(),
            Self::Whole(data) | Self::Last(data) | Self::Cut(data) => data.advance(count),
            Self::Lent(_, start) => *start += count,
        }
    }
}

enum Next {
    One(Bytes),
    Last(Bytes),
    Several(Vec<Bytes>),
}

impl Next {
    fn len(&self) -> usize {
        match self {
            Self::One(piece) | Self::Last(piece) => piece.len(),
            Self::Several(pieces) => pieces.iter().map(Bytes::len).sum(),
        }
    }

    /// True if the data must wait for space. The end of a stream without data needs none.
    fn needs_room(&self) -> bool {
        !matches!(self, Self::Last(piece) if piece.is_empty())
    }

    fn hand_to(
        self,
        stream_transport: &mut dyn StreamTransport,
        stream_id: u64,
    ) -> Result<(), StreamError> {
        match self {
            Self::One(piece) => stream_transport.send_stream(stream_id, piece, false),
            Self::Last(piece) => stream_transport.send_stream(stream_id, piece, true),
            Self::Several(pieces) => pieces
                .into_iter()
                .try_for_each(|piece| stream_transport.send_stream(stream_id, piece, false)),
        }
    }
}

impl Stream {
    pub fn send(&self, py: Python<'_>, unsent: &mut Unsent) -> PyResult<Polled> {
        let mut has_written = false;
        let polled = self.queue_data(py, unsent, &mut has_written);
        if has_written {
            self.manager.get().written(py);
        }
        polled
    }

    fn queue_data(
        &self,
        py: Python<'_>,
        unsent: &mut Unsent,
        has_written: &mut bool,
    ) -> PyResult<Polled> {
        loop {
            self.check_sending(py)?;
            let Some(next) = unsent.next(py)? else {
                return Ok(Polled::Ready(py.None()));
            };
            let (count, id) = (next.len(), self.id);
            let is_last = matches!(next, Next::Last(_));
            let taken = self
                .manager
                .get()
                .require_transport(py, |stream_transport| {
                    if next.needs_room() && stream_transport.is_stream_full(id) {
                        return Ok(false);
                    }
                    next.hand_to(stream_transport, id).map(|()| true)
                })?;
            match taken {
                Ok(true) if is_last => {
                    *has_written = true;
                    self.sides.with(py, |sides| sides.is_finished = true);
                    return Ok(Polled::Ready(py.None()));
                }
                Ok(true) => {
                    *has_written = true;
                    unsent.sent(count);
                }
                Ok(false) => return Ok(Polled::Wait(Key::Writable(id))),
                Err(error) => return self.refused(py, error),
            }
        }
    }

    pub fn finish(&self, py: Python<'_>) -> PyResult<Polled> {
        if self.sides.with(py, |sides| sides.is_finished) {
            return Ok(Polled::Ready(py.None()));
        }
        self.send(py, &mut Unsent::Last(Bytes::new()))
    }

    /// Waits until the peer has acknowledged everything, including the end of the stream.
    pub fn wait_finished(&self, py: Python<'_>) -> PyResult<Polled> {
        let (is_finished, is_reset) = self
            .sides
            .with(py, |sides| (sides.is_finished, sides.is_reset));
        let manager = self.manager.get();
        let stopped = manager.inbox(py, |inbox| inbox.stopped(self.id));
        if let Some(code) = stopped {
            return Err(errors::stream_stopped(py, self.id, code));
        }
        if is_reset {
            return Err(errors::stream_closed(py, self.id, WAS_RESET));
        }
        match manager.read_transport(py, |stream_transport| stream_transport.is_sending(self.id))? {
            Some(false) if is_finished => {
                self.sides.with(py, |sides| sides.is_delivered = true);
                Ok(Polled::Ready(py.None()))
            }
            None if self.sides.with(py, |sides| sides.is_delivered) => Ok(Polled::Ready(py.None())),
            None if manager.is_over(py) => Err(manager.ended(py)),
            _ => Ok(Polled::Wait(Key::Finished(self.id))),
        }
    }

    pub fn reset(&self, py: Python<'_>, code: u64) -> PyResult<()> {
        self.check_code(py, code)?;
        let id = self.id;
        // An error is ignored: the stream or the connection may have ended in the meantime, which is no error of the
        // program.
        let _ = self.manager.get().with_transport(py, |stream_transport| {
            stream_transport.reset_stream(id, code)
        })?;
        self.sides.with(py, |sides| sides.is_reset = true);
        let keys = [Key::Writable(id), Key::Finished(id), Key::AllFinished];
        self.manager.get().wake(py, keys)
    }

    pub fn stop(&self, py: Python<'_>, code: u64) -> PyResult<()> {
        self.check_code(py, code)?;
        let id = self.id;
        let is_ended = self.sides.with(py, |sides| sides.stream_reader.is_ended());
        if !is_ended {
            let _ = self.manager.get().with_transport(py, |stream_transport| {
                stream_transport.stop_stream(id, code)
            })?;
        }
        self.sides.with(py, |sides| {
            sides.is_stopped = true;
            sides.stream_reader.clear();
        });
        self.manager.get().wake(py, [Key::Readable(id)])
    }

    pub fn prioritise(&self, py: Python<'_>, urgency: i64, incremental: bool) -> PyResult<()> {
        let priority = integer_arguments::priority(urgency, incremental)?;
        let id = self.id;
        // An error is ignored: the stream has ended, so its priority is meaningless.
        let _ = self.manager.get().with_transport(py, |stream_transport| {
            stream_transport.set_priority(id, priority)
        })?;
        Ok(())
    }

    /// Ends the stream at the end of `async with`. The sending side is finished; after an exception it is reset,
    /// because incomplete data must not look complete. Unread data of the peer is stopped. Directions that have ended
    /// already stay as they are.
    pub fn leave(&self, py: Python<'_>, failed: bool) -> PyResult<Polled> {
        let open = self.open_sides(py);
        if open.is_nothing() {
            return Ok(Polled::Ready(py.None()));
        }
        let id = self.id;
        let abandoned = Abandoned {
            sending: open.sending && failed,
            ..open
        };
        self.manager.get().with_transport(py, |stream_transport| {
            if open.sending && !failed {
                let _ = stream_transport.send_stream(id, Bytes::new(), true);
            }
            abandoned.end_directions(stream_transport, id);
        })?;
        self.sides.with(py, |sides| {
            sides.is_finished |= open.sending && !failed;
            sides.is_reset |= abandoned.sending;
            sides.is_stopped |= abandoned.receiving;
        });
        self.manager.get().wake(py, Key::of_stream(id))?;
        Ok(Polled::Ready(py.None()))
    }

    fn check_sending(&self, py: Python<'_>) -> PyResult<()> {
        let (is_finished, is_reset) = self
            .sides
            .with(py, |sides| (sides.is_finished, sides.is_reset));
        match (is_finished, is_reset) {
            (_, true) => Err(errors::stream_closed(py, self.id, WAS_RESET)),
            (true, _) => Err(errors::stream_closed(py, self.id, "it is finished")),
            (false, false) => Ok(()),
        }
    }

    /// Checks an error code. The codes of a WebTransport session have 32 bits, those of QUIC 62.
    fn check_code(&self, py: Python<'_>, code: u64) -> PyResult<()> {
        if u32::try_from(code).is_ok() {
            return Ok(());
        }
        match self
            .manager
            .get()
            .read_transport(py, |stream_transport| stream_transport.code_bits())?
        {
            Some(bits) if code >> bits != 0 => {
                Err(integer_arguments::out_of_range("code", bits, code))
            }
            _ => Ok(()),
        }
    }

    /// Handles a refused send. If the peer has stopped the stream, raises that; otherwise waits for the event with the
    /// reason.
    fn refused(&self, py: Python<'_>, error: StreamError) -> PyResult<Polled> {
        let stopped = self.manager.get().inbox(py, |inbox| inbox.stopped(self.id));
        match (stopped, error) {
            (Some(code), _) => Err(errors::stream_stopped(py, self.id, code)),
            (None, StreamError::Reset | StreamError::Over | StreamError::Closed) => {
                Ok(Polled::Wait(Key::Writable(self.id)))
            }
            (None, error) => Err(errors::stream_closed(py, self.id, &error.to_string())),
        }
    }
}

const WAS_RESET: &str = "this side has reset it";
/// The largest number of bytes that `send_all` queues at a time.
const PIECE: usize = 64 << 10;
