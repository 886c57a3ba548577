//! Delivers the events of the state machines to Python: one list for each connection and loop iteration.
//!
//! All events are first taken out of the state machines and then converted to objects, so that no Python code runs
//! while the engine is borrowed. While they are taken, events about streams go to the protocol that is attached to
//! the connection. This file also accepts connections, at their first event, and reports exceptions of the program.

use std::sync::Arc;
use std::time::Instant;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use uringcore_engine::{Engine, QuicSocket};
use uringcore_quic::{Connection, ConnectionKey, Endpoint, Event, Taking};

use super::{EndpointOwner, QuicEndpoint};
use crate::capi::contextvars_context::Inside;
use crate::capi::exception_conversion;
use crate::event_loop::iteration;
use crate::quic::connection::StreamProtocol;
use crate::quic::events;

/// Collects the exceptions of several calls. One is raised at the end: the first that must end the program, or else the
/// first of all. The others go to `sys.unraisablehook`.
#[derive(Default)]
pub(super) struct FirstError(Option<PyErr>);

impl FirstError {
    pub fn note(&mut self, py: Python<'_>, result: PyResult<()>) {
        let Err(error) = result else {
            return;
        };
        let is_exit = |error: &PyErr| exception_conversion::is_exit(py, error);
        let other = match self.0.take() {
            None => {
                self.0 = Some(error);
                return;
            }
            Some(first) if is_exit(&error) && !is_exit(&first) => {
                self.0 = Some(error);
                first
            }
            Some(first) => {
                self.0 = Some(first);
                error
            }
        };
        other.write_unraisable(py, None);
    }

    pub fn raise(self) -> PyResult<()> {
        self.0.map_or(Ok(()), Err)
    }
}

/// The events of one connection in a loop iteration. Or a single request to look up TLS sessions in the program's
/// session store, which comes before the connection exists.
pub(super) struct EventGroup {
    key: ConnectionKey,
    /// The protocol that is attached to the connection's streams. It has handled the events about streams already.
    attached: Option<Arc<dyn StreamProtocol>>,
    /// True if the attached protocol has handled an event.
    is_handled: bool,
    /// The connection's other events.
    events: Vec<Event>,
}

/// All events of a loop iteration, grouped by connection.
#[derive(Default)]
struct EventGroups {
    list: Vec<EventGroup>,
    questions: usize,
    events: usize,
}

impl EventGroups {
    /// Takes the events of an endpoint. Events about streams go to the attached protocols. The clock is read only for
    /// them, and once.
    fn take(
        py: Python<'_>,
        endpoint: &QuicEndpoint,
        protocol: &mut dyn EventSource,
        clock: impl Fn() -> Instant,
    ) -> Self {
        let mut now = None;
        let mut parts = Self {
            list: endpoint
                .state
                .with(py, |state| std::mem::take(&mut state.spare_groups)),
            ..Self::default()
        };
        while let Some((key, event)) = protocol.poll_event_past(&mut |key, quic, event| {
            let part = parts.part(py, endpoint, key);
            let taking = match &part.attached {
                Some(attached) if event.is_about_streams() => {
                    let now = *now.get_or_insert_with(&clock);
                    attached.handle(py, quic, event, now);
                    part.is_handled = true;
                    Taking::Handled
                }
                _ => {
                    part.events.push(event);
                    Taking::Kept
                }
            };
            parts.events += 1;
            taking
        }) {
            // A question for a session store, which belongs to no connection.
            parts.events += 1;
            parts.questions += 1;
            parts.list.push(EventGroup {
                events: vec![event],
                ..EventGroup::new(key, None)
            });
        }
        parts
    }

    /// The group of a connection. A new one is added unless the last group is that connection's, because the events of
    /// one connection follow each other.
    fn part(
        &mut self,
        py: Python<'_>,
        endpoint: &QuicEndpoint,
        key: ConnectionKey,
    ) -> &mut EventGroup {
        if self.list.last().is_none_or(|part| part.key != key) {
            let (attached, events) = endpoint.state.with(py, |state| {
                let connection = state.connections.get(&key);
                let attached = connection.and_then(|connection| connection.get().attached(py));
                (attached, std::mem::take(&mut state.spare_events))
            });
            self.list.push(EventGroup {
                events,
                ..EventGroup::new(key, attached)
            });
        }
        let last = self.list.len() - 1;
        &mut self.list[last]
    }
}

impl EventGroup {
    fn new(key: ConnectionKey, attached: Option<Arc<dyn StreamProtocol>>) -> Self {
        Self {
            key,
            attached,
            is_handled: false,
            events: Vec::new(),
        }
    }
}

/// A source of events: the state machines of an endpoint, on a loop or without one.
trait EventSource {
    fn poll_event_past(&mut self, take: &mut Take<'_>) -> Option<(ConnectionKey, Event)>;
}

type Take<'a> = dyn FnMut(ConnectionKey, &mut Connection, Event) -> Taking + 'a;

impl EventSource for Endpoint {
    fn poll_event_past(&mut self, take: &mut Take<'_>) -> Option<(ConnectionKey, Event)> {
        Endpoint::poll_event_past(self, take)
    }
}

impl EventSource for QuicSocket {
    fn poll_event_past(&mut self, take: &mut Take<'_>) -> Option<(ConnectionKey, Event)> {
        QuicSocket::poll_event_past(self, take)
    }
}

impl QuicEndpoint {
    /// Passes every waiting event to the receiver or queue of its connection. Exceptions are reported to the loop or to
    /// `on_error`; only those that must leave the loop are returned. Without a loop and `on_error`, the first one is
    /// returned.
    pub fn deliver(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let mut first_error = FirstError::default();
        loop {
            // Handshakes are continued before events are taken. So their events, and those of commands on a new
            // connection, are delivered in the same loop iteration.
            let mut has_begun = Self::take_answers(slf, &mut first_error)?;
            let mut parts = slf.get().take_events(py)?;
            for mut part in parts.drain(..) {
                if let [Event::SessionsAsked { .. }] = &part.events[..]
                    && let Some(Event::SessionsAsked {
                        question,
                        deadline,
                        tickets,
                        token,
                    }) = part.events.pop()
                {
                    let token = token.map(|token| *token);
                    has_begun |=
                        Self::ask_store(slf, question, deadline, tickets, token, &mut first_error)?;
                    continue;
                }
                let delivered = Self::deliver_to(slf, part, &mut has_begun)
                    .or_else(|error| Self::report(slf, RECEIVER_RAISED, error));
                // An exception that one connection's receiver raises does not prevent the delivery of other
                // connections' events.
                first_error.note(py, delivered);
                // Bytes that the connection's program has written may leave before the next connection's events are
                // delivered.
                if let EndpointOwner::Loop { owner, .. } = &slf.get().owned_by {
                    iteration::with_engine_at_hand(owner.get(), py, Engine::end_part);
                }
            }
            // The list keeps its memory for the next loop iteration, unless it is large.
            if parts.capacity() <= CONNECTIONS_KEPT {
                slf.get().state.with(py, |state| state.spare_groups = parts);
            }
            if !has_begun {
                break;
            }
        }
        first_error.note(py, Self::keep_sessions(slf));
        first_error.note(py, slf.get().flush_key_logs(py));
        first_error.raise()
    }

    /// Handles the engine's release of the socket: the endpoint has ended.
    pub fn ended(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let state = slf.get().state.take(py);
        if let (EndpointOwner::Loop { context, .. }, Some(on_closed)) =
            (&slf.get().owned_by, &state.on_closed)
        {
            let inside = Inside::of(context.bind(py))?;
            let called = on_closed.bind(py).call0();
            drop(inside);
            if let Err(error) = called {
                return Self::report(slf, "Exception in a QUIC endpoint's end", error);
            }
        }
        Ok(())
    }

    fn take_events(&self, py: Python<'_>) -> PyResult<Vec<EventGroup>> {
        let parts = match &self.owned_by {
            EndpointOwner::Object(cell) => cell.with(py, |own| {
                let now = own.now();
                EventGroups::take(py, self, &mut own.protocol, || now)
            }),
            EndpointOwner::Loop { owner, key, .. } => owner.get().with_engine(py, |engine| {
                let parts = match engine.quic(*key) {
                    Some(socket) => EventGroups::take(py, self, socket, Instant::now),
                    None => EventGroups::default(),
                };
                engine.begin_parts(parts.list.len() - parts.questions, parts.events);
                parts
            })?,
        };
        Ok(parts.list)
    }

    fn deliver_to(slf: &Bound<'_, Self>, part: EventGroup, has_begun: &mut bool) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let key = part.key;
        let mut first_error = FirstError::default();
        let mut inside = this.enter(py)?;
        if let Some(attached) = part.attached.filter(|_| part.is_handled) {
            this.deliver_streams(py, &*attached, &mut first_error);
        }
        let mut group = part.events;
        if group.is_empty() {
            this.keep_list(py, group);
            return first_error.raise();
        }
        if let Some(alpn) = this.accepted_in(py, &group) {
            *has_begun = true;
            Self::accept(slf, key, alpn)?;
        }
        let closes = matches!(group.last(), Some(Event::Closed { .. }));
        let connection = this.state.with(py, |state| match closes {
            true => {
                let connection = state.connections.remove(&key);
                if state.connections.len() < state.connections.capacity() / 8 {
                    let room = state.connections.len() * 2;
                    state.connections.shrink_to(room.max(CONNECTIONS_KEPT));
                }
                connection
            }
            false => state
                .connections
                .get(&key)
                .map(|connection| connection.clone_ref(py)),
        });
        // There is no object if the program has refused the connection, or if the connection has failed before its
        // application protocol was negotiated.
        let Some(connection) = connection else {
            return first_error.raise();
        };
        let list = PyList::empty(py);
        let connection = connection.bind(py).get();
        let wants_finished = connection.wants_finished(py);
        let is_batch = matches!(group.last(), Some(Event::BatchHandled));
        // A protocol that was attached after the events were taken, in most cases HTTP/3 when the connection was
        // accepted, gets the events about streams now.
        if let Some(attached) = connection.attached(py)
            && group.iter().any(Event::is_about_streams)
        {
            let (streams, others) = group.into_iter().partition(Event::is_about_streams);
            group = others;
            let streams: Vec<Event> = streams;
            let handled = this.with_connection_now(py, key, |quic, now| {
                for event in streams {
                    attached.handle(py, quic, event, now);
                }
            });
            // The other events of the group, including the connection's end, are delivered even after an exception.
            first_error.note(py, handled.map(drop));
            this.deliver_streams(py, &*attached, &mut first_error);
        }
        for event in group.drain(..) {
            match connection.keep_credential(py, &event) {
                Ok(true) => continue,
                Ok(false) => {}
                // An exception of the program's handler for tickets or tokens must not prevent the delivery of other
                // events.
                Err(error) => {
                    drop(inside.take());
                    first_error.note(py, Self::report(slf, HANDLER_RAISED, error));
                    inside = this.enter(py)?;
                    continue;
                }
            }
            if matches!(event, Event::StreamFinished { .. }) && !wants_finished {
                continue;
            }
            if let Some(object) = events::from_protocol(py, event)? {
                list.append(object)?;
            }
        }
        this.keep_list(py, group);
        if closes {
            connection.finish(py, this, key);
        }
        if !list.is_empty() {
            first_error.note(py, connection.receive(py, &list));
        }
        if is_batch {
            first_error.note(py, connection.batch_handled(py));
        }
        first_error.raise()
    }

    /// Keeps the memory of an empty list for the events of the next loop iteration.
    fn keep_list(&self, py: Python<'_>, events: Vec<Event>) {
        if (1..=EVENTS_KEPT).contains(&events.capacity()) {
            self.state.with(py, |state| state.spare_events = events);
        }
    }

    /// Delivers the events that the protocol on a connection's streams has handled. Tasks that they have woken run
    /// before the loop waits, as soon as a protocol's callback would.
    fn deliver_streams(
        &self,
        py: Python<'_>,
        attached: &dyn StreamProtocol,
        first_error: &mut FirstError,
    ) {
        first_error.note(py, attached.deliver(py));
        if let EndpointOwner::Loop { owner, .. } = &self.owned_by {
            owner
                .get()
                .ready
                .with(py, |ready| ready.iteration_continues = true);
        }
    }

    /// Enters the context in which the endpoint was made. `None` without a loop.
    pub(super) fn enter<'py>(&self, py: Python<'py>) -> PyResult<Option<Inside<'py>>> {
        match &self.owned_by {
            EndpointOwner::Loop { context, .. } => Inside::of(context.bind(py)).map(Some),
            EndpointOwner::Object(_) => Ok(None),
        }
    }

    /// Returns `Some` if the events of `group` announce a new connection. It contains the application protocol if the
    /// program gets connections only when that is negotiated. A connection has no event before this one.
    fn accepted_in(&self, py: Python<'_>, group: &[Event]) -> Option<Option<Vec<u8>>> {
        if !self.state.with(py, |state| state.when_negotiated) {
            return matches!(group.first(), Some(Event::Accepted)).then_some(None);
        }
        group.iter().find_map(|event| match event {
            Event::ProtocolNegotiated { alpn } => Some(alpn.clone()),
            _ => None,
        })
    }

    /// Calls the program to make the object of an accepted connection. If the call raises, the connection is refused.
    fn accept(slf: &Bound<'_, Self>, key: ConnectionKey, alpn: Option<Vec<u8>>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let (on_accept, watermarks, is_known) = this.state.with(py, |state| {
            (
                state.on_accept.as_ref().map(|call| call.clone_ref(py)),
                state.watermarks,
                state.connections.contains_key(&key),
            )
        });
        // The event belongs to a client's connection, whose object exists already.
        if is_known {
            return Ok(());
        }
        if let Some((high, low)) = watermarks {
            this.with_connection(py, key, |connection| connection.set_watermarks(high, low))?;
        }
        let Some(on_accept) = on_accept else {
            return Ok(());
        };
        on_accept
            .bind(py)
            .call1((slf, key.as_u64(), alpn.map(|name| PyBytes::new(py, &name))))
            .map(drop)
            .inspect_err(|_| {
                // The caller reports the exception. The connection is closed with INTERNAL_ERROR.
                let refused = this.with_connection_now(py, key, |connection, now| {
                    connection.close(now, INTERNAL_ERROR, Some(0), b"the server failed to accept");
                });
                if let Err(error) = refused {
                    error.write_unraisable(py, Some(slf));
                }
            })
    }

    pub(super) fn report(slf: &Bound<'_, Self>, message: &str, error: PyErr) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if exception_conversion::is_exit(py, &error) {
            return Err(error);
        }
        let report = match &this.owned_by {
            EndpointOwner::Loop { owner, .. } => {
                owner.bind(py).getattr(intern!(py, "_report"))?.unbind()
            }
            EndpointOwner::Object(_) => {
                let on_error = this.state.with(py, |state| {
                    state.on_error.as_ref().map(|call| call.clone_ref(py))
                });
                match on_error {
                    Some(on_error) => on_error,
                    None => return Err(error),
                }
            }
        };
        report.bind(py).call1((message, error.into_value(py)))?;
        Ok(())
    }

    fn flush_key_logs(&self, py: Python<'_>) -> PyResult<()> {
        let logs = self
            .state
            .with(py, |state| match state.key_logs.is_empty() {
                true => Vec::new(),
                false => state.key_logs.iter().map(|log| log.clone_ref(py)).collect(),
            });
        for log in logs {
            if let Err(error) = log.get().flush(py) {
                if exception_conversion::is_exit(py, &error) {
                    return Err(error);
                }
                error.write_unraisable(py, None);
            }
        }
        Ok(())
    }
}

const HANDLER_RAISED: &str = "Exception in a handler of QUIC session tickets or tokens";
const RECEIVER_RAISED: &str = "Exception in a QUIC event receiver";
/// The transport error INTERNAL_ERROR (RFC 9000 section 20.1).
const INTERNAL_ERROR: u64 = 0x1;
/// A table with space for up to this number of connections is not shrunk.
const CONNECTIONS_KEPT: usize = 128;
/// A list of events with space for up to this number of events is kept for the next loop iteration.
const EVENTS_KEPT: usize = 128;
