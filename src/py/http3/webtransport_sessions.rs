//! The WebTransport sessions of a server's connection: makes the object of a requested session, and delivers its
//! events.

use std::time::Instant;

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_http::request_head::Head;
use uringcore_http::webtransport::{Draft, SessionCommands};
use uringcore_limits::memory_budget::Charge;
use uringcore_quic as quic;

use super::http3_connection::Http3Connection;
use crate::asgi::asgi_service::ReportedFault;
use crate::asgi::scope;
use crate::webtransport::session::{SessionConnection, SessionCore};
use crate::webtransport::session_registry::SessionRegistry;

impl Http3Connection {
    /// Makes the object of a session that a client has requested, and passes it to the program.
    pub(super) fn session(
        slf: &Bound<'_, Self>,
        session_id: u64,
        head: &Head,
        protocols: &[String],
        draft: Draft,
    ) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        // The client may have ended the session while Python code ran.
        Self::deliver_session_events(slf)?;
        if this
            .state
            .with(py, |state| state.sessions.take_gone(session_id))
        {
            return Ok(());
        }
        let on_session = this.state.with(py, |state| {
            state.on_session.as_ref().map(|call| call.clone_ref(py))
        });
        let (Some(on_session), Some(limits)) = (on_session, &this.session_limits) else {
            return Ok(());
        };
        let service = this.service.get();
        if service.is_overloaded(py)? {
            service.report_fault(py, ReportedFault::Load, "Exceeded concurrency limit.");
            return Self::refuse_session(slf, session_id, 503);
        }
        let scope = scope::build(py, service, head, &this.ends(py, session_id, head)?)?;
        scope::for_webtransport(&scope, protocols)?;
        let core = SessionCore::new(
            py,
            Box::new(ServerSessionConnection(slf.clone().unbind())),
            session_id,
            Some(draft),
            service.event_loop.bind(py),
            limits.get().inbox(Charge::new(this.queued.clone())),
        )?;
        let kept = core.clone_ref(py);
        this.state
            .with(py, |state| state.sessions.add(session_id, kept));
        let reported = on_session.bind(py).call1((core, scope));
        reported
            .map(drop)
            .or_else(|error| Self::refuse_session(slf, session_id, 500).and(Err(error)))
    }

    /// Refuses a session. The response has the fields that every response of the server has.
    fn refuse_session(slf: &Bound<'_, Self>, session_id: u64, status: u16) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let lines = this.service.get().default_headers(py, 0);
        let fields: Vec<(&[u8], &[u8])> = lines
            .iter()
            .map(|(name, value)| (name.as_bytes(py), value.as_bytes(py)))
            .collect();
        this.with_connections(py, |http, quic, now| {
            // A session that was answered or has ended stays unchanged.
            let mut handle = http.webtransport()?;
            handle.refuse(quic, session_id, status, &fields, now).ok()
        })?;
        Self::deliver_session_events(slf)
    }

    /// Delivers pending events to the session objects that they belong to.
    pub(super) fn deliver_session_events(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        SessionRegistry::deliver(py, || {
            this.state.with(py, |state| {
                let event = state.http.as_mut()?.webtransport()?.poll_event()?;
                Some((state.sessions.find(py, &event), event.what))
            })
        })
    }
}

struct ServerSessionConnection(Py<Http3Connection>);

impl SessionConnection for ServerSessionConnection {
    fn with_session(
        &self,
        py: Python<'_>,
        run: &mut dyn FnMut(SessionCommands<'_>, &mut quic::Connection, Instant),
    ) -> PyResult<()> {
        self.0.get().with_connections(py, |http, quic, now| {
            if let Some(handle) = http.webtransport() {
                run(handle, quic, now);
            }
        })?;
        self.dispatch(py)
    }

    fn written(&self, py: Python<'_>) {
        self.0.get().written(py);
    }

    fn dispatch(&self, py: Python<'_>) -> PyResult<()> {
        Http3Connection::deliver_session_events(self.0.bind(py))
    }

    fn clone_ref(&self, py: Python<'_>) -> Box<dyn SessionConnection> {
        Box::new(Self(self.0.clone_ref(py)))
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.0)
    }
}
