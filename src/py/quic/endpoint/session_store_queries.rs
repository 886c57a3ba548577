//! Asks the program's session store, on the thread that delivers events or on a thread of the store.
//!
//! A store in memory answers at once. A store that may block is asked on its own thread
//! (`uringcore.quic._session_store_thread`), and a later `deliver` takes its answer. On a loop the answer causes a
//! `deliver`. The protocol limits the time for which a handshake waits for the answer.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

use super::{FirstError, OwnedEndpoint, QuicEndpoint};
use crate::capi::bounded_arguments::{List, OwnedBytes};
use crate::event_loop::clock;
use crate::quic::session_stores::ForeignStore;

/// The answer of a store.
pub(super) struct Answer {
    /// The number of the question. `None` for an error that belongs to no question.
    question: Option<u64>,
    /// True if the client's address token was not used before, or if there is no token.
    is_new: bool,
    found: Vec<(Vec<u8>, Vec<u8>)>,
    errors: Vec<PyErr>,
}

/// A callable for a store's thread. The thread calls it once for each question. It never raises.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct StoreAnswer {
    endpoint: Py<QuicEndpoint>,
    question: Option<u64>,
}

#[pymethods]
impl StoreAnswer {
    fn __call__(
        &self,
        py: Python<'_>,
        is_new: bool,
        found: List<(OwnedBytes, OwnedBytes)>,
        errors: List<Bound<'_, PyAny>>,
    ) {
        let found = found.0.into_iter();
        let answer = Answer {
            question: self.question,
            is_new,
            found: found
                .map(|(ticket, session)| (ticket.0, session.0))
                .collect(),
            errors: errors.0.into_iter().map(PyErr::from_value).collect(),
        };
        let on_answer = self.endpoint.get().state.with(py, |state| {
            state.answers.push(answer);
            // The first answer schedules a `deliver`, which takes all answers, so later ones need not schedule another.
            let is_first = state.answers.len() == 1;
            state
                .on_answer
                .as_ref()
                .filter(|_| is_first)
                .map(|call| call.clone_ref(py))
        });
        if let Some(Err(error)) = on_answer.map(|call| call.call0(py)) {
            error.write_unraisable(py, None);
        }
    }
}

impl QuicEndpoint {
    /// Looks up a client's token and tickets in the program's store, while the handshake waits. Returns true if a
    /// handshake has begun.
    pub(super) fn ask_store(
        slf: &Bound<'_, Self>,
        question: u64,
        deadline: Instant,
        tickets: Vec<Vec<u8>>,
        token: Option<u128>,
        first_error: &mut FirstError,
    ) -> PyResult<bool> {
        let (py, this) = (slf.py(), slf.get());
        let mut answer = Answer {
            question: Some(question),
            is_new: true,
            found: Vec::new(),
            errors: Vec::new(),
        };
        if let Some(store) = this.foreign_store(py) {
            if store.get().may_block() {
                let deadline = this.monotonic(py, deadline);
                let answer_to = this.answer_to(slf, Some(question))?;
                match store
                    .get()
                    .ask_thread(py, &tickets, token, deadline, answer_to)
                {
                    Ok(true) => {
                        this.state.with(py, |state| state.unanswered += 1);
                        return Ok(false);
                    }
                    // The store's queue is full. The token then does not validate the client's address.
                    Ok(false) => answer.is_new = token.is_none(),
                    Err(error) => {
                        answer.is_new = token.is_none();
                        answer.errors.push(error);
                    }
                }
            } else {
                let _inside = this.enter(py)?;
                ask_now(py, store.get(), tickets, token, &mut answer);
            }
        }
        Self::answered(slf, answer, first_error)
    }

    /// Continues the handshakes for which a store's thread has answered. Returns true if there was one.
    pub(super) fn take_answers(
        slf: &Bound<'_, Self>,
        first_error: &mut FirstError,
    ) -> PyResult<bool> {
        let (py, this) = (slf.py(), slf.get());
        let answers = this.state.with(py, |state| match state.answers.is_empty() {
            true => Vec::new(),
            false => {
                let answers = std::mem::take(&mut state.answers);
                let asked = answers.iter().filter(|answer| answer.question.is_some());
                state.unanswered = state.unanswered.saturating_sub(asked.count());
                answers
            }
        });
        let mut has_begun = false;
        for answer in answers {
            has_begun |= Self::answered(slf, answer, first_error)?;
        }
        Ok(has_begun)
    }

    fn answered(
        slf: &Bound<'_, Self>,
        answer: Answer,
        first_error: &mut FirstError,
    ) -> PyResult<bool> {
        let (py, this) = (slf.py(), slf.get());
        for error in answer.errors {
            let reported = Self::report(slf, STORE_RAISED, error);
            first_error.note(py, reported);
        }
        let Some(question) = answer.question else {
            return Ok(false);
        };
        let store = this.foreign_store(py).filter(|_| answer.is_new);
        if let Some(store) = &store {
            store.get().offer(answer.found);
        }
        this.try_protocol_now(py, |protocol, now| {
            match answer.is_new {
                true => protocol.sessions_answered(now, question),
                false => protocol.token_refused(question),
            }
            Some(())
        })?;
        // The handshake has begun, so sessions that it has not taken from the store are dropped.
        if let Some(store) = store {
            store.get().forget_offered();
        }
        Ok(answer.is_new)
    }

    /// Passes new sessions to the program's store.
    pub(super) fn keep_sessions(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let Some(store) = this.foreign_store(py) else {
            return Ok(());
        };
        let mut first_error = FirstError::default();
        while let Some((ticket, session)) = store.get().next_put() {
            let kept = match store.get().may_block() {
                true => {
                    store
                        .get()
                        .keep_on_thread(py, &ticket, &session, this.answer_to(slf, None)?)
                }
                false => this
                    .enter(py)
                    .and_then(|_inside| store.get().keep(py, &ticket, &session)),
            };
            if let Err(error) = kept {
                let reported = Self::report(slf, STORE_RAISED, error);
                first_error.note(py, reported);
            }
        }
        first_error.raise()
    }

    /// The time at which to look for answers that come without a callback. `None` if no handshake waits, or if the
    /// store cannot answer any more: it never does, or its thread stayed in another process after a fork.
    pub(super) fn answers_due(&self, py: Python<'_>, own: &OwnedEndpoint) -> Option<Instant> {
        let is_asked = self.state.with(py, |state| {
            state.unanswered > 0 && state.on_answer.is_none()
        });
        (is_asked && own.protocol.holds_back()).then(|| own.now + LOOK_AGAIN)
    }

    fn answer_to(&self, slf: &Bound<'_, Self>, question: Option<u64>) -> PyResult<Py<StoreAnswer>> {
        debug_assert!(std::ptr::eq(self, slf.get()));
        let endpoint = slf.clone().unbind();
        Py::new(slf.py(), StoreAnswer { endpoint, question })
    }

    /// The value of `time.monotonic()` at `at`, or slightly less.
    fn monotonic(&self, py: Python<'_>, at: Instant) -> f64 {
        let now = clock::monotonic();
        // The monotonic clock was read first, so the time between the two reads makes the result earlier.
        now + at.saturating_duration_since(self.now(py)).as_secs_f64()
    }

    fn foreign_store(&self, py: Python<'_>) -> Option<Py<ForeignStore>> {
        self.state.with(py, |state| {
            let store = state.foreign_store.as_ref();
            store.map(|store| store.clone_ref(py))
        })
    }

    fn try_protocol_now(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut uringcore_quic::Endpoint, Instant) -> Option<()>,
    ) -> PyResult<Option<()>> {
        let now = self.now(py);
        self.try_protocol(py, |protocol| run(protocol, now))
    }
}

/// Asks a store that does not block, on this thread. First the address token is marked as used. If it was used before,
/// or if the store raises, the token does not validate the client's address: the client gets a Retry, and no tickets
/// are looked up.
fn ask_now(
    py: Python<'_>,
    store: &ForeignStore,
    tickets: Vec<Vec<u8>>,
    token: Option<u128>,
    answer: &mut Answer,
) {
    if let Some(token) = token {
        match store.spend(py, token) {
            Ok(is_new) => answer.is_new = is_new,
            Err(error) => {
                answer.is_new = false;
                answer.errors.push(error);
            }
        }
    }
    if !answer.is_new {
        return;
    }
    for ticket in tickets {
        match store.take(py, &ticket) {
            Ok(Some(session)) => answer.found.push((ticket, session)),
            Ok(None) => {}
            Err(error) => answer.errors.push(error),
        }
    }
}

const STORE_RAISED: &str = "Exception in a QUIC server's session store";
/// The interval at which an endpoint without an event loop checks if the store's thread has answered, while a handshake
/// waits. With an event loop, a callback reports the answer.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
