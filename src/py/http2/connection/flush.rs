//! The methods of `Http2Connection` that write its output, and then pause or continue reading, close the transport or
//! continue in another callback.

use std::time::Instant;

use pyo3::intern;
use pyo3::prelude::*;
use uringcore_engine::WriteOutcome;
use uringcore_http::tcp_output::Source;

use super::{Http2Connection, Http2State};
use crate::tcp::lower_transport::{self, LowerTransport, take_output};

impl Http2Connection {
    /// Writes the output. Then pauses or continues reading, closes the transport, or schedules the delivery of events, as
    /// the state of the connection requires. During a delivery this does nothing, because the delivery ends with one
    /// write for all requests.
    pub fn flush(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let lower = this.state.with(py, |state| {
            let lower = state.lower.as_ref().filter(|_| !state.is_delivering);
            lower.map(|lower| lower.clone_ref(py))
        });
        let Some(lower) = lower else {
            return Ok(());
        };
        this.write(py, &lower)?;
        if this.charge(py, &lower)? {
            // The client gets credit again.
            this.write(py, &lower)?;
        }
        let unsent = lower.unsent_bytes(py)?;
        let (reads, closing, proceeds) = this.state.with(py, |state| {
            let proceeds = state.http.has_events() && !state.will_proceed;
            state.will_proceed |= proceeds;
            let reads = state.change_reading(unsent);
            (reads, state.http.take_closing(), proceeds)
        });
        if let Some(reads) = reads {
            lower.set_reading(py, reads)?;
        }
        if let Some(closing) = closing {
            lower.end(py, closing)?;
        }
        if proceeds {
            // An application may be running that has sent something.
            let event_loop = this.asgi(py).get().event_loop.bind(py);
            let proceed = slf.getattr(intern!(py, "_proceed"))?;
            event_loop.call_method1(intern!(py, "call_soon"), (proceed,))?;
        }
        match this.queued.is_budget_exceeded() {
            true => this.service.get().shed(py),
            false => Ok(()),
        }
    }

    /// Writes the output, and content from the queues, until the transport accepts no more.
    fn write(&self, py: Python<'_>, lower: &LowerTransport) -> PyResult<()> {
        loop {
            let has_written = match lower {
                // A stream of this extension gets the bytes without Python code.
                lower if lower.is_native(py) => self
                    .state
                    .with(py, |state| state.write_to_stream(py, lower))?,
                lower => {
                    let pieces = self.with_http(py, |http| {
                        http.fill_output(Instant::now());
                        take_output(http)
                    });
                    let has_pieces = !pieces.is_empty();
                    if has_pieces {
                        lower.write_pieces(py, pieces)?;
                    }
                    has_pieces
                }
            };
            if !has_written || self.state.with(py, |state| state.is_writing_paused) {
                return Ok(());
            }
        }
    }

    /// Charges the client with the bytes that the server holds for it: requests, content and messages that wait for
    /// applications, and responses that wait for the client. While its address holds more than its share, it gets no
    /// credit for content. Returns true if it gets credit again.
    fn charge(&self, py: Python<'_>, lower: &LowerTransport) -> PyResult<bool> {
        let beneath = self.queued.bytes() + lower.unsent_bytes(py)?;
        Ok(self.state.with(py, |state| {
            let held = beneath + state.http.held_bytes();
            let Some(admitted) = &mut state.admitted else {
                return false;
            };
            admitted.holding.set(held);
            let is_withheld = held > HELD_FEW && admitted.holding.is_over_share();
            state.http.set_credit_withheld(is_withheld);
            !state.http.output().is_empty()
        }))
    }
}

impl Http2State {
    /// Determines if the connection is read while `unsent` bytes wait to be sent. Returns the new state if it changes.
    ///
    /// Only bytes in the transport count, because the client makes their number smaller by reading. Content in the
    /// queues of streams waits for credit, which arrives only while the connection is read.
    fn change_reading(&mut self, unsent: usize) -> Option<bool> {
        let admitted = self.admitted.as_ref();
        let is_over_share = || admitted.is_some_and(|admitted| admitted.holding.is_over_share());
        let has_many = unsent > UNSENT_MAX || (unsent > HELD_FEW && is_over_share());
        // The end of the client's direction is awaited after the end of this one.
        let is_paused = has_many && !self.http.is_over();
        let changes = std::mem::replace(&mut self.is_reading_paused, is_paused) != is_paused;
        changes.then_some(!is_paused)
    }

    /// Writes the output. Returns false if there is none.
    fn write_to_stream(&mut self, py: Python<'_>, lower: &LowerTransport) -> PyResult<bool> {
        if !self.http.fill_output(Instant::now()) {
            return Ok(false);
        }
        let outcome = lower_transport::write_output(py, lower, &mut self.http)?;
        if matches!(outcome, Some(WriteOutcome::PauseWriting)) {
            self.is_writing_paused = true;
            self.http.set_writable(false);
        }
        Ok(true)
    }
}

/// A connection that holds at most this number of bytes gets credit even if its address holds more than its share.
const HELD_FEW: usize = 64 << 10;
/// The connection is not read while more bytes than this wait to be sent. Content of responses stops far below it, but
/// every frame and request of the client may cause an answer.
const UNSENT_MAX: usize = 1 << 20;
