//! Splits the peer's control stream (RFC 9114 section 6.2.1) into frames, and checks their order and length.
//!
//! Not here: the reaction to the frames (`control_stream`).

use bytes::{Buf, Bytes, BytesMut};
use uringcore_wire::varint;

use super::error::{Code, ConnectionError};
use super::event::Role;
use super::frame_header::HeaderBuffer;
use super::frame_type;
use super::priority::Priority;
use super::useless_frame_budget::UselessFrameBudget;

/// A frame of the control stream whose type is known.
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

/// The response to which a PRIORITY_UPDATE frame applies: that of a request stream or of a push (RFC 9218 section
/// 7.2).
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
    /// The type of the current frame, and the number of bytes that its payload still lacks.
    frame: Option<(u64, usize)>,
    /// The received bytes of a known frame's payload; at most [`LENGTH_MAX`].
    payload: BytesMut,
    /// The number of bytes of an unknown frame's payload that are still to be discarded.
    skip: u64,
}

impl ControlStream {
    /// Reads the next known frame from `data`, and advances `data`. `None` when `data` is empty.
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

    /// Checks a frame's type and length as soon as its header has arrived, so that no payload of a forbidden frame is
    /// buffered.
    fn begin_frame(
        &mut self,
        role: Role,
        frame_type: u64,
        length: u64,
    ) -> Result<(), ConnectionError> {
        if !self.settings_received && frame_type != frame_type::SETTINGS {
            // RFC 9114 section 6.2.1: SETTINGS must be the first frame on the control stream. Not even a frame of an
            // unknown type may come before it (section 9).
            return Err(ConnectionError::new(
                Code::H3_MISSING_SETTINGS,
                "the control stream does not begin with SETTINGS",
            ));
        }
        let length_max = match frame_type {
            frame_type::SETTINGS if self.settings_received => {
                // RFC 9114 section 7.2.4: SETTINGS is sent only once.
                return Err(unexpected("a second SETTINGS frame"));
            }
            frame_type::SETTINGS => {
                self.settings_received = true;
                LENGTH_MAX
            }
            frame_type::MAX_PUSH_ID if role == Role::Client => {
                // RFC 9114 section 7.2.7: only a client sends MAX_PUSH_ID.
                return Err(unexpected("a server sent MAX_PUSH_ID"));
            }
            frame_type::PRIORITY_UPDATE_REQUEST | frame_type::PRIORITY_UPDATE_PUSH => {
                if role == Role::Client {
                    // RFC 9218 section 7.2: only a client sends PRIORITY_UPDATE.
                    return Err(unexpected("a server sent PRIORITY_UPDATE"));
                }
                LENGTH_MAX
            }
            frame_type::GOAWAY | frame_type::MAX_PUSH_ID | frame_type::CANCEL_PUSH => {
                varint::SIZE_MAX as u64
            }
            frame_type::DATA | frame_type::HEADERS | frame_type::PUSH_PROMISE => {
                // RFC 9114 sections 7.2.1, 7.2.2 and 7.2.5: these frames belong on request streams.
                return Err(unexpected(
                    "a frame of request streams on the control stream",
                ));
            }
            reserved if frame_type::is_reserved(reserved) => {
                // RFC 9114 section 7.2.8: types of HTTP/2 frames are reserved.
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
    // The payload of the other frames is a single integer (RFC 9114 sections 7.1, 7.2.3, 7.2.6 and 7.2.7).
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

/// The maximum payload of SETTINGS and PRIORITY_UPDATE in bytes. Dozens of settings fit, GREASE included.
const LENGTH_MAX: u64 = 1024;
