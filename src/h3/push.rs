//! Server push (RFC 9114 section 4.6): promises and push streams, for both roles.
//!
//! A push stream is a response without a request on the same stream. It uses the type of request streams (`request/`):
//! on a server it has only the sending half, on a client only the receiving half. This file adds push IDs and their
//! limit, promises, and cancellation.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use uringcore_wire::varint;

use super::connection::Connection;
use super::error::{Code, ConnectionError, LocalError};
use super::event::Role;
use super::field_validation::{self, Line, TargetCheck};
use super::frame_header;
use super::frame_type;
use super::qpack::Field;
use super::quic_sink::Sink;
use super::request::{Half, RequestStream};
use super::stream_id;
use super::stream_type;
use super::unidirectional_stream::{UnidirectionalKind, UnidirectionalStream};

/// The state of a connection's pushes: push IDs, their limit, and promises.
#[derive(Debug, Default)]
pub(super) struct Pushes {
    /// Server: the push ID of the next promise.
    next: u64,
    /// Server: the highest push ID that the client allows (MAX_PUSH_ID); `None` if it allows no push.
    max: Option<u64>,
    /// (push ID, stream ID) of push streams: on a server those that are being sent, on a client all that have begun.
    /// The client's MAX_PUSH_ID bounds their number.
    streams: Vec<(u64, u64)>,
    /// Client: (push ID, hash of the promised request's fields). At most [`PROMISES_MAX`]; the oldest are dropped
    /// first.
    promises: VecDeque<(u64, u64)>,
}

impl Pushes {
    fn id_of(&self, stream_id: u64) -> Option<u64> {
        self.streams
            .iter()
            .find(|(_, stream)| *stream == stream_id)
            .map(|(push_id, _)| *push_id)
    }

    pub fn stream_of(&self, push_id: u64) -> Option<u64> {
        self.streams
            .iter()
            .find(|(known, _)| *known == push_id)
            .map(|(_, stream_id)| *stream_id)
    }

    /// Client: records a promise. A push may be promised more than once, but only with equal fields (RFC 9114 section
    /// 4.6).
    pub fn note_promise(&mut self, push_id: u64, fields: &[Field]) -> Result<(), ConnectionError> {
        let mut hasher = DefaultHasher::new();
        fields.hash(&mut hasher);
        let hash = hasher.finish();
        let known = self.promises.iter().find(|(known, _)| *known == push_id);
        match known {
            Some((_, promised)) if *promised != hash => Err(ConnectionError::new(
                Code::H3_GENERAL_PROTOCOL_ERROR,
                "two promises of one push with different fields",
            )),
            Some(_) => Ok(()),
            None => {
                if self.promises.len() == PROMISES_MAX {
                    self.promises.pop_front();
                }
                self.promises.push_back((push_id, hash));
                Ok(())
            }
        }
    }

    /// Server: true if the push ID has been used in a promise.
    pub fn is_promised(&self, push_id: u64) -> bool {
        push_id < self.next
    }

    /// Server: handles the client's MAX_PUSH_ID (RFC 9114 section 7.2.7).
    pub fn raise_max(&mut self, id: u64) -> Result<(), ConnectionError> {
        if self.max.is_some_and(|previous| id < previous) {
            return Err(ConnectionError::new(
                Code::H3_ID_ERROR,
                "MAX_PUSH_ID was reduced",
            ));
        }
        self.max = Some(id);
        Ok(())
    }

    /// Server: true if the client allows another push.
    fn may_promise(&self) -> bool {
        self.max.is_some_and(|max| self.next <= max)
    }
}

impl Connection {
    /// Promises a response to a request that the client did not send, as part of the response on `stream_id`, and
    /// begins the push stream `push_stream_id`, a unidirectional stream of this side. The caller sends the promised
    /// response on that stream with `send_headers` and `send_data`.
    ///
    /// # Errors
    ///
    /// [`LocalError::NoPush`] if the client allows no further push, [`LocalError::InvalidStream`] if `stream_id` is
    /// not a request, [`LocalError::FrameUnexpected`] if its response has ended, [`LocalError::InvalidField`] if the
    /// promised request would be malformed.
    pub fn send_push_promise<N, V>(
        &mut self,
        out: &mut dyn Sink,
        stream_id: u64,
        push_stream_id: u64,
        fields: &[(N, V)],
    ) -> Result<(), LocalError>
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        self.check_push(stream_id)?;
        let lines = field_validation::trimmed(fields);
        let invalid =
            |reason: field_validation::Reason| LocalError::InvalidField(reason.into_owned());
        let head =
            field_validation::request_head(lines.clone(), TargetCheck::Strict).map_err(invalid)?;
        check_promised(lines.clone(), head.content_length)?;
        self.check_field_section_size(lines.clone())?;
        let push_id = self.pushes.next;
        let mut id = Vec::with_capacity(varint::SIZE_MAX);
        varint::put(&mut id, push_id);
        let prefix = self.encode_section(stream_id, lines.clone());
        let (section, prefix) = self.section.split_at(prefix);
        let promise = frame_header::frame(frame_type::PUSH_PROMISE, &[&id, prefix, section]);
        let length = id.len() + self.section.len();
        self.flush_encoder(out);
        self.log.sent(stream_id, length, Some(push_id), lines);
        self.log
            .stream_type(push_stream_id, stream_type::PUSH, Some(push_id));
        out.write(stream_id, promise, false);
        let mut header = Vec::with_capacity(2 * varint::SIZE_MAX);
        varint::put(&mut header, stream_type::PUSH);
        header.extend_from_slice(&id);
        out.write(push_stream_id, header.into(), false);
        self.pushes.next += 1;
        self.forget_finished_pushes();
        self.pushes.streams.push((push_id, push_stream_id));
        let stream = RequestStream::new_push_sent(push_stream_id, head.method);
        self.requests.insert(push_stream_id, stream);
        Ok(())
    }

    /// Checks if the client and the request's stream allow a [`send_push_promise`](Self::send_push_promise).
    ///
    /// # Errors
    ///
    /// Those of `send_push_promise`, except `InvalidField`.
    pub fn check_push(&self, stream_id: u64) -> Result<(), LocalError> {
        if self.closed {
            return Err(LocalError::Closed);
        }
        if !stream_id::is_client_bidi(stream_id) {
            return Err(LocalError::InvalidStream(
                "a push is promised on a client-initiated bidirectional stream",
            ));
        }
        let allowed = self.pushes.may_promise() && self.goaway.allows_push(self.pushes.next);
        if self.role == Role::Client || !allowed {
            return Err(LocalError::NoPush);
        }
        match self.requests.get(&stream_id) {
            // RFC 9114 section 4.4: only DATA frames are sent in a tunnel.
            Some(stream) if stream.is_tunnel() => Err(LocalError::FrameUnexpected(
                "a CONNECT stream has no promises",
            )),
            Some(stream) if matches!(stream.send, Half::Head | Half::Body) => Ok(()),
            _ => Err(LocalError::FrameUnexpected(
                "PUSH_PROMISE frame is not allowed in this state",
            )),
        }
    }

    /// Returns the push ID of a push stream. A client may call this after the end of the stream as well.
    pub fn push_id(&self, stream_id: u64) -> Option<u64> {
        self.pushes.id_of(stream_id)
    }

    /// Client: handles the data of a push stream, after its stream type.
    pub(super) fn receive_push(
        &mut self,
        out: &mut dyn Sink,
        stream_id: u64,
        mut stream: UnidirectionalStream,
        mut data: Bytes,
        fin: bool,
    ) -> Result<(), ConnectionError> {
        let Some(push_id) = stream.header.read_one(&mut data) else {
            if fin {
                return Err(ConnectionError::new(
                    Code::H3_FRAME_ERROR,
                    "the push stream ends inside its push ID",
                ));
            }
            stream.kind = UnidirectionalKind::Push;
            self.unidirectional.insert(stream_id, stream);
            return Ok(());
        };
        check_push_id(push_id, self.settings.max_push_id)?;
        self.log
            .stream_type(stream_id, stream_type::PUSH, Some(push_id));
        if self.pushes.stream_of(push_id).is_some() {
            // RFC 9114 section 4.6: a push ID is used for one push stream only.
            return Err(ConnectionError::new(
                Code::H3_ID_ERROR,
                "two push streams with one push ID",
            ));
        }
        self.pushes.streams.push((push_id, stream_id));
        self.requests
            .insert(stream_id, RequestStream::new_push_received(stream_id));
        self.receive_request(out, stream_id, data, fin)
    }

    /// Handles a CANCEL_PUSH frame (RFC 9114 section 7.2.3).
    pub(super) fn handle_cancel_push(
        &mut self,
        out: &mut dyn Sink,
        push_id: u64,
    ) -> Result<(), ConnectionError> {
        let is_known = match self.role {
            Role::Server => self.pushes.is_promised(push_id),
            Role::Client => self.settings.max_push_id.is_some_and(|max| push_id <= max),
        };
        if !is_known {
            return Err(ConnectionError::new(
                Code::H3_ID_ERROR,
                "CANCEL_PUSH for a push that was not promised",
            ));
        }
        // The client ignores the server's CANCEL_PUSH: the server will open no stream for the push, and the client has
        // no state for it.
        if self.role == Role::Server
            && let Some(stream_id) = self.pushes.stream_of(push_id)
            && let Some(stream) = self.requests.remove(&stream_id)
            && stream.send != Half::Done
        {
            out.reset_stream(stream_id, Code::H3_REQUEST_CANCELLED);
        }
        Ok(())
    }

    fn forget_finished_pushes(&mut self) {
        let requests = &self.requests;
        self.pushes
            .streams
            .retain(|(_, stream_id)| requests.contains_key(stream_id));
    }
}

/// Checks that a promised request is safe, cacheable and without content (RFC 9114 section 4.6). Of the methods in RFC
/// 9110 only GET and HEAD are.
fn check_promised<'a>(
    mut lines: impl Iterator<Item = Line<'a>>,
    content_length: Option<u64>,
) -> Result<(), LocalError> {
    let may_push =
        |(name, value): Line<'_>| name == b":method" && matches!(value, b"GET" | b"HEAD");
    if !lines.any(may_push) {
        return Err(LocalError::InvalidField(
            "a promised request is one of GET or HEAD".into(),
        ));
    }
    if content_length.is_some_and(|length| length > 0) {
        return Err(LocalError::InvalidField(
            "a promised request has no content".into(),
        ));
    }
    Ok(())
}

/// Client: checks that a push ID of the server is not above this side's MAX_PUSH_ID (RFC 9114 sections 4.6 and 7.2.5).
pub(super) fn check_push_id(push_id: u64, max: Option<u64>) -> Result<(), ConnectionError> {
    match max {
        Some(max) if push_id <= max => Ok(()),
        Some(_) => Err(ConnectionError::new(
            Code::H3_ID_ERROR,
            "push ID above MAX_PUSH_ID",
        )),
        None => Err(ConnectionError::new(
            Code::H3_ID_ERROR,
            "a push without MAX_PUSH_ID",
        )),
    }
}

/// The number of promises whose fields are remembered. A client has fewer in use at a time, because a server must not
/// use a push ID over a long period (RFC 9114 section 4.6).
const PROMISES_MAX: usize = 64;
