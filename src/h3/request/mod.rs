//! A bidirectional stream: a request and its response, or a WebTransport stream, which begins with 0x41. A push stream
//! has only one direction of a request stream.
//!
//! | file | content |
//! | --- | --- |
//! | `frame_order` | checks the order of frames on the stream |
//! | `message` | the message that the frames carry |
//!
//! This file parses the received frames; a field section may have to wait for QPACK. Of the sending direction it only
//! has the state, which `send_commands.rs` uses. The caller decides if an error ends the stream or the connection.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::{
    error::{Code, ConnectionError, RemoteError},
    event::{Event, Role},
    field_validation::{Method, TargetCheck},
    frame_header::HeaderBuffer,
    pending_input_budget::PendingInputBudget,
    priority::Priority,
    push::Pushes,
    qlog_entries::QlogEntries,
    qpack::{Decoded, Decoder},
    stream_id,
    useless_frame_budget::UselessFrameBudget,
};

mod frame_order;
mod message;

use frame_order::take_push_id;

/// References to the parts of the connection that the receiving code uses.
pub(super) struct Receiver<'a> {
    pub role: Role,
    pub webtransport: bool,
    pub connect_protocol: bool,
    pub target_check: TargetCheck,
    pub max_push_id: Option<u64>,
    pub pushes: &'a mut Pushes,
    /// The maximum length of a HEADERS frame. A longer one is rejected before its payload is buffered.
    pub headers_frame_max: u64,
    pub decoder: &'a mut Decoder,
    pub events: &'a mut VecDeque<Event>,
    pub pending_input: &'a mut PendingInputBudget,
    pub useless_frames: &'a mut UselessFrameBudget,
    pub log: &'a mut QlogEntries,
}

#[derive(Debug)]
pub(super) struct RequestStream {
    id: u64,
    pub recv: Half,
    pub send: Half,
    /// The method of the request on this stream, which this side sent or received.
    pub method: Method,
    /// True if the final response to the request is not 2xx. A CONNECT then opens no tunnel, and its response is an
    /// ordinary one.
    pub is_refused: bool,
    /// True if the server opened the stream, which only WebTransport allows.
    webtransport_only: bool,
    /// True for a push stream, on which PUSH_PROMISE and WebTransport are not allowed.
    is_push: bool,
    /// True if the host has got an event about this stream. Then it also gets an event for the stream's end.
    pub announced: bool,
    /// The priority from a PRIORITY_UPDATE that arrived before the request was reported.
    pub priority: Option<Priority>,
    fin: bool,
    /// True while the first frame of the stream is being received.
    first: bool,
    header: HeaderBuffer,
    frame: Frame,
    /// The bytes of an incomplete HEADERS payload; at most `headers_frame_max`.
    payload: BytesMut,
    blocked: Option<Box<Blocked>>,
    content_expected: Option<u64>,
    content_received: u64,
}

/// The progress of one direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// The message has no header section yet, or only header sections of interim responses.
    Head,
    Body,
    Trailers,
    /// The direction has ended, or was reset or abandoned.
    Done,
}

/// The part of a frame to which the next received byte belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frame {
    Header,
    Data {
        remaining: u64,
    },
    Headers {
        length: usize,
    },
    /// The payload of PUSH_PROMISE: a push ID and a field section.
    Promise {
        length: usize,
    },
    /// The payload of an unknown frame. It is discarded (RFC 9114 section 9).
    Skip {
        remaining: u64,
    },
    /// All further bytes of the stream belong to a WebTransport session.
    WebTransport {
        session_id: u64,
    },
}

/// A field section that waits for insertions into the dynamic table, and the data that arrived after it.
#[derive(Debug)]
struct Blocked {
    section: Bytes,
    /// The push ID if the field section is that of a promise; `None` if it belongs to the message.
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
            is_refused: false,
            webtransport_only: false,
            is_push: false,
            announced: false,
            priority: None,
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

    /// Client: a bidirectional stream that the server opened.
    pub fn new_server_initiated(id: u64) -> Self {
        Self {
            webtransport_only: true,
            send: Half::Done,
            ..Self::new(id)
        }
    }

    /// Server: a push stream, on which nothing is received.
    pub fn new_push_sent(id: u64, method: Method) -> Self {
        Self {
            recv: Half::Done,
            method,
            is_push: true,
            ..Self::new(id)
        }
    }

    /// Client: a push stream of the server.
    pub fn new_push_received(id: u64) -> Self {
        Self {
            send: Half::Done,
            is_push: true,
            ..Self::new(id)
        }
    }

    /// A WebTransport stream that this side opened. The peer's direction begins without a header.
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

    /// True if the next field section on the stream is the header section of a request to this side.
    pub fn is_request(&self, role: Role) -> bool {
        role == Role::Server && self.recv == Half::Head
    }

    pub fn is_webtransport(&self) -> bool {
        matches!(self.frame, Frame::WebTransport { .. })
    }

    pub fn fin_received(&self) -> bool {
        self.fin
    }

    /// The required insert count of the field section that waits for QPACK; `None` if none waits.
    pub fn blocked_on(&self) -> Option<u64> {
        self.blocked
            .as_ref()
            .map(|blocked| blocked.required_insert_count)
    }

    /// Handles received data of the stream.
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
                blocked.rest.extend_from_slice(&data);
                cx.pending_input.add_blocked(data.len())
            }
        }
    }

    /// The dynamic table has got the missing entries. Decodes the field section that waited for them, and handles the
    /// data behind it.
    pub fn resume(&mut self, cx: &mut Receiver<'_>) -> Result<(), RemoteError> {
        let Some(blocked) = self.blocked.take() else {
            return Ok(());
        };
        cx.pending_input.remove_blocked(blocked.size());
        self.read_section(cx, blocked.section, blocked.promise, blocked.rest.freeze())
    }

    /// Discards buffered input; nothing more is received on the stream.
    pub fn stop_receiving(&mut self, pending_input: &mut PendingInputBudget) {
        self.recv = Half::Done;
        pending_input.remove_unfinished(std::mem::take(&mut self.payload).len());
        if let Some(blocked) = self.blocked.take() {
            pending_input.remove_blocked(blocked.size());
        }
    }

    /// Handles a complete field section, which may have waited for QPACK, and then the data after it.
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

    /// Reads frames until the data ends. The last event is kept back in `last`, because only the data after it shows if
    /// it is the stream's last event, and if the message is complete.
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
                    let collected = self.collect_payload(cx.pending_input, &mut data, length)?;
                    let Some(mut section) = collected else {
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
                // The event of a push promise cannot carry `fin`, because a promise is not part of the message. So the
                // event before the promise is emitted without it.
                self.emit(cx, last.take());
            }
            last = Some(self.end(cx.role, last)?);
        }
        self.emit(cx, last);
        Ok(())
    }

    /// Splits content off the front of `data`, without copying it.
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

    /// Returns the whole payload of a frame once it has arrived. If the payload arrived in pieces, these are copied
    /// together, because each piece would keep its whole receive buffer in memory. The buffer grows with the received
    /// bytes, not to the announced length at once.
    fn collect_payload(
        &mut self,
        pending_input: &mut PendingInputBudget,
        data: &mut Bytes,
        length: usize,
    ) -> Result<Option<Bytes>, ConnectionError> {
        if self.payload.is_empty() && data.len() >= length {
            return Ok(Some(data.split_to(length)));
        }
        let missing = length - self.payload.len();
        let piece = data.split_to(missing.min(data.len()));
        if piece.len() < missing {
            self.payload.extend_from_slice(&piece);
            pending_input.add_unfinished(piece.len())?;
            return Ok(None);
        }
        pending_input.remove_unfinished(self.payload.len());
        self.payload.extend_from_slice(&piece);
        Ok(Some(std::mem::take(&mut self.payload).freeze()))
    }

    fn block(
        &mut self,
        cx: &mut Receiver<'_>,
        section: Bytes,
        promise: Option<u64>,
        required_insert_count: u64,
        rest: Bytes,
    ) -> Result<(), RemoteError> {
        // The section is copied, so that a few bytes do not keep a large receive buffer alive.
        let blocked = Blocked {
            section: Bytes::copy_from_slice(&section),
            promise,
            required_insert_count,
            rest: BytesMut::from(&rest[..]),
        };
        let size = blocked.size();
        self.blocked = Some(Box::new(blocked));
        cx.pending_input.add_blocked(size)
    }

    fn emit(&mut self, cx: &mut Receiver<'_>, event: Option<Event>) {
        if let Some(event) = event {
            self.announced = true;
            cx.useless_frames.allow_for(&event);
            cx.events.push_back(event);
        }
    }
}

/// Checks that a session identifier is that of a client-initiated bidirectional stream, the session's CONNECT stream
/// (draft-ietf-webtrans-http3 section 4).
pub(super) fn check_session_id(session_id: u64) -> Result<(), ConnectionError> {
    if stream_id::is_client_bidi(session_id) {
        Ok(())
    } else {
        Err(ConnectionError::new(
            Code::H3_ID_ERROR,
            "a WebTransport session ID is not a request stream",
        ))
    }
}

fn connection_error(code: Code, reason: &'static str) -> RemoteError {
    ConnectionError::new(code, reason).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_without_buffered_data_is_small() {
        assert!(size_of::<RequestStream>() <= 200);
    }
}
