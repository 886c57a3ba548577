//! Unidirectional streams of the peer (RFC 9114 section 6.2): their types, and the control stream's frames.
//!
//! Not here: the content of QPACK streams (`qpack`), and the rules of critical streams (`control_stream.rs`).

use bytes::{Buf, Bytes, BytesMut};
use uringcore_wire::varint;

use super::error::{Code, ConnectionError};
use super::event::Role;
use super::frame::{HeaderBuffer, frame_type, stream_type};
use super::priority::Priority;
use super::useless_frame_budget::UselessFrameBudget;

/// A unidirectional stream. Its state is small and lasts until the peer ends it; QUIC's limit on the peer's streams
/// bounds their number.
#[derive(Debug)]
pub(super) struct UnidirectionalStream {
    pub kind: UnidirectionalKind,
    pub header: HeaderBuffer,
}

#[derive(Debug)]
pub(super) enum UnidirectionalKind {
    /// The type is incomplete.
    Unknown,
    Control(ControlStream),
    QpackEncoder,
    QpackDecoder,
    /// 0x01; the push ID follows.
    Push,
    /// 0x54, and the session's identifier once it has arrived.
    WebTransport {
        session_id: Option<u64>,
    },
    /// An unknown type: its data is discarded (RFC 9114 section 6.2).
    Ignored,
}

impl UnidirectionalStream {
    pub fn new() -> Self {
        Self {
            kind: UnidirectionalKind::Unknown,
            header: HeaderBuffer::default(),
        }
    }

    /// The type of the stream, read from its first bytes.
    pub fn kind_for(
        stream_type: u64,
        role: Role,
        webtransport: bool,
    ) -> Result<UnidirectionalKind, ConnectionError> {
        Ok(match stream_type {
            stream_type::CONTROL => UnidirectionalKind::Control(ControlStream::default()),
            stream_type::QPACK_ENCODER => UnidirectionalKind::QpackEncoder,
            stream_type::QPACK_DECODER => UnidirectionalKind::QpackDecoder,
            stream_type::PUSH => {
                return Err(match role {
                    // RFC 9114 section 6.2.2.
                    Role::Server => ConnectionError::new(
                        Code::H3_STREAM_CREATION_ERROR,
                        "a client opened a push stream",
                    ),
                    Role::Client => return Ok(UnidirectionalKind::Push),
                });
            }
            stream_type::WEBTRANSPORT if webtransport => UnidirectionalKind::WebTransport { session_id: None },
            _ => UnidirectionalKind::Ignored,
        })
    }
}

/// A known frame of the control stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ControlFrame {
    Settings(Bytes),
    GoAway(u64),
    MaxPushId(u64),
    CancelPush(u64),
    PriorityUpdate {
        element: Prioritized,
        priority: Priority,
    },
}

/// The target of a PRIORITY_UPDATE frame (RFC 9218 section 7.2).
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Prioritized {
    Request(u64),
    Push(u64),
}

/// Splits the peer's control stream (RFC 9114 section 6.2.1) into frames.
#[derive(Debug, Default)]
pub(super) struct ControlStream {
    settings_received: bool,
    header: HeaderBuffer,
    /// The current frame: its type and the missing bytes of its payload.
    frame: Option<(u64, usize)>,
    /// The payload of a known frame; at most [`LENGTH_MAX`].
    payload: BytesMut,
    /// The rest of an unknown frame's payload, to be discarded.
    skip: u64,
}

impl ControlStream {
    /// The next frame in `data`, which is advanced; `None` once it is empty.
    pub fn next_frame(
        &mut self,
        role: Role,
        useless_frames: &mut UselessFrameBudget,
        data: &mut Bytes,
    ) -> Result<Option<ControlFrame>, ConnectionError> {
        loop {
            if let Some((frame_type, missing)) = self.frame {
                let piece = data.split_to(missing.min(data.len()));
                self.payload.extend_from_slice(&piece);
                if piece.len() < missing {
                    self.frame = Some((frame_type, missing - piece.len()));
                    return Ok(None);
                }
                self.frame = None;
                let payload = std::mem::take(&mut self.payload).freeze();
                return parse(frame_type, payload).map(Some);
            }
            if self.skip > 0 {
                let skipped = self.skip.min(data.len() as u64);
                data.advance(skipped as usize);
                self.skip -= skipped;
            }
            let Some((frame_type, length)) = self.header.read_pair(data) else {
                return Ok(None);
            };
            self.begin_frame(role, frame_type, length)?;
            if frame_type != frame_type::SETTINGS {
                useless_frames.take(1)?;
            }
        }
    }

    /// Checks the frame's type and length as soon as they are known, so that nothing of a forbidden frame is
    /// buffered.
    fn begin_frame(
        &mut self,
        role: Role,
        frame_type: u64,
        length: u64,
    ) -> Result<(), ConnectionError> {
        if !self.settings_received && frame_type != frame_type::SETTINGS {
            // RFC 9114 section 6.2.1; an unknown frame does not count either (section 9).
            return Err(ConnectionError::new(
                Code::H3_MISSING_SETTINGS,
                "the control stream does not begin with SETTINGS",
            ));
        }
        let length_max = match frame_type {
            frame_type::SETTINGS if self.settings_received => {
                // RFC 9114 section 7.2.4.
                return Err(unexpected("a second SETTINGS frame"));
            }
            frame_type::SETTINGS => {
                self.settings_received = true;
                LENGTH_MAX
            }
            frame_type::MAX_PUSH_ID if role == Role::Client => {
                // RFC 9114 section 7.2.7.
                return Err(unexpected("a server sent MAX_PUSH_ID"));
            }
            frame_type::PRIORITY_UPDATE_REQUEST | frame_type::PRIORITY_UPDATE_PUSH => {
                if role == Role::Client {
                    // RFC 9218 section 7.2.
                    return Err(unexpected("a server sent PRIORITY_UPDATE"));
                }
                LENGTH_MAX
            }
            frame_type::GOAWAY | frame_type::MAX_PUSH_ID | frame_type::CANCEL_PUSH => {
                varint::SIZE_MAX as u64
            }
            frame_type::DATA | frame_type::HEADERS | frame_type::PUSH_PROMISE => {
                // RFC 9114 sections 7.2.1, 7.2.2 and 7.2.5.
                return Err(unexpected(
                    "a frame of request streams on the control stream",
                ));
            }
            reserved if frame_type::is_reserved(reserved) => {
                // RFC 9114 section 7.2.8.
                return Err(unexpected("reserved frame type on the control stream"));
            }
            _ => {
                self.skip = length;
                return Ok(());
            }
        };
        if length > length_max {
            return Err(match length_max {
                LENGTH_MAX => ConnectionError::new(
                    Code::H3_EXCESSIVE_LOAD,
                    "SETTINGS or PRIORITY_UPDATE frame too large",
                ),
                _ => trailing(),
            });
        }
        self.frame = Some((frame_type, length as usize));
        Ok(())
    }
}

fn parse(frame_type: u64, payload: Bytes) -> Result<ControlFrame, ConnectionError> {
    if frame_type == frame_type::SETTINGS {
        return Ok(ControlFrame::Settings(payload));
    }
    let (id, used) = varint::get(&payload).ok_or_else(|| {
        ConnectionError::new(Code::H3_FRAME_ERROR, "the frame ends inside its identifier")
    })?;
    let element = match frame_type {
        frame_type::PRIORITY_UPDATE_REQUEST => Some(Prioritized::Request(id)),
        frame_type::PRIORITY_UPDATE_PUSH => Some(Prioritized::Push(id)),
        _ => None,
    };
    if let Some(element) = element {
        let priority = Priority::parse(&payload[used..]);
        return Ok(ControlFrame::PriorityUpdate { element, priority });
    }
    // The other frames have one integer and nothing else (RFC 9114 sections 7.1, 7.2.3, 7.2.6 and 7.2.7).
    if used != payload.len() {
        return Err(trailing());
    }
    Ok(match frame_type {
        frame_type::GOAWAY => ControlFrame::GoAway(id),
        frame_type::MAX_PUSH_ID => ControlFrame::MaxPushId(id),
        _ => ControlFrame::CancelPush(id),
    })
}

fn trailing() -> ConnectionError {
    ConnectionError::new(
        Code::H3_FRAME_ERROR,
        "the frame has more than its identifier",
    )
}

fn unexpected(reason: &'static str) -> ConnectionError {
    ConnectionError::new(Code::H3_FRAME_UNEXPECTED, reason)
}

/// The limit for SETTINGS and PRIORITY_UPDATE. Dozens of settings fit, GREASE included; no peer needs more.
const LENGTH_MAX: u64 = 1024;
