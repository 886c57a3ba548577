//! HTTP/3 on a client's connection that is used only for WebTransport: any number of sessions, and no other requests.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use uringcore_h3::settings::id as setting;
use uringcore_h3::{self as h3, Code, Field, Role, field_validation};
use uringcore_quic as quic;

use super::event::EventKind;
use super::session::{Error, Session};
use super::session_commands::SessionCommands;
use super::sessions::{LowerLayers, Sessions, end_stream};
use super::{Draft, Limits, draft_versions, error_code, protocol_negotiation};
use crate::h3_driver::H3Driver;

/// A request for a session.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub authority: Bytes,
    /// The path and query.
    pub path: Bytes,
    pub origin: Option<Bytes>,
    /// Further fields of the request. The drafts define none of them.
    pub fields: Vec<Field>,
    /// The application protocols that the client offers, the preferred one first.
    pub protocols: Vec<String>,
}

/// The HTTP/3 of a client's connection for sessions. All methods get the QUIC connection below it.
///
/// A host calls [`handle`](Self::handle) for each QUIC event about streams, then
/// [`poll_event`](SessionCommands::poll_event) of [`webtransport`](Self::webtransport) until it returns `None`;
/// commands at any time; and [`tick`](Self::tick) about once a second. When a method returns, its output is in QUIC's
/// queues.
pub struct Client {
    h3: H3Driver,
    sessions: Sessions,
    /// Session requests that wait for the server's SETTINGS, by stream identifier.
    waiting: VecDeque<(u64, Request)>,
}

impl Client {
    /// Makes the HTTP/3 of a QUIC connection. It should be called before the connection's first event is handled,
    /// because from then on streams are read on demand. SETTINGS are sent as soon as possible.
    pub fn new(quic: &mut quic::Connection, limits: Limits, now: Instant) -> Self {
        let mut settings = h3::Settings::default();
        Sessions::prepare(&limits, &mut settings);
        quic.read_on_demand();
        Self {
            h3: H3Driver::new(quic, Role::Client, settings, now),
            sessions: Sessions::new(Role::Client, limits),
            waiting: VecDeque::new(),
        }
    }

    pub fn handle(&mut self, quic: &mut quic::Connection, event: quic::Event, now: Instant) {
        if !quic.is_handshaking() {
            self.h3.read_datagram_support(quic);
        }
        let mut below = LowerLayers {
            h3: &mut self.h3,
            quic,
            now,
        };
        if let Some(event) = self.sessions.route(&mut below, event) {
            // HTTP/3 handles the event. Events about acknowledged or writable streams need no more than that here.
            below.h3.handle(below.quic, event, now);
        }
        self.take_h3_events(quic, now);
    }

    /// The commands and events of the sessions.
    pub fn webtransport(&mut self) -> SessionCommands<'_> {
        SessionCommands::new(&mut self.sessions, &mut self.h3)
    }

    /// Requests a session. The request is sent when the server's SETTINGS have arrived. `Accepted`, `Refused` or
    /// `Ended` follows.
    ///
    /// # Errors
    ///
    /// [`Error::GoingAway`] after the server's GOAWAY, [`Error::TooMany`] above the server's limit, [`Error::Invalid`]
    /// for a malformed request, [`Error::Gone`] if the connection has ended.
    pub fn connect(
        &mut self,
        quic: &mut quic::Connection,
        request: Request,
        now: Instant,
    ) -> Result<u64, Error> {
        if self.h3.is_closed() {
            return Err(Error::Gone);
        }
        if self.h3.is_peer_going_away() {
            return Err(Error::GoingAway);
        }
        if let Some(max) = self.sessions_max()
            && self.sessions.table.len() as u64 >= max
        {
            return Err(Error::TooMany { max });
        }
        let lines = lines(&request, Draft::Two).ok_or_else(|| {
            Error::Invalid("a protocol's name may have printable ASCII only".into())
        })?;
        field_validation::validate_request(&lines)
            .map_err(|reason| Error::Invalid(reason.into_owned()))?;
        let session_id = quic.next_stream_id(false);
        // The empty send opens the stream in QUIC and so reserves its identifier. No byte is sent yet.
        quic.send_stream(session_id, Bytes::new(), false)
            .map_err(|_| Error::Gone)?;
        quic.deliver_stream(session_id);
        let session = Session {
            protocols: request.protocols.clone(),
            ..Session::default()
        };
        self.sessions.table.insert(session_id, session);
        // Requests that were abandoned while they waited are skipped.
        let table = &self.sessions.table;
        self.waiting.retain(|(id, _)| table.contains_key(id));
        self.waiting.push_back((session_id, request));
        self.take_h3_events(quic, now);
        Ok(session_id)
    }

    /// Abandons sessions and streams whose time-out has expired. The host calls this about once a second.
    pub fn tick(&mut self, quic: &mut quic::Connection, now: Instant) {
        let mut below = LowerLayers {
            h3: &mut self.h3,
            quic,
            now,
        };
        self.sessions.tick(&mut below);
    }

    /// True if [`tick`](Self::tick) has to be called, because a time-out is running or has expired.
    pub fn is_due(&self) -> bool {
        self.sessions.is_due()
    }

    /// True if there is no session, and no CONNECT stream that is still closing. Then the connection can be closed
    /// without losing data.
    pub fn is_drained(&self) -> bool {
        self.sessions.is_drained()
    }

    fn take_h3_events(&mut self, quic: &mut quic::Connection, now: Instant) {
        let mut below = LowerLayers {
            h3: &mut self.h3,
            quic,
            now,
        };
        while let Some(event) = below.h3.poll_event() {
            // The remaining events of `h3` do not concern sessions.
            let _ = self.sessions.route_h3(&mut below, event);
        }
        if let Some(peer) = below.h3.received_settings() {
            if self.sessions.limits.drafts.contains(&Draft::Fifteen)
                && draft_versions::is_malformed(peer)
            {
                let reason = b"the server's WT_ENABLED is neither 0 nor 1";
                let code = Code::H3_SETTINGS_ERROR;
                below.quic.close(now, code.0, None, reason);
            }
            while let Some((session_id, request)) = self.waiting.pop_front() {
                self.sessions.send_request(&mut below, session_id, &request);
            }
        }
    }

    /// The number of sessions that the server allows at a time. `None` before its SETTINGS have arrived. (This side's
    /// own limit applies to the server.)
    fn sessions_max(&self) -> Option<u64> {
        let peer = self.h3.received_settings()?;
        let spoken = Draft::common(&self.sessions.limits.drafts, peer)?;
        Some(self.sessions.sessions_max(spoken, peer))
    }
}

impl Sessions {
    /// The server's limit of sessions at a time. Without flow control it is one (draft section 5.1).
    fn sessions_max(&self, spoken: Draft, peer: &h3::PeerSettings) -> u64 {
        match spoken.has_flow_control() && self.flow(spoken, peer).is_none() {
            true => 1,
            false => spoken.sessions_max(peer),
        }
    }

    /// Sends a session request, in the form that the server's SETTINGS require.
    fn send_request(&mut self, below: &mut LowerLayers<'_>, session_id: u64, request: &Request) {
        let Some(peer) = below.h3.received_settings() else {
            return;
        };
        let spoken = Draft::common(&self.limits.drafts, peer);
        // A server of draft-02 announces extended CONNECT by the setting of the draft itself.
        let is_able = |spoken: &Draft| {
            *spoken == Draft::Two
                || (peer.is_enabled(setting::ENABLE_CONNECT_PROTOCOL)
                    && draft_versions::takes_datagrams(peer))
        };
        let Some(spoken) = spoken.filter(is_able) else {
            let reason = "the server does not accept WebTransport sessions";
            self.abandon_request(below, session_id, reason);
            return;
        };
        let flow = self.flow(spoken, peer);
        let others = self.table.values().filter(|other| other.draft.is_some());
        let others = others.count() as u64;
        let max = self.sessions_max(spoken, peer);
        if others >= max {
            let reason = Error::TooMany { max }.to_string();
            self.abandon_request(below, session_id, &reason);
            return;
        }
        let Some(session) = self.table.get_mut(&session_id) else {
            return;
        };
        session.draft = Some(spoken);
        session.flow = flow;
        let lines = lines(request, spoken).unwrap_or_default();
        if let Err(error) = below.send_headers(session_id, &lines, false) {
            self.abandon_request(below, session_id, &error.to_string());
        }
    }

    /// Ends a session whose request was not sent and cannot be sent.
    fn abandon_request(&mut self, below: &mut LowerLayers<'_>, session_id: u64, reason: &str) {
        end_stream(below.quic, session_id, Code::H3_REQUEST_CANCELLED);
        self.end(below, session_id, 0, reason, false);
    }

    /// Handles the response to a session request.
    pub(super) fn response(
        &mut self,
        below: &mut LowerLayers<'_>,
        session_id: u64,
        fields: Vec<Field>,
        fin: bool,
    ) {
        let status = fields.iter().find(|(name, _)| &**name == b":status");
        let status = status.and_then(|(_, value)| std::str::from_utf8(value).ok()?.parse().ok());
        let status: u16 = status.unwrap_or(0);
        let Some(session) = self.table.get_mut(&session_id) else {
            return;
        };
        let (Some(spoken), 200..) = (session.draft, status) else {
            // An interim response has no effect.
            return;
        };
        let is_regular = |(name, _): &Field| name.first() != Some(&b':');
        let taken = protocol_negotiation::taken(&fields);
        let fields: Vec<Field> = fields.into_iter().filter(is_regular).collect();
        if status > 299 {
            self.table.remove(&session_id);
            self.reject_buffered_streams(below.quic, session_id);
            let code = Code::H3_REQUEST_CANCELLED;
            below.cancel_request(session_id, code);
            self.report(session_id, EventKind::Refused { status, fields });
            return;
        }
        let is_offered = |taken: &String| session.protocols.contains(taken);
        let protocol = taken.clone().filter(is_offered);
        if taken.is_some() && protocol.is_none() && spoken == Draft::Fifteen {
            // Draft section 3.3: the server must choose an offered protocol. Older drafts ignore the field.
            let reason = "the server has chosen a protocol that was not offered";
            self.abort(below, session_id, error_code::ALPN_ERROR, reason);
            return;
        }
        let accepted = EventKind::Accepted {
            fields,
            protocol,
            draft: spoken,
        };
        self.report(session_id, accepted);
        self.opened(below, session_id);
        if fin {
            self.on_connect_data(below, session_id, Bytes::new(), true);
        }
    }
}

/// The header section of a session request; `None` if a protocol cannot be encoded.
fn lines(request: &Request, spoken: Draft) -> Option<Vec<Field>> {
    let field = |name: &'static [u8], value: Bytes| (Bytes::from_static(name), value);
    let token = Bytes::from_static(spoken.token().as_bytes());
    let mut lines = vec![
        field(b":method", Bytes::from_static(b"CONNECT")),
        field(b":scheme", Bytes::from_static(b"https")),
        field(b":authority", request.authority.clone()),
        field(b":path", request.path.clone()),
        field(b":protocol", token),
    ];
    lines.extend(
        request
            .origin
            .clone()
            .map(|origin| field(b"origin", origin)),
    );
    if spoken == Draft::Two {
        lines.push(field(
            draft_versions::DRAFT_02_REQUEST,
            Bytes::from_static(b"1"),
        ));
    }
    if !request.protocols.is_empty() {
        let offered = protocol_negotiation::written(request.protocols.iter().map(String::as_str))?;
        lines.push(field(protocol_negotiation::OFFERED, offered.into()));
    }
    lines.extend_from_slice(&request.fields);
    Some(lines)
}
