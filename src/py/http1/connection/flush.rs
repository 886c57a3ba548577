//! The methods of `Http1Connection` that write its output, and then pause or continue reading, close the transport or
//! continue in another callback.

use std::time::Instant;

use pyo3::intern;
use pyo3::prelude::*;
use uringcore_engine::WriteOutcome;
use uringcore_http::tcp_output::{Closing, Source};
use uringcore_io::SentFile;

use super::{Http1Connection, Http1State};
use crate::tcp::lower_transport::{self, LowerTransport, take_output};
use crate::transport::stream::StreamTransport;

impl Http1Connection {
    /// Writes the output. Then pauses or continues reading, closes the transport, or schedules the next request, as the
    /// state of the connection requires.
    pub fn flush(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let queued = this.queued.bytes();
        // A stream of this extension gets the bytes without Python code, so this takes one borrow of the state.
        let flushed = this
            .state
            .with(py, |state| state.flush_to_stream(py, queued))?;
        let steps = match flushed {
            Some(steps) => steps,
            None => this.flush_to_other(py)?,
        };
        if steps != NextSteps::default() {
            Self::take_steps(slf, steps)?;
        }
        match this.queued.is_budget_exceeded() {
            true => this.service.get().shed(py),
            false => Ok(()),
        }
    }

    /// Writes the output to a transport that may run Python code.
    fn flush_to_other(&self, py: Python<'_>) -> PyResult<NextSteps> {
        let Some(lower) = self.lower(py) else {
            self.with_http(py, |http| http.written());
            return Ok(NextSteps::default());
        };
        let pieces = self.with_http(py, take_output);
        if !pieces.is_empty() {
            lower.write_pieces(py, pieces)?;
        }
        let held = self.queued.bytes() + lower.unsent_bytes(py)?;
        Ok(self.state.with(py, |state| state.next_steps(held)))
    }

    /// Sends a part of a file to a stream of this extension, without a copy. Returns the number of sent bytes.
    pub fn send_file(
        &self,
        py: Python<'_>,
        serial: u64,
        file: &SentFile,
        offset: u64,
        length: u64,
    ) -> u64 {
        self.state.with(py, |state| {
            let Some(LowerTransport::Stream(stream)) = &state.lower else {
                return 0;
            };
            let length = length.min(state.http.content_left(serial));
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            // An exception means that the transport cannot be used now. The write of the bytes raises it again.
            let sent = StreamTransport::send_file(stream.bind(py), file, offset, length);
            let sent = sent.map_or(0, |sent| sent as u64);
            state.http.content_written(serial, sent);
            sent
        })
    }

    fn take_steps(slf: &Bound<'_, Self>, steps: NextSteps) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let Some(lower) = this.lower(py) else {
            return Ok(());
        };
        if let Some(reads) = steps.reads {
            lower.set_reading(py, reads)?;
        }
        if let Some(closing) = steps.closing {
            lower.end(py, closing)?;
        }
        if steps.proceeds {
            // The next request does not begin inside this call, because the application that has answered is still
            // running. A client that has sent many requests would otherwise fill the stack.
            let event_loop = this.asgi(py).get().event_loop.bind(py);
            let proceed = slf.getattr(intern!(py, "_proceed"))?;
            event_loop.call_method1(intern!(py, "call_soon"), (proceed,))?;
        }
        Ok(())
    }
}

/// The steps of the host after the output was written.
#[derive(Default, PartialEq, Eq)]
struct NextSteps {
    /// True if reading continues, false if it is paused; `None` if nothing changes.
    reads: Option<bool>,
    closing: Option<Closing>,
    /// True if the next request has to begin in another callback.
    proceeds: bool,
}

impl Http1State {
    /// Writes the output, if that runs no Python code. Returns `None` for other transports. `queued`
    /// is the number of bytes that wait for applications.
    fn flush_to_stream(&mut self, py: Python<'_>, queued: usize) -> PyResult<Option<NextSteps>> {
        let Some(lower) = self.lower.as_ref().filter(|lower| lower.is_native(py)) else {
            return Ok(None);
        };
        let outcome = match self.http.output().is_empty() {
            true => None,
            false => lower_transport::write_output(py, lower, &mut self.http)?,
        };
        let unsent = lower.unsent_bytes(py)?;
        if matches!(outcome, Some(WriteOutcome::PauseWriting)) {
            self.set_writing_paused(true);
        }
        Ok(Some(self.next_steps(queued + unsent)))
    }

    pub(super) fn set_writing_paused(&mut self, is_paused: bool) {
        self.is_writing_paused = is_paused;
        self.http.set_writable(!is_paused, Instant::now());
    }

    /// Determines the next steps. `held` is the number of bytes that wait for applications, or to be sent.
    fn next_steps(&mut self, held: usize) -> NextSteps {
        let is_paused = self.charge(held) || !self.http.wants_input();
        let changes = std::mem::replace(&mut self.is_paused, is_paused) != is_paused;
        let proceeds = self.http.has_events() && !self.is_delivering && !self.will_proceed;
        self.will_proceed |= proceeds;
        NextSteps {
            reads: changes.then_some(!is_paused),
            closing: self.http.take_closing(),
            proceeds,
        }
    }

    /// Charges the client with the bytes that the server holds for it: requests, and the `held` bytes of content and
    /// messages that wait for the application, and of responses that wait for the client. Returns true if the client's
    /// address holds more than its share, so that this connection is not read.
    fn charge(&mut self, held: usize) -> bool {
        let held = held + self.http.held_bytes();
        let Some(admitted) = &mut self.admitted else {
            return false;
        };
        admitted.holding.set(held);
        held > HELD_FEW && admitted.holding.is_over_share()
    }
}

/// A connection that holds at most this number of bytes is read even if its address holds more than its share.
const HELD_FEW: usize = 64 << 10;
