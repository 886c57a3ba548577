//! Checks the order of frames on a request stream (RFC 9114 sections 4.1 and 7.2).

use bytes::{Buf, Bytes};
use uringcore_wire::varint;

use super::{Frame, Half, Receiver, RequestStream, check_session_id, connection_error};
use crate::{
    error::{Code, RemoteError},
    event::Role,
    frame_type,
    push::check_push_id,
    stream_type,
};

impl RequestStream {
    /// Checks a frame's type as soon as its header has arrived, so that no payload of a forbidden frame is buffered.
    pub(super) fn begin_frame(
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
            // RFC 9114 section 6.1: servers may open bidirectional streams only if an extension allows it.
            return Err(connection_error(
                Code::H3_STREAM_CREATION_ERROR,
                "a server opened a bidirectional stream that is not WebTransport's",
            ));
        }
        match frame_type {
            frame_type::DATA => {
                cx.log.data(false, self.id, length);
                if length == 0 {
                    cx.useless_frames.take(1)?;
                }
                self.begin_data(length)
            }
            frame_type::HEADERS => self.begin_headers(cx, length),
            frame_type::PUSH_PROMISE => {
                cx.useless_frames.take(1)?;
                self.begin_promise(cx, length)
            }
            // These frames are not allowed on request streams: RFC 9114 sections 7.2.3, 7.2.4, 7.2.6, 7.2.7 and 7.2.8,
            // RFC 9218 section 7.2.
            frame_type::CANCEL_PUSH
            | frame_type::SETTINGS
            | frame_type::GOAWAY
            | frame_type::MAX_PUSH_ID
            | frame_type::PRIORITY_UPDATE_REQUEST
            | frame_type::PRIORITY_UPDATE_PUSH => {
                Err(unexpected("control frame on a request stream"))
            }
            reserved if frame_type::is_reserved(reserved) => Err(unexpected("reserved frame type")),
            _ => {
                cx.useless_frames.take(1)?;
                Ok(match length {
                    0 => Frame::Header,
                    remaining => Frame::Skip { remaining },
                })
            }
        }
    }

    fn begin_data(&self, length: u64) -> Result<Frame, RemoteError> {
        if self.recv != Half::Body {
            // RFC 9114 section 4.1: content comes between the header section and the trailers.
            return Err(unexpected("DATA frame outside of content"));
        }
        if self
            .content_expected
            .is_some_and(|expected| self.content_received.saturating_add(length) > expected)
        {
            // RFC 9114 section 4.1.2: the content would be longer than content-length, which is known before the
            // content arrives.
            return Err(RemoteError::malformed(
                "more content than content-length announces",
            ));
        }
        Ok(if length == 0 {
            Frame::Header
        } else {
            Frame::Data { remaining: length }
        })
    }

    fn begin_headers(&self, cx: &Receiver<'_>, length: u64) -> Result<Frame, RemoteError> {
        // RFC 9114 section 4.1: no HEADERS frame after the trailers. Section 4.4: in a tunnel only DATA frames follow.
        if !matches!(self.recv, Half::Head | Half::Body)
            || (self.recv == Half::Body && self.is_tunnel())
        {
            return Err(unexpected("HEADERS frame after the end of the message"));
        }
        if length > cx.headers_frame_max {
            return Err(RemoteError::TooLarge {
                reason: "HEADERS frame larger than SETTINGS_MAX_FIELD_SECTION_SIZE",
                fields: Vec::new(),
            });
        }
        Ok(Frame::Headers {
            length: length as usize,
        })
    }

    /// PUSH_PROMISE is allowed on request streams to a client, anywhere in the response (RFC 9114 section 7.2.5).
    fn begin_promise(&self, cx: &Receiver<'_>, length: u64) -> Result<Frame, RemoteError> {
        if cx.role == Role::Server {
            return Err(unexpected("a client sent PUSH_PROMISE"));
        }
        if self.is_push {
            return Err(unexpected("PUSH_PROMISE on a push stream"));
        }
        if self.recv == Half::Body && self.is_tunnel() {
            // RFC 9114 section 4.4: only DATA frames are allowed in a tunnel.
            return Err(unexpected("PUSH_PROMISE in a tunnel"));
        }
        if cx.max_push_id.is_none() {
            check_push_id(0, None)?;
        }
        if length > cx.headers_frame_max.saturating_add(varint::SIZE_MAX as u64) {
            return Err(RemoteError::TooLarge {
                reason: "PUSH_PROMISE frame larger than SETTINGS_MAX_FIELD_SECTION_SIZE",
                fields: Vec::new(),
            });
        }
        Ok(Frame::Promise {
            length: length as usize,
        })
    }

    fn begin_webtransport(&mut self, session_id: u64) -> Result<Frame, RemoteError> {
        // draft-ietf-webtrans-http3 section 4.3: 0x41 is allowed only as the first bytes of a stream.
        if !self.first {
            return Err(connection_error(
                Code::H3_FRAME_ERROR,
                "WEBTRANSPORT_STREAM is not the first frame",
            ));
        }
        check_session_id(session_id)?;
        self.recv = Half::Body;
        // The host sends on the stream itself, past this module, so the order of this side's frames is not checked.
        self.send = Half::Done;
        Ok(Frame::WebTransport { session_id })
    }
}

/// Takes the push ID from the front of a PUSH_PROMISE frame's payload.
pub(super) fn take_push_id(cx: &Receiver<'_>, payload: &mut Bytes) -> Result<u64, RemoteError> {
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

fn unexpected(reason: &'static str) -> RemoteError {
    connection_error(Code::H3_FRAME_UNEXPECTED, reason)
}
