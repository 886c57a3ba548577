//! Passes each QUIC event of a connection to HTTP/3 or to the session that it concerns.
//!
//! Streams are read on demand. Of a stream that the peer opened, only the header is read here (`stream_header`); while
//! there is no session, as many bytes as one packet has. A stream of HTTP/3 is then passed on, and QUIC pushes its
//! further data. The data of a session's stream stays in QUIC until the host reads it.

use std::time::Instant;

use bytes::Bytes;
use uringcore_h3::stream_id::{is_client_bidi, is_server_initiated, is_unidirectional};
use uringcore_h3::{self as h3, Code, Place, Role};
use uringcore_quic::{self as quic, Chunks, Received, StreamEnd};
use uringcore_wire::varint;

use super::event::EventKind;
use super::pre_session_buffer::EarlyStream;
use super::sessions::{LowerLayers, Sessions, end_stream};
use super::stream_header::{self, StreamOwner};
use super::{Draft, error_code};

/// The first bytes of a stream of the peer whose owner is not known yet.
#[derive(Debug)]
pub(super) struct UnidentifiedStream {
    bytes: Vec<u8>,
    /// The code of the peer's STOP_SENDING for the stream; `None` if it has sent none.
    stopped: Option<u64>,
    pub since: Instant,
}

impl Sessions {
    /// Handles a QUIC event about streams or datagrams. Returns the event that HTTP/3 has to handle, if any, which may
    /// be another one.
    pub(crate) fn route(
        &mut self,
        below: &mut LowerLayers<'_>,
        event: quic::Event,
    ) -> Option<quic::Event> {
        use quic::Event as Quic;
        let stream_id = match &event {
            Quic::StreamReadable { stream_id }
            | Quic::StreamData { stream_id, .. }
            | Quic::StreamReset { stream_id, .. }
            | Quic::StopSending { stream_id, .. }
            | Quic::StreamWritable { stream_id }
            | Quic::StreamAbandoned { stream_id }
            | Quic::StreamFinished { stream_id } => *stream_id,
            Quic::StreamsAvailable { unidirectional } => {
                self.streams_available(*unidirectional);
                return None;
            }
            Quic::Datagram { data, .. } => {
                self.route_datagram(below, data.clone());
                return None;
            }
            _ => return Some(event),
        };
        if self.streams.contains_key(&stream_id) {
            self.stream_event(below, stream_id, event);
            return None;
        }
        if let Some(stream) = self.pre_session.stream(stream_id) {
            match event {
                Quic::StreamData { data, fin, .. } => {
                    stream.rest.data.append(data);
                    stream.rest.end = fin.then_some(StreamEnd::Finished);
                }
                Quic::StreamReset { error_code, .. } => {
                    stream.rest.end = Some(StreamEnd::Reset { error_code });
                }
                Quic::StopSending { error_code, .. } => stream.stopped = Some(error_code),
                // The stream waits for its session. When the session opens, the host gets a `StreamReadable` event.
                _ => {}
            }
            return None;
        }
        self.route_unknown(below, stream_id, event)
    }

    /// Handles an event of a stream that belongs to no open session: a stream of HTTP/3, the CONNECT stream of a
    /// session that has ended, or a peer's stream whose header has not been read yet. Returns the event if HTTP/3 has
    /// to handle it.
    fn route_unknown(
        &mut self,
        below: &mut LowerLayers<'_>,
        stream_id: u64,
        event: quic::Event,
    ) -> Option<quic::Event> {
        use quic::Event as Quic;
        self.update_closing(stream_id, |closing| match event {
            Quic::StreamFinished { .. } | Quic::StopSending { .. } => {
                closing.is_acknowledged = true;
            }
            Quic::StreamReset { .. } => closing.is_ended = true,
            _ => {}
        });
        match event {
            // This side opened the stream: HTTP/3 handles it if it is a CONNECT stream, and ignores it if it was a
            // stream of a session that has ended.
            _ if self.is_own(stream_id) => self.http_event(stream_id, event),
            // The event was queued before the stream was stopped together with its session, so nothing can be read.
            Quic::StreamReadable { .. } if !below.quic.is_receiving(stream_id) => None,
            Quic::StreamReadable { .. } => {
                let arrived = match self.table.is_empty() {
                    // The connection has no session, so the stream is probably a request for HTTP/3. One read of this
                    // size gets most requests as a whole.
                    true => below.quic.read_stream(stream_id, REQUEST_BYTES),
                    false => Received::default(),
                };
                self.begin(below, stream_id, arrived, true)
            }
            // QUIC has pushed the data: the stream began before reading on demand was enabled, or the connection is
            // ending.
            Quic::StreamData { data, fin, .. } if !below.h3.is_known(stream_id) => {
                let end = fin.then_some(StreamEnd::Finished);
                let arrived = Received { data, end };
                self.begin(below, stream_id, arrived, false)
            }
            Quic::StopSending { error_code, .. } => match self.unidentified.get_mut(&stream_id) {
                // The error code is reported later, when the header has shown which session the stream belongs to.
                Some(unidentified) => {
                    unidentified.stopped = Some(error_code);
                    None
                }
                None => self.http_event(stream_id, event),
            },
            Quic::StreamReset { .. } if self.unidentified.remove(&stream_id).is_some() => {
                self.reset_before_identified(below, stream_id, event)
            }
            _ => self.http_event(stream_id, event),
        }
    }

    /// Handles a reset of a peer's stream whose owner is not known yet. If the connection has sessions, the stream may
    /// have belonged to one, so the reset has no effect.
    fn reset_before_identified(
        &mut self,
        below: &mut LowerLayers<'_>,
        stream_id: u64,
        event: quic::Event,
    ) -> Option<quic::Event> {
        let is_servers = self.role == Role::Server;
        if is_unidirectional(stream_id) || (is_servers && self.table.is_empty()) {
            return Some(event);
        }
        if is_servers {
            below.h3.note_used(stream_id);
        }
        end_stream(below.quic, stream_id, Code::H3_REQUEST_REJECTED);
        None
    }

    /// Takes the event that HTTP/3 has to handle after the one that [`route`](Self::route) returned, if there is one.
    pub(crate) fn take_second_event(&mut self) -> Option<quic::Event> {
        self.second_event.take()
    }

    /// Returns the event if HTTP/3 has to handle it: any event, except of bidirectional streams that the server
    /// opened.
    fn http_event(&self, stream_id: u64, event: quic::Event) -> Option<quic::Event> {
        let is_strange = is_server_initiated(stream_id) && !is_unidirectional(stream_id);
        (!is_strange).then_some(event)
    }

    /// Finds the owner of a stream from `arrived` data and, if `pulls` is true, from data that is read here.
    fn begin(
        &mut self,
        below: &mut LowerLayers<'_>,
        stream_id: u64,
        mut arrived: Received,
        pulls: bool,
    ) -> Option<quic::Event> {
        let mut unidentified = self
            .unidentified
            .remove(&stream_id)
            .unwrap_or(UnidentifiedStream {
                bytes: Vec::new(),
                stopped: None,
                since: below.now,
            });
        if unidentified.bytes.is_empty()
            && let Some(first) = arrived.data.pieces().first()
            && stream_header::owner_of(stream_id, first) == StreamOwner::Http
        {
            return self.pass_to_http3(below, stream_id, unidentified, arrived, pulls);
        }
        loop {
            let lacks = match stream_header::owner_of(stream_id, &unidentified.bytes) {
                StreamOwner::Unknown { lacks } => lacks,
                StreamOwner::Http => {
                    return self.pass_to_http3(below, stream_id, unidentified, arrived, pulls);
                }
                StreamOwner::Session { session_id } => {
                    let stream = EarlyStream {
                        stream_id,
                        session_id,
                        rest: arrived,
                        stopped: unidentified.stopped,
                        since: below.now,
                    };
                    self.assign_to_session(below, stream);
                    return None;
                }
            };
            if arrived.data.is_empty() && arrived.end.is_none() && pulls {
                arrived = below.quic.read_stream(stream_id, lacks);
            }
            let piece = arrived.data.split_to(lacks);
            if !piece.is_empty() {
                unidentified.bytes.extend_from_slice(&piece.to_vec());
                continue;
            }
            if let Some(StreamEnd::Reset { error_code }) = arrived.end {
                let reset = quic::Event::StreamReset {
                    stream_id,
                    error_code,
                };
                return self.reset_before_identified(below, stream_id, reset);
            }
            if arrived.end.is_some() {
                // The stream has ended inside its header. HTTP/3 reports the error.
                return self.pass_to_http3(below, stream_id, unidentified, arrived, pulls);
            }
            self.unidentified.insert(stream_id, unidentified);
            return None;
        }
    }

    /// Passes a stream, with the bytes that have arrived so far, to HTTP/3.
    fn pass_to_http3(
        &mut self,
        below: &mut LowerLayers<'_>,
        stream_id: u64,
        unidentified: UnidentifiedStream,
        mut arrived: Received,
        pulls: bool,
    ) -> Option<quic::Event> {
        if arrived.end.is_none() && pulls {
            let more = below.quic.read_stream(stream_id, usize::MAX);
            arrived.data.append(more.data);
            arrived.end = more.end;
        }
        below.quic.deliver_stream(stream_id);
        self.second_event = unidentified
            .stopped
            .map(|error_code| quic::Event::StopSending {
                stream_id,
                error_code,
                unsent: 0,
            });
        let mut data = Chunks::from(Bytes::from(unidentified.bytes));
        data.append(arrived.data);
        Some(match arrived.end {
            Some(StreamEnd::Reset { error_code }) => quic::Event::StreamReset {
                stream_id,
                error_code,
            },
            end => quic::Event::StreamData {
                stream_id,
                data,
                fin: end.is_some(),
            },
        })
    }

    /// Adds a stream, whose header has shown its session, to that session.
    fn assign_to_session(&mut self, below: &mut LowerLayers<'_>, stream: EarlyStream) {
        let EarlyStream {
            stream_id,
            session_id,
            ..
        } = stream;
        if self.role == Role::Server && is_client_bidi(stream_id) {
            below.h3.note_used(stream_id);
        }
        match self.table.get(&session_id) {
            Some(session) if session.is_open => self.adopt(below, stream),
            Some(_) => self.buffer_stream(below, stream),
            None => match self.connect_stream_place(below, session_id) {
                Place::ToCome => self.buffer_stream(below, stream),
                Place::Begun => end_stream(below.quic, stream_id, error_code::SESSION_GONE),
                // Draft section 4: the session identifier is that of a stream that cannot exist.
                Place::Impossible => {
                    let reason = b"a WebTransport session ID is not a request stream";
                    below
                        .quic
                        .close(below.now, Code::H3_ID_ERROR.0, None, reason);
                }
            },
        }
    }

    /// The state of the request stream whose identifier is the session identifier.
    fn connect_stream_place(&self, below: &LowerLayers<'_>, session_id: u64) -> Place {
        match self.role {
            Role::Server => below.h3.place(session_id),
            _ if !is_client_bidi(session_id) => Place::Impossible,
            // A client has not sent a request on this stream, so it cannot be a session.
            _ if session_id >= below.quic.next_stream_id(false) => Place::Impossible,
            _ => Place::Begun,
        }
    }

    // Datagrams ----------------------------------------------------------------------------------

    fn route_datagram(&mut self, below: &mut LowerLayers<'_>, mut data: Bytes) {
        if let Some((quarter, used)) = varint::get(&data)
            && quarter <= varint::MAX / 4
            && let Some(session) = self.table.get(&(quarter * 4))
        {
            let is_open = session.is_open;
            let data = data.split_off(used);
            match is_open {
                true => self.report_datagram(quarter * 4, data),
                false => self.buffer_datagram(quarter * 4, data),
            }
            return;
        }
        // The datagram does not belong to a session, so HTTP/3 passes it to its request or reports an error.
        let (h3, mut out) = below.parts();
        h3.handle_datagram(&mut out, data);
    }

    pub(super) fn report_datagram(&mut self, session_id: u64, data: Bytes) {
        if let Some(session) = self.table.get_mut(&session_id) {
            session.stats.datagrams_received += 1;
            let early = false;
            let event = quic::Event::Datagram { data, early };
            self.report(session_id, EventKind::Quic(event));
        }
    }

    /// Handles an HTTP datagram whose stream is not a known session. Returns the datagram if it belongs to a request.
    fn route_http_datagram(
        &mut self,
        below: &LowerLayers<'_>,
        session_id: u64,
        data: Bytes,
    ) -> Option<h3::Event> {
        match self.role {
            Role::Client => None,
            Role::Server if below.h3.place(session_id) == Place::ToCome => {
                self.buffer_datagram(session_id, data);
                None
            }
            Role::Server => Some(h3::Event::Datagram {
                stream_id: session_id,
                data,
            }),
        }
    }

    // Events of HTTP/3 ---------------------------------------------------------------------------

    /// Handles an event of HTTP/3 that concerns a session. Returns the event if it concerns none.
    pub(crate) fn route_h3(
        &mut self,
        below: &mut LowerLayers<'_>,
        event: h3::Event,
    ) -> Option<h3::Event> {
        use h3::Event as H3;
        let known = |id: &u64| self.table.contains_key(id) || self.closing.contains_key(id);
        match event {
            H3::Data {
                stream_id,
                data,
                fin,
            } if known(&stream_id) => self.on_connect_data(below, stream_id, data, fin),
            H3::Headers {
                stream_id,
                fields,
                fin,
                ..
            } if self.role == Role::Client && known(&stream_id) => {
                self.response(below, stream_id, fields, fin);
            }
            H3::Reset {
                stream_id, code, ..
            } if self.is_rejected(stream_id, code) => {
                self.abort(below, stream_id, Code::H3_REQUEST_CANCELLED, REJECTED);
            }
            H3::Reset { stream_id, .. } if self.table.contains_key(&stream_id) => {
                self.aborted_by_peer(below, stream_id);
            }
            H3::StopSending { stream_id, .. } if self.table.contains_key(&stream_id) => {
                let is_open = self.table.get(&stream_id).is_some_and(|it| it.is_open);
                if is_open {
                    // The peer's last data may be in the same packet and is handled after this event, so the session
                    // does not end yet.
                    self.stopped_reading.push((stream_id, below.now));
                } else if self.role == Role::Server {
                    self.aborted_by_peer(below, stream_id);
                }
                // RFC 9114 section 4.1: after a STOP_SENDING the response may still arrive at the client.
            }
            H3::Datagram { stream_id, data } => {
                return self.route_http_datagram(below, stream_id, data);
            }
            H3::GoAway { id } => {
                self.peer_goes_away(below, id);
                return Some(event);
            }
            _ => return Some(event),
        }
        None
    }

    /// Client: true if the server has rejected the request of a session with this code (RFC 9114 section 4.1.1).
    fn is_rejected(&self, session_id: u64, code: u64) -> bool {
        let session = self.table.get(&session_id);
        self.role == Role::Client
            && code == Code::H3_REQUEST_REJECTED.0
            && session.is_some_and(|session| !session.is_open)
    }

    /// The draft that a session uses; `None` if there is no such session, or its draft is not known yet.
    pub(super) fn draft(&self, session_id: u64) -> Option<Draft> {
        self.table.get(&session_id)?.draft
    }
}

/// The number of bytes that are read first from a stream that is probably a request. One packet has no more.
const REQUEST_BYTES: usize = 1536;

/// The reason that a client's host gets when the server rejects a request. Some drafts have no other way to announce a
/// limit.
const REJECTED: &str =
    "the server has rejected the session: it accepts no further session on this connection";
