//! One bidirectional stream: a request and its response, or a WebTransport stream that begins with
//! 0x41. Also a push stream, which is one half of that.
//!
//! The receiving half lives here whole: frames in their order (RFC 9114 section 4.1), field
//! sections that wait for QPACK, the count of content. Of the sending half only its state is kept;
//! `send.rs` uses it. What a fault means for the stream or the connection is decided by the caller.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

use super::error::{Code, ConnectionError, RemoteError};
use super::event::{Event, HeadersKind, Role};
use super::field::{self, Method};
use super::frame::{self, HeaderBuffer, frame_type, stream_type};
use super::log::Log;
use super::push::check_push_id;
use super::qpack::{Decoded, Decoder, Field};
use crate::wire::varint;

/// What receiving needs of the connection.
pub(super) struct Receiver<'a> {
    pub role: Role,
    pub webtransport: bool,
    pub max_push_id: Option<u64>,
    /// A longer HEADERS frame is refused before any of it is buffered.
    pub headers_frame_max: u64,
    pub decoder: &'a mut Decoder,
    pub events: &'a mut VecDeque<Event>,
    /// Bytes that blocked streams hold, all together; bounded by [`BLOCKED_BYTES_MAX`].
    pub blocked_bytes: &'a mut usize,
    pub log: &'a mut Log,
}

#[derive(Debug)]
pub(super) struct RequestStream {
    id: u64,
    pub recv: Half,
    pub send: Half,
    /// Of the request on this stream, whoever sent it.
    pub method: Method,
    /// Only WebTransport may use the stream: the server opened it.
    webtransport_only: bool,
    /// A push stream: neither promises nor WebTransport belong there.
    is_push: bool,
    /// An event was given to the host, so the host is owed an end.
    pub announced: bool,
    fin: bool,
    /// No frame came before the one at hand.
    first: bool,
    header: HeaderBuffer,
    frame: Frame,
    /// The part of a HEADERS payload that has arrived; at most `headers_frame_max`.
    payload: BytesMut,
    blocked: Option<Box<Blocked>>,
    content_expected: Option<u64>,
    content_received: u64,
}

/// How far one direction of a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    /// No header section yet, interim ones aside.
    Head,
    Body,
    Trailers,
    /// Finished, reset or given up.
    Done,
}

/// Where in the sequence of frames the next byte belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frame {
    Header,
    Data {
        remaining: u64,
    },
    Headers {
        length: usize,
    },
    /// PUSH_PROMISE: a push ID and a field section.
    Promise {
        length: usize,
    },
    /// An unknown frame, discarded as it arrives (RFC 9114 section 9).
    Skip {
        remaining: u64,
    },
    /// To the end of the stream.
    WebTransport {
        session_id: u64,
    },
}

/// A field section that waits for the dynamic table, and what came after it.
#[derive(Debug)]
struct Blocked {
    section: Bytes,
    /// The push that the section promises, if it is no message's.
    promise: Option<u64>,
    required_insert_count: u64,
    rest: BytesMut,
}

impl Blocked {
    fn size(&self) -> usize {
        self.section.len() + self.rest.len()
    }
}

impl RequestStream {
    pub fn new(id: u64) -> Self {
        Self {
            id,
            recv: Half::Head,
            send: Half::Head,
            method: Method::Other,
            webtransport_only: false,
            is_push: false,
            announced: false,
            fin: false,
            first: true,
            header: HeaderBuffer::default(),
            frame: Frame::Header,
            payload: BytesMut::new(),
            blocked: None,
            content_expected: None,
            content_received: 0,
        }
    }

    /// A bidirectional stream that the server opened and we, the client, received.
    pub fn new_server_initiated(id: u64) -> Self {
        Self {
            webtransport_only: true,
            send: Half::Done,
            ..Self::new(id)
        }
    }

    /// A push stream of ours, the server's: nothing is received on it.
    pub fn new_push_sent(id: u64, method: Method) -> Self {
        Self {
            recv: Half::Done,
            method,
            is_push: true,
            ..Self::new(id)
        }
    }

    /// A push stream to us, the client.
    pub fn new_push_received(id: u64) -> Self {
        Self {
            send: Half::Done,
            is_push: true,
            ..Self::new(id)
        }
    }

    /// A WebTransport stream that we opened: the peer's side carries no header.
    pub fn new_webtransport(id: u64, session_id: u64) -> Self {
        Self {
            frame: Frame::WebTransport { session_id },
            recv: Half::Body,
            send: Half::Done,
            announced: true,
            ..Self::new(id)
        }
    }

    pub fn is_done(&self) -> bool {
        self.recv == Half::Done && self.send == Half::Done
    }

    pub fn is_webtransport(&self) -> bool {
        matches!(self.frame, Frame::WebTransport { .. })
    }

    pub fn fin_received(&self) -> bool {
        self.fin
    }

    /// The insert count that the stream waits for.
    pub fn blocked_on(&self) -> Option<u64> {
        self.blocked
            .as_ref()
            .map(|blocked| blocked.required_insert_count)
    }

    /// Takes the next piece of the stream.
    pub fn receive(
        &mut self,
        cx: &mut Receiver<'_>,
        data: Bytes,
        fin: bool,
    ) -> Result<(), RemoteError> {
        if self.recv == Half::Done {
            return Ok(());
        }
        self.fin |= fin;
        match &mut self.blocked {
            None => self.read_frames(cx, data, None),
            Some(blocked) => {
                *cx.blocked_bytes += data.len();
                blocked.rest.extend_from_slice(&data);
                blocked_within_bound(*cx.blocked_bytes)
            }
        }
    }

    /// The dynamic table has what the blocked field section needs.
    pub fn resume(&mut self, cx: &mut Receiver<'_>) -> Result<(), RemoteError> {
        let Some(blocked) = self.blocked.take() else {
            return Ok(());
        };
        *cx.blocked_bytes -= blocked.size();
        self.read_section(cx, blocked.section, blocked.promise, blocked.rest.freeze())
    }

    /// Nothing more will be read; returns how many bytes the stream held while blocked.
    pub fn stop_receiving(&mut self) -> usize {
        self.recv = Half::Done;
        self.payload = BytesMut::new();
        self.blocked.take().map_or(0, |blocked| blocked.size())
    }

    /// A complete field section, now or after waiting, and what follows it.
    fn read_section(
        &mut self,
        cx: &mut Receiver<'_>,
        section: Bytes,
        promise: Option<u64>,
        rest: Bytes,
    ) -> Result<(), RemoteError> {
        match cx.decoder.decode(self.id, &section)? {
            Decoded::Fields(fields) => {
                let event = self.handle_section(cx, fields, promise, section.len())?;
                self.read_frames(cx, rest, Some(event))
            }
            Decoded::Blocked {
                required_insert_count,
            } => self.block(cx, section, promise, required_insert_count, rest),
        }
    }

    /// Reads frames until the data ends. The last event waits in `last`, because whether it ends
    /// the stream, and whether the message is whole, shows only after it.
    fn read_frames(
        &mut self,
        cx: &mut Receiver<'_>,
        mut data: Bytes,
        mut last: Option<Event>,
    ) -> Result<(), RemoteError> {
        loop {
            let event = match self.frame {
                Frame::Header => {
                    let Some((frame_type, length)) = self.header.read_pair(&mut data) else {
                        break;
                    };
                    self.frame = self.begin_frame(cx, frame_type, length)?;
                    self.first = false;
                    continue;
                }
                Frame::Data { remaining } => {
                    if data.is_empty() {
                        break;
                    }
                    self.read_content(&mut data, remaining)
                }
                Frame::Skip { remaining } => {
                    if data.is_empty() {
                        break;
                    }
                    let skipped = remaining.min(data.len() as u64);
                    data = data.slice(skipped as usize..);
                    self.frame = if remaining == skipped {
                        Frame::Header
                    } else {
                        Frame::Skip {
                            remaining: remaining - skipped,
                        }
                    };
                    continue;
                }
                Frame::Headers { length } | Frame::Promise { length } => {
                    let Some(mut section) = self.collect_payload(&mut data, length) else {
                        break;
                    };
                    let promise = match self.frame {
                        Frame::Promise { .. } => Some(take_push_id(cx, &mut section)?),
                        _ => None,
                    };
                    self.frame = Frame::Header;
                    match cx.decoder.decode(self.id, &section)? {
                        Decoded::Fields(fields) => {
                            self.handle_section(cx, fields, promise, section.len())?
                        }
                        Decoded::Blocked {
                            required_insert_count,
                        } => {
                            self.emit(cx, last);
                            return self.block(cx, section, promise, required_insert_count, data);
                        }
                    }
                }
                Frame::WebTransport { session_id } => {
                    if data.is_empty() {
                        break;
                    }
                    Event::WebTransportData {
                        session_id,
                        stream_id: self.id,
                        data: std::mem::take(&mut data),
                        fin: false,
                    }
                }
            };
            if let Some(previous) = last.replace(event) {
                self.emit(cx, Some(previous));
            }
        }
        if self.fin {
            if matches!(last, Some(Event::PushPromise { .. })) {
                // It is not the message's own and cannot say that the message ends.
                self.emit(cx, last.take());
            }
            last = Some(self.end(cx.role, last)?);
        }
        self.emit(cx, last);
        Ok(())
    }

    /// Checks a frame's type as soon as it is known, so that nothing is buffered of what is not
    /// allowed.
    fn begin_frame(
        &mut self,
        cx: &mut Receiver<'_>,
        frame_type: u64,
        length: u64,
    ) -> Result<Frame, RemoteError> {
        if cx.webtransport && frame_type == frame_type::WEBTRANSPORT_STREAM && !self.is_push {
            cx.log.stream_type(self.id, stream_type::WEBTRANSPORT, None);
            return self.begin_webtransport(length);
        }
        if self.webtransport_only {
            // RFC 9114 section 6.1: only an extension may let servers open bidirectional streams.
            return Err(connection_error(
                Code::H3_STREAM_CREATION_ERROR,
                "a server opened a bidirectional stream that is not WebTransport's",
            ));
        }
        match frame_type {
            frame_type::DATA => {
                cx.log.data(false, self.id, length);
                self.begin_data(length)
            }
            frame_type::HEADERS => self.begin_headers(cx, length),
            frame_type::PUSH_PROMISE => self.begin_promise(cx, length),
            // RFC 9114 sections 7.2.3, 7.2.4, 7.2.6, 7.2.7 and 7.2.8.
            frame_type::CANCEL_PUSH
            | frame_type::SETTINGS
            | frame_type::GOAWAY
            | frame_type::MAX_PUSH_ID => Err(unexpected("control frame on a request stream")),
            reserved if frame_type::is_reserved(reserved) => Err(unexpected("reserved frame type")),
            _ if length == 0 => Ok(Frame::Header),
            _ => Ok(Frame::Skip { remaining: length }),
        }
    }

    fn begin_data(&self, length: u64) -> Result<Frame, RemoteError> {
        if self.recv != Half::Body {
            // RFC 9114 section 4.1.
            return Err(unexpected("DATA frame outside of content"));
        }
        if self
            .content_expected
            .is_some_and(|expected| self.content_received.saturating_add(length) > expected)
        {
            // RFC 9114 section 4.1.2; known before the content is here.
            return Err(RemoteError::malformed(
                "more content than content-length says",
            ));
        }
        Ok(if length == 0 {
            Frame::Header
        } else {
            Frame::Data { remaining: length }
        })
    }

    fn begin_headers(&self, cx: &Receiver<'_>, length: u64) -> Result<Frame, RemoteError> {
        // RFC 9114 section 4.1; section 4.4: on a CONNECT stream only DATA frames follow.
        if !matches!(self.recv, Half::Head | Half::Body)
            || (self.recv == Half::Body && self.is_tunnel())
        {
            return Err(unexpected("HEADERS frame after the end of the message"));
        }
        if length > cx.headers_frame_max {
            return Err(RemoteError::Stream(ConnectionError::new(
                Code::H3_EXCESSIVE_LOAD,
                "HEADERS frame larger than SETTINGS_MAX_FIELD_SECTION_SIZE",
            )));
        }
        Ok(Frame::Headers {
            length: length as usize,
        })
    }

    /// RFC 9114 section 7.2.5: on the streams of requests, to clients, at any place in the response.
    fn begin_promise(&self, cx: &Receiver<'_>, length: u64) -> Result<Frame, RemoteError> {
        if cx.role == Role::Server {
            return Err(unexpected("a client sent PUSH_PROMISE"));
        }
        if self.is_push {
            return Err(unexpected("PUSH_PROMISE on a push stream"));
        }
        if cx.max_push_id.is_none() {
            check_push_id(0, None)?;
        }
        if length > cx.headers_frame_max.saturating_add(varint::SIZE_MAX as u64) {
            return Err(RemoteError::Stream(ConnectionError::new(
                Code::H3_EXCESSIVE_LOAD,
                "PUSH_PROMISE frame larger than SETTINGS_MAX_FIELD_SECTION_SIZE",
            )));
        }
        Ok(Frame::Promise {
            length: length as usize,
        })
    }

    fn begin_webtransport(&mut self, session_id: u64) -> Result<Frame, RemoteError> {
        // draft-ietf-webtrans-http3 section 4.3: only as the very first bytes of a stream.
        if !self.first {
            return Err(connection_error(
                Code::H3_FRAME_ERROR,
                "WEBTRANSPORT_STREAM is not the first frame",
            ));
        }
        check_session_id(session_id)?;
        self.recv = Half::Body;
        // The host writes to the stream past us, so our side of it is not ours to follow.
        self.send = Half::Done;
        Ok(Frame::WebTransport { session_id })
    }

    /// Cuts the content out of `data`, without copying.
    fn read_content(&mut self, data: &mut Bytes, remaining: u64) -> Event {
        let length = remaining.min(data.len() as u64);
        let content = data.split_to(length as usize);
        self.content_received += length;
        self.frame = if remaining == length {
            Frame::Header
        } else {
            Frame::Data {
                remaining: remaining - length,
            }
        };
        Event::Data {
            stream_id: self.id,
            data: content,
            fin: false,
        }
    }

    /// The whole payload once it is here. Copied only if it came in pieces.
    fn collect_payload(&mut self, data: &mut Bytes, length: usize) -> Option<Bytes> {
        if self.payload.is_empty() && data.len() >= length {
            return Some(data.split_to(length));
        }
        let missing = length - self.payload.len();
        let piece = data.split_to(missing.min(data.len()));
        self.payload.extend_from_slice(&piece);
        (self.payload.len() == length).then(|| std::mem::take(&mut self.payload).freeze())
    }

    fn block(
        &mut self,
        cx: &mut Receiver<'_>,
        section: Bytes,
        promise: Option<u64>,
        required_insert_count: u64,
        rest: Bytes,
    ) -> Result<(), RemoteError> {
        // Copied, so that a small section does not hold a large receive buffer.
        let blocked = Blocked {
            section: Bytes::copy_from_slice(&section),
            promise,
            required_insert_count,
            rest: BytesMut::from(&rest[..]),
        };
        *cx.blocked_bytes += blocked.size();
        self.blocked = Some(Box::new(blocked));
        blocked_within_bound(*cx.blocked_bytes)
    }

    /// A field section of the message, or that of a promise.
    fn handle_section(
        &mut self,
        cx: &mut Receiver<'_>,
        fields: Vec<Field>,
        promise: Option<u64>,
        length: usize,
    ) -> Result<Event, RemoteError> {
        cx.log.received(self.id, length, promise, &fields);
        let Some(push_id) = promise else {
            return self.handle_fields(cx.role, fields);
        };
        field::validate_request(&fields).map_err(RemoteError::malformed)?;
        Ok(Event::PushPromise {
            stream_id: self.id,
            push_id,
            fields,
        })
    }

    fn handle_fields(&mut self, role: Role, fields: Vec<Field>) -> Result<Event, RemoteError> {
        let kind = match (self.recv, role) {
            (Half::Head, Role::Server) => self.handle_request(&fields),
            (Half::Head, Role::Client) => self.handle_response(&fields),
            _ => field::validate_trailers(&fields).map(|()| {
                self.recv = Half::Trailers;
                HeadersKind::Trailers
            }),
        }
        .map_err(RemoteError::malformed)?;
        Ok(Event::Headers {
            stream_id: self.id,
            fields,
            kind,
            fin: false,
        })
    }

    fn handle_request(&mut self, fields: &[Field]) -> Result<HeadersKind, field::Reason> {
        let head = field::validate_request(fields)?;
        self.method = head.method;
        // RFC 9110 section 9.3.6: a CONNECT request has no content, its DATA frames are the
        // tunnel's.
        self.content_expected = if self.is_tunnel() {
            None
        } else {
            head.content_length
        };
        self.recv = Half::Body;
        Ok(HeadersKind::Request)
    }

    fn handle_response(&mut self, fields: &[Field]) -> Result<HeadersKind, field::Reason> {
        let head = field::validate_response(fields)?;
        if head.is_interim() {
            // RFC 9114 section 4.1: any number of them, without content.
            return Ok(HeadersKind::Informational);
        }
        self.content_expected = match (self.method, head.status) {
            // RFC 9110 section 6.4.1: never any content, whatever content-length says it would have
            // been.
            (Method::Head, _) | (_, 204 | 304) => Some(0),
            (Method::Connect, 200..=299) => None,
            _ => head.content_length,
        };
        if self.method == Method::Connect && !matches!(head.status, 200..=299) {
            // The tunnel was refused: this is an ordinary response.
            self.method = Method::Other;
        }
        self.recv = Half::Body;
        Ok(HeadersKind::Response)
    }

    fn is_tunnel(&self) -> bool {
        self.method == Method::Connect
    }

    /// FIN: the message must be whole (RFC 9114 section 4.1.2), and the last event says that it is
    /// the last.
    fn end(&mut self, role: Role, last: Option<Event>) -> Result<Event, RemoteError> {
        if let Frame::WebTransport { session_id } = self.frame {
            self.recv = Half::Done;
            let data = match last {
                Some(Event::WebTransportData { data, .. }) => data,
                _ => Bytes::new(),
            };
            return Ok(Event::WebTransportData {
                session_id,
                stream_id: self.id,
                data,
                fin: true,
            });
        }
        if self.frame != Frame::Header || !self.header.is_empty() {
            // RFC 9114 section 7.1.
            return Err(connection_error(
                Code::H3_FRAME_ERROR,
                "the stream ends inside a frame",
            ));
        }
        if self.recv == Half::Head {
            return Err(match role {
                // RFC 9114 section 4.1: not a fault, only no request.
                Role::Server => RemoteError::Stream(ConnectionError::new(
                    Code::H3_REQUEST_INCOMPLETE,
                    "the stream ends before the request's header section",
                )),
                Role::Client => RemoteError::malformed("the stream ends before a final response"),
            });
        }
        if self
            .content_expected
            .is_some_and(|expected| expected != self.content_received)
        {
            return Err(RemoteError::malformed(
                "less content than content-length says",
            ));
        }
        self.recv = Half::Done;
        Ok(match last {
            Some(Event::Headers {
                stream_id,
                fields,
                kind,
                ..
            }) => Event::Headers {
                stream_id,
                fields,
                kind,
                fin: true,
            },
            Some(Event::Data {
                stream_id, data, ..
            }) => Event::Data {
                stream_id,
                data,
                fin: true,
            },
            _ => Event::Data {
                stream_id: self.id,
                data: Bytes::new(),
                fin: true,
            },
        })
    }

    fn emit(&mut self, cx: &mut Receiver<'_>, event: Option<Event>) {
        if let Some(event) = event {
            self.announced = true;
            cx.events.push_back(event);
        }
    }
}

/// A session is named by its CONNECT stream (draft-ietf-webtrans-http3 section 4).
pub(super) fn check_session_id(session_id: u64) -> Result<(), ConnectionError> {
    if frame::is_client_bidi(session_id) {
        Ok(())
    } else {
        Err(ConnectionError::new(
            Code::H3_ID_ERROR,
            "a WebTransport session ID is not a request stream",
        ))
    }
}

/// The push ID in front of a promise's field section.
fn take_push_id(cx: &Receiver<'_>, payload: &mut Bytes) -> Result<u64, RemoteError> {
    let Some((push_id, used)) = varint::get(payload) else {
        return Err(connection_error(
            Code::H3_FRAME_ERROR,
            "the PUSH_PROMISE frame ends inside its push ID",
        ));
    };
    check_push_id(push_id, cx.max_push_id)?;
    payload.advance(used);
    Ok(push_id)
}

fn blocked_within_bound(blocked_bytes: usize) -> Result<(), RemoteError> {
    if blocked_bytes <= BLOCKED_BYTES_MAX {
        return Ok(());
    }
    Err(RemoteError::Stream(ConnectionError::new(
        Code::H3_EXCESSIVE_LOAD,
        "too much data on streams that wait for QPACK",
    )))
}

fn unexpected(reason: &'static str) -> RemoteError {
    connection_error(Code::H3_FRAME_UNEXPECTED, reason)
}

fn connection_error(code: Code, reason: &'static str) -> RemoteError {
    ConnectionError::new(code, reason).into()
}

/// What all streams of a connection together may hold while they wait for the peer's encoder
/// stream. A stream that goes beyond is given up with H3_EXCESSIVE_LOAD.
const BLOCKED_BYTES_MAX: usize = 2 * 1024 * 1024;
