//! The read methods of a stream. A read that lacks bytes waits for an event and then tries again.

use pyo3::prelude::*;
use uringcore_quic::read_on_demand::{Key, Outcome, Portion, Want};

use super::errors;
use super::stream::Stream;
use super::stream_awaitables::Polled;
use crate::capi::bytes_like_objects::{self, bytes_of};
use crate::capi::py_buffer::BufferView;

/// The arguments of a read, kept while the read waits.
pub enum ReadRequest {
    UpTo(usize),
    All,
    Exactly(usize),
    Until { separator: Vec<u8>, max: usize },
}

impl ReadRequest {
    fn want(&self) -> Want<'_> {
        match self {
            Self::UpTo(max) => Want::UpTo(*max),
            Self::All => Want::All,
            Self::Exactly(count) => Want::Exactly(*count),
            Self::Until { separator, max } => Want::Until {
                separator,
                max: *max,
            },
        }
    }
}

impl Stream {
    pub fn read(&self, py: Python<'_>, asked: &ReadRequest) -> PyResult<Polled> {
        Ok(match self.look(py, asked.want())? {
            Some(portion) => Polled::Ready(to_bytes(py, &portion)?),
            None => Polled::Wait(Key::Readable(self.id)),
        })
    }

    /// One step of `async for`: returns the bytes that have arrived, at most [`PIECE_MAX`] of them.
    pub fn next_piece(&self, py: Python<'_>) -> PyResult<Polled> {
        Ok(match self.look(py, Want::UpTo(PIECE_MAX))? {
            Some(portion) if portion.is_empty() => Polled::Exhausted,
            Some(portion) => Polled::Ready(to_bytes(py, &portion)?),
            None => Polled::Wait(Key::Readable(self.id)),
        })
    }

    pub fn read_into(&self, py: Python<'_>, target: &Bound<'_, PyAny>) -> PyResult<Polled> {
        let room = BufferView::get(target, pyo3::ffi::PyBUF_WRITABLE)?.len();
        let Some(portion) = self.look(py, Want::UpTo(room))? else {
            return Ok(Polled::Wait(Key::Readable(self.id)));
        };
        let count = portion.len();
        let written = bytes_like_objects::with_writable(target, |mut memory| {
            for piece in portion.pieces() {
                let (now, rest) = memory.split_at_mut(piece.len().min(memory.len()));
                for (to, from) in now.iter_mut().zip(piece) {
                    to.write(*from);
                }
                memory = rest;
            }
        });
        if written.is_none() {
            // The program has released the buffer meanwhile. The bytes are kept for the next read.
            let whole: Vec<u8> = portion.pieces().flatten().copied().collect();
            self.sides
                .with(py, |sides| sides.stream_reader.put_back(&whole));
            return Err(pyo3::exceptions::PyBufferError::new_err(
                "the buffer cannot be written to any more",
            ));
        }
        Ok(Polled::Ready(count.into_pyobject(py)?.into_any().unbind()))
    }

    /// Takes the bytes that a read waits for. `None` if they have not arrived yet.
    fn look(&self, py: Python<'_>, want: Want<'_>) -> PyResult<Option<Portion>> {
        loop {
            let (outcome, lacks) = self.sides.with(py, |sides| {
                if sides.is_stopped {
                    return (None, 0);
                }
                let outcome = sides.stream_reader.take(want);
                (Some(outcome), sides.stream_reader.lacks(want))
            });
            match outcome {
                Some(Outcome::Wait) => {}
                Some(outcome) => return self.reported(py, outcome, want).map(Some),
                None => {
                    let what = "this side has stopped reading";
                    return Err(errors::stream_closed(py, self.id, what));
                }
            }
            let manager = self.manager.get();
            let received = manager.pull(py, self.id, lacks)?;
            let is_nothing = received.data.is_empty() && received.end.is_none();
            if !is_nothing {
                self.sides
                    .with(py, |sides| sides.stream_reader.receive(received));
            } else if manager.is_over(py) {
                return Err(manager.ended(py));
            } else {
                return Ok(None);
            }
        }
    }

    fn reported(&self, py: Python<'_>, outcome: Outcome, want: Want<'_>) -> PyResult<Portion> {
        match outcome {
            Outcome::Data(portion) => Ok(portion),
            Outcome::Incomplete(portion) => {
                let expected = match want {
                    Want::Exactly(count) => Some(count),
                    _ => None,
                };
                let partial = to_bytes(py, &portion)?;
                Err(errors::incomplete(py, partial, expected))
            }
            Outcome::TooLong(consumed) => Err(errors::limit_overrun(py, consumed)),
            Outcome::Reset { error_code } => Err(errors::stream_reset(py, self.id, error_code)),
            Outcome::Wait => Ok(Portion::default()),
        }
    }
}

fn to_bytes(py: Python<'_>, portion: &Portion) -> PyResult<Py<PyAny>> {
    let bytes = bytes_of(py, portion.pieces(), portion.len())?;
    Ok(bytes.into_any().unbind())
}

/// The largest piece in bytes that `async for` returns.
const PIECE_MAX: usize = 256 << 10;
