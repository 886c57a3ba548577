//! WebTransport beside requests: which events are its sessions', and requests that ask for one.
//!
//! What a session is and does is `webtransport`'s.

use std::time::Instant;

use uringcore_h3::{self as h3, Role};
use uringcore_quic as quic;

use super::connection::Connection;
use super::event::Event;
use super::head::{Head, Refusal};
use super::limits::Limits;
use crate::webtransport::{self, Below, Handle, Sessions};

/// The sessions of a connection, and requests for them that cannot be told of yet.
pub(super) struct Attached {
    sessions: Sessions,
    /// Until it is known what the client speaks, and the handshake is complete. As many as there may be
    /// sessions.
    asked: Vec<(u64, Head)>,
}

impl Attached {
    pub fn is_drained(&self) -> bool {
        self.sessions.is_drained()
    }

    pub fn is_due(&self) -> bool {
        self.sessions.is_due()
    }

    /// Keeps no room for what is to come.
    pub fn rest(&mut self) {
        self.sessions.rest();
        self.asked = Vec::new();
    }
}

impl Connection {
    /// Attaches HTTP/3 as [`new`](Self::new) does, with WebTransport, whose streams are read on demand. The
    /// connection has to take datagrams (RFC 9221).
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
        connection.attached = Some(Box::new(Attached {
            sessions: Sessions::new(Role::Server, webtransport),
            asked: Vec::new(),
        }));
        connection
    }

    /// The connection's sessions, where WebTransport is on: commands, and events but for
    /// [`Event::Session`].
    pub fn webtransport(&mut self) -> Option<Handle<'_>> {
        let attached = self.attached.as_mut()?;
        Some(Handle::new(&mut attached.sessions, &mut self.h3))
    }

    /// Runs `run` on the sessions, and notes whether the last of them is over. Only where WebTransport is on.
    fn with_sessions<R>(
        &mut self,
        quic: &mut quic::Connection,
        now: Instant,
        run: impl FnOnce(&mut Sessions, &mut Below<'_>) -> R,
    ) -> Option<R> {
        let attached = self.attached.as_mut()?;
        let was_drained = attached.sessions.is_drained();
        let mut below = Below {
            h3: &mut self.h3,
            quic,
            now,
        };
        let result = run(&mut attached.sessions, &mut below);
        if !was_drained && attached.sessions.is_drained() {
            self.calmed(now);
        }
        Some(result)
    }

    /// Gives back what is HTTP's.
    pub(super) fn route(
        &mut self,
        quic: &mut quic::Connection,
        event: quic::Event,
        now: Instant,
    ) -> Option<quic::Event> {
        if self.attached.is_none() {
            return Some(event);
        }
        self.learn_peers_datagrams(quic);
        self.with_sessions(quic, now, |sessions, below| sessions.route(below, event))?
    }

    /// What is HTTP's as well, behind that.
    pub(super) fn take_behind(&mut self) -> Option<quic::Event> {
        self.attached.as_mut()?.sessions.take_behind()
    }

    /// The same of HTTP/3's events.
    pub(super) fn route_h3(
        &mut self,
        quic: &mut quic::Connection,
        event: h3::Event,
        now: Instant,
    ) -> Option<h3::Event> {
        if self.attached.is_none() {
            return Some(event);
        }
        self.with_sessions(quic, now, |sessions, below| sessions.route_h3(below, event))?
    }

    /// Why a request for a session is not one: its stream has ended, or there are none here.
    pub(super) fn judge_session(&self, head: &Head, ended: bool) -> Option<Refusal> {
        match head.is_webtransport {
            false => None,
            true if self.attached.is_none() => {
                Some(Refusal::new(501, "the protocol is not supported"))
            }
            true => ended.then_some(Refusal::new(400, "a session's stream has ended")),
        }
    }

    pub(super) fn session_asked(
        &mut self,
        quic: &mut quic::Connection,
        session_id: u64,
        head: Head,
        now: Instant,
    ) {
        self.count_request();
        let asked =
            self.with_sessions(quic, now, |sessions, below| sessions.ask(below, session_id));
        if let (Some(true), Some(attached)) = (asked, &mut self.attached) {
            attached.asked.push((session_id, head));
        }
    }

    /// After every event: tells of requests for sessions that can be told of, and counts those that were given
    /// up.
    pub(super) fn settle_sessions(&mut self, quic: &mut quic::Connection, now: Instant) {
        let Some(attached) = &mut self.attached else {
            return;
        };
        let is_known = self.h3.received_settings().is_some() && !quic.is_handshaking();
        if is_known && !attached.asked.is_empty() {
            for (session_id, head) in std::mem::take(&mut attached.asked) {
                self.tell_session(quic, session_id, head, now);
            }
        }
        let given_up = match &mut self.attached {
            Some(attached) => attached.sessions.take_given_up(),
            None => 0,
        };
        for _ in 0..given_up {
            if !self.may_give_up(quic, now) {
                return;
            }
        }
        self.perform(quic, now);
    }

    fn tell_session(
        &mut self,
        quic: &mut quic::Connection,
        session_id: u64,
        head: Head,
        now: Instant,
    ) {
        let asked = self.with_sessions(quic, now, |sessions, below| {
            sessions.judge(below, session_id, head.names_h3, &head.fields)
        });
        // One that its client has given up meanwhile is not told of.
        if let Some(Some(asked)) = asked {
            self.events.push_back(Event::Session {
                session_id,
                head,
                protocols: asked.protocols,
                draft: asked.draft,
            });
        }
    }

    pub(super) fn tick_sessions(&mut self, quic: &mut quic::Connection, now: Instant) {
        self.with_sessions(quic, now, |sessions, below| sessions.tick(below));
        self.settle_sessions(quic, now);
    }
}
