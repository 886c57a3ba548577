//! The message on a request stream: its field sections, its content length, and its completeness at the end (RFC 9114
//! section 4.1).

use bytes::Bytes;

use super::{Frame, Half, Receiver, RequestStream, connection_error};
use crate::{
    error::{Code, ConnectionError, RemoteError},
    event::{Event, HeadersKind, Role},
    field_validation::{self, Method},
    qpack::Field,
};

impl RequestStream {
    /// Handles a decoded field section of the message, or of a PUSH_PROMISE frame.
    pub(super) fn handle_section(
        &mut self,
        cx: &mut Receiver<'_>,
        fields: Vec<Field>,
        promise: Option<u64>,
        length: usize,
    ) -> Result<Event, RemoteError> {
        cx.log.received(self.id, length, promise, &fields);
        let Some(push_id) = promise else {
            return self.handle_fields(cx, fields);
        };
        field_validation::validate_request(&fields).map_err(RemoteError::malformed)?;
        cx.pushes.note_promise(push_id, &fields)?;
        Ok(Event::PushPromise {
            stream_id: self.id,
            push_id,
            fields,
        })
    }

    fn handle_fields(
        &mut self,
        cx: &Receiver<'_>,
        fields: Vec<Field>,
    ) -> Result<Event, RemoteError> {
        let kind = match (self.recv, cx.role) {
            (Half::Head, Role::Server) => self.handle_request(&fields, cx),
            (Half::Head, Role::Client) => self.handle_response(&fields),
            _ => field_validation::validate_trailers(&fields).map(|()| {
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

    fn handle_request(
        &mut self,
        fields: &[Field],
        cx: &Receiver<'_>,
    ) -> Result<HeadersKind, field_validation::Reason> {
        let head = field_validation::validate_request_to(fields, cx.target_check)?;
        if head.has_protocol && !cx.connect_protocol {
            // RFC 9220 section 3 (RFC 8441 section 3): `:protocol` is allowed only if this side announced extended
            // CONNECT.
            return Err("pseudo-header :protocol without ENABLE_CONNECT_PROTOCOL".into());
        }
        self.method = head.method;
        // RFC 9110 section 9.3.6: a CONNECT request has no content; its DATA frames belong to the tunnel.
        self.content_expected = match head.method {
            Method::Connect => None,
            _ => head.content_length,
        };
        self.recv = Half::Body;
        Ok(HeadersKind::Request)
    }

    fn handle_response(
        &mut self,
        fields: &[Field],
    ) -> Result<HeadersKind, field_validation::Reason> {
        let head = field_validation::validate_response(fields)?;
        if head.is_interim() {
            // RFC 9114 section 4.1: any number of interim responses, without content, may come before the final one.
            return Ok(HeadersKind::Informational);
        }
        self.content_expected = match (self.method, head.status) {
            // RFC 9110 section 6.4.1: these responses have no content, even if they have a content-length.
            (Method::Head, _) | (_, 204 | 304) => Some(0),
            (Method::Connect, 200..=299) => None,
            _ => head.content_length,
        };
        self.is_refused = head.is_refusal();
        self.recv = Half::Body;
        Ok(HeadersKind::Response)
    }

    /// True for a CONNECT request that was accepted or is not answered yet: after the header section only DATA frames
    /// follow (RFC 9114 section 4.4).
    pub fn is_tunnel(&self) -> bool {
        self.method == Method::Connect && !self.is_refused
    }

    /// Handles the end of the stream, at which the message must be complete (RFC 9114 section 4.1.2). `last` is the
    /// stream's event before the end, if it was kept back. Returns the last event of the stream, with `fin`.
    pub(super) fn end(&mut self, role: Role, last: Option<Event>) -> Result<Event, RemoteError> {
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
            // RFC 9114 section 7.1: the stream has ended in the middle of a frame.
            return Err(connection_error(
                Code::H3_FRAME_ERROR,
                "the stream ends inside a frame",
            ));
        }
        if self.recv == Half::Head {
            return Err(match role {
                // RFC 9114 section 4.1: a stream without a complete request is not a connection error; the request is
                // incomplete.
                Role::Server => RemoteError::Stream(ConnectionError::new(
                    Code::H3_REQUEST_INCOMPLETE,
                    "the stream ends before the request's header section",
                )),
                Role::Client => RemoteError::malformed("the stream ends before a final response"),
            });
        }
        // A push that arrives before its promise may answer a HEAD request, whose response has a content-length and no
        // content (RFC 9110 section 8.6).
        let may_be_without = self.is_push && self.content_received == 0;
        let is_short = |expected| expected != self.content_received && !may_be_without;
        if self.content_expected.is_some_and(is_short) {
            return Err(RemoteError::malformed(
                "less content than content-length announces",
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
}
