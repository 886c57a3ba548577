//! One bidirectional stream: a request and its response, or a WebTransport stream that begins with 0x41. Also a push
//! stream, which is one half of a request stream.
//!
//! | file | content |
//! | --- | --- |
//! | `frame_order` | the allowed order of frames on the stream |
//! | `message` | the message in the frames |
//!
//! The receiving half is here: it parses frames, and field sections wait for QPACK. Of the sending half only the
//! state is here; `send.rs` uses it. The caller decides about the consequences of an error for the stream or the
//! connection.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::{
    error::{Code, ConnectionError, RemoteError},
    event::{Event, Role},
    field_validation::{Method, TargetCheck},
    frame::{self, HeaderBuffer},
    qlog_entries::QlogEntries,
    pending_input_budget::PendingInputBudget,
    priority::Priority,
    push::Pushes,
    qpack::{Decoded, Decoder},
    useless_frame_budget::UselessFrameBudget,
};

mod frame_order;
mod message;

use frame_order::take_push_id;

/// The parts of the connection that receiving needs.
pub(super) struct Receiver<'a> {
    pub role: Role,
    pub webtransport: bool,
    pub connect_protocol: bool,
    pub target_check: TargetCheck,
    pub max_push_id: Option<u64>,
    pub pushes: &'a mut Pushes,
    /// A longer HEADERS frame is rejected before any of it is buffered.
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
    /// The method of the request on this stream, in either direction.
    pub method: Method,
    /// The final response to the request is not 2xx. A CONNECT then makes no tunnel, and its response is an
    /// ordinary one.
    pub is_refused: bool,
    /// Only WebTransport may use the stream, because the server opened it.
    webtransport_only: bool,
    /// A push stream: promises and WebTransport are not allowed on it.
    is_push: bool,
    /// An event was emitted, so an end event must follow.
    pub announced: bool,
    /// The priority from a PRIORITY_UPDATE before the request was announced.
    pub priority: Option<Priority>,
    fin: bool,
    /// The current frame is the first.
    first: bool,
    header: HeaderBuffer,
    frame: Frame,
    /// The received part of a HEADERS payload; at most `headers_frame_max`.
    payload: BytesMut,
    blocked: Option<Box<Blocked>>,
    content_expected: Option<u64>,
    content_received: u64,
}

/// The state of one direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// No header section yet, except interim ones.
    Head,
    Body,
    Trailers,
    /// Finished, reset or abandoned.
    Done,
}

/// The position of the next byte in the sequence of frames.
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
    /// The rest of the stream belongs to a WebTransport session.
    WebTransport {
        session_id: u64,
    },
}

/// A field section that waits for the dynamic table, and the data after it.
#[derive(Debug)]
struct Blocked {
    section: Bytes,
    /// The push that the section promises; `None` for a section of the message.
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

    /// True if a request's header section to us is expected next.
    pub fn is_request(&self, role: Role) -> bool {
        role == Role::Server && self.recv == Half::Head
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

    /// Handles data of the stream.
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

    /// Continues when the dynamic table has the entries of the blocked field section.
    pub fn resume(&mut self, cx: &mut Receiver<'_>) -> Result<(), RemoteError> {
        let Some(blocked) = self.blocked.take() else {
            return Ok(());
        };
        cx.pending_input.remove_blocked(blocked.size());
        self.read_section(cx, blocked.section, blocked.promise, blocked.rest.freeze())
    }

    /// Stops receiving.
    pub fn stop_receiving(&mut self, pending_input: &mut PendingInputBudget) {
        self.recv = Half::Done;
        pending_input.remove_unfinished(std::mem::take(&mut self.payload).len());
        if let Some(blocked) = self.blocked.take() {
            pending_input.remove_blocked(blocked.size());
        }
    }

    /// Reads a complete field section, at once or after waiting, and the data after it.
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

    /// Reads frames until the data ends. The last event is kept in `last`, because only after it is known if it
    /// ends the stream, and if the message is complete.
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
                // A promise's event is not part of the message and cannot carry its end.
                self.emit(cx, last.take());
            }
            last = Some(self.end(cx.role, last)?);
        }
        self.emit(cx, last);
        Ok(())
    }

    /// Takes the content out of `data`, without copying.
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

    /// The whole payload once it has arrived. It is copied only if it came in pieces, because a piece would pin its
    /// whole receive buffer. Memory grows with the received bytes, not with the announced length.
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
        // Copied, so that a small section does not hold a large receive buffer.
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

/// A session is identified by its CONNECT stream (draft-ietf-webtrans-http3 section 4).
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
