//! WebTransport beside requests: passes events to the sessions, and reports requests for sessions.

use std::time::Instant;

use uringcore_h3::{self as h3, Role};
use uringcore_quic as quic;

use super::Connection;
use crate::concurrent_requests::Limits;
use crate::http3::event::Event;
use crate::http3::webtransport_sessions::WebTransportSessions;
use crate::request_head::Head;
use crate::response_errors::Refusal;
use crate::webtransport::{self, LowerLayers, SessionCommands, Sessions};

impl Connection {
    /// Makes a connection as [`new`](Self::new) does, with WebTransport. The streams of sessions are read on demand.
    /// The QUIC connection must accept datagrams (RFC 9221).
    pub fn with_webtransport(
        quic: &mut quic::Connection,
        mut settings: h3::Settings,
        limits: Limits,
        webtransport: webtransport::Limits,
        now: Instant,
    ) -> Self {
        Sessions::prepare(&webtransport, &mut settings);
        quic.read_on_demand();
        let mut connection = Self::new(quic, settings, limits, now);
        let sessions = Sessions::new(Role::Server, webtransport);
        connection.webtransport_sessions = Some(Box::new(WebTransportSessions::new(sessions)));
        connection
    }

    /// Commands and events of the sessions, except [`Event::Session`]. `None` if WebTransport is disabled.
    pub fn webtransport(&mut self) -> Option<SessionCommands<'_>> {
        let attached = self.webtransport_sessions.as_mut()?;
        Some(SessionCommands::new(&mut attached.sessions, &mut self.h3))
    }

    /// Runs `run` on the sessions, and starts the idle timer if the last session has ended. `None` if WebTransport is
    /// disabled.
    fn with_sessions<R>(
        &mut self,
        quic: &mut quic::Connection,
        now: Instant,
        run: impl FnOnce(&mut Sessions, &mut LowerLayers<'_>) -> R,
    ) -> Option<R> {
        let attached = self.webtransport_sessions.as_mut()?;
        let was_drained = attached.sessions.is_drained();
        let mut below = LowerLayers {
            h3: &mut self.h3,
            quic,
            now,
        };
        let result = run(&mut attached.sessions, &mut below);
        if !was_drained && attached.sessions.is_drained() {
            self.start_idle_timer(now);
        }
        Some(result)
    }

    /// Passes a QUIC event to the sessions. Returns the event that `h3` has to handle, if any.
    pub(super) fn route(
        &mut self,
        quic: &mut quic::Connection,
        event: quic::Event,
        now: Instant,
    ) -> Option<quic::Event> {
        if self.webtransport_sessions.is_none() {
            return Some(event);
        }
        self.h3.read_datagram_support(quic);
        self.with_sessions(quic, now, |sessions, below| sessions.route(below, event))?
    }

    /// Returns the event that `h3` has to handle after the one that [`route`](Self::route) returned, if there is one.
    pub(super) fn take_second_event(&mut self) -> Option<quic::Event> {
        self.webtransport_sessions
            .as_mut()?
            .sessions
            .take_second_event()
    }

    /// Passes an event of `h3` to the session that it concerns. Returns the event if it concerns no session.
    pub(super) fn route_h3(
        &mut self,
        quic: &mut quic::Connection,
        event: h3::Event,
        now: Instant,
    ) -> Option<h3::Event> {
        if self.webtransport_sessions.is_none() {
            return Some(event);
        }
        self.with_sessions(quic, now, |sessions, below| sessions.route_h3(below, event))?
    }

    /// Returns a refusal for a session request whose stream has ended, or if WebTransport is disabled.
    pub(super) fn check_session_request(&self, head: &Head, ended: bool) -> Option<Refusal> {
        match head.is_webtransport {
            false => None,
            true if self.webtransport_sessions.is_none() => {
                Some(Refusal::new(501, "the protocol is not supported"))
            }
            true => ended.then_some(Refusal::new(400, "a session's stream has ended")),
        }
    }

    pub(super) fn add_session_request(
        &mut self,
        quic: &mut quic::Connection,
        session_id: u64,
        head: Head,
        now: Instant,
    ) {
        self.count_request();
        let asked = self.with_sessions(quic, now, |sessions, below| {
            sessions.add_request(below, session_id)
        });
        if let (Some(true), Some(attached)) = (asked, &mut self.webtransport_sessions) {
            attached.pending_requests.push((session_id, head));
        }
    }

    /// Called after each event: reports session requests whose client's draft is known, and counts those that the
    /// client abandoned.
    pub(super) fn update_sessions(&mut self, quic: &mut quic::Connection, now: Instant) {
        let Some(attached) = &mut self.webtransport_sessions else {
            return;
        };
        let is_known = self.h3.received_settings().is_some() && !quic.is_handshaking();
        if is_known && !attached.pending_requests.is_empty() {
            for (session_id, head) in std::mem::take(&mut attached.pending_requests) {
                self.report_session_request(quic, session_id, head, now);
            }
        }
        let abandoned = match &mut self.webtransport_sessions {
            Some(attached) => attached.sessions.take_abandoned_requests(),
            None => 0,
        };
        for _ in 0..abandoned {
            if !self.count_abandoned(quic, now) {
                return;
            }
        }
    }

    fn report_session_request(
        &mut self,
        quic: &mut quic::Connection,
        session_id: u64,
        head: Head,
        now: Instant,
    ) {
        let asked = self.with_sessions(quic, now, |sessions, below| {
            sessions.check_request(below, session_id, head.names_h3, &head.fields)
        });
        // A request that the client has abandoned meanwhile is not reported.
        if let Some(Some(asked)) = asked {
            self.events.push(Event::Session {
                session_id,
                head,
                protocols: asked.protocols,
                draft: asked.draft,
            });
        }
    }

    pub(super) fn tick_sessions(&mut self, quic: &mut quic::Connection, now: Instant) {
        self.with_sessions(quic, now, |sessions, below| sessions.tick(below));
        self.update_sessions(quic, now);
    }
}
