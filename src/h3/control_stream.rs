//! Handles the frames of the peer's control stream: SETTINGS, GOAWAY, PRIORITY_UPDATE and those of pushes.
//!
//! Not here: splitting the stream into frames (`control_frame_parser`).

use super::connection::Connection;
use super::control_frame_parser::{ControlFrame, Prioritized};
use super::error::{Code, ConnectionError};
use super::event::Event;
use super::priority::Priority;
use super::quic_sink::Sink;
use super::settings::{PeerSettings, id as setting};
use super::stream_id;

impl Connection {
    pub(super) fn handle_control_frame(
        &mut self,
        out: &mut dyn Sink,
        frame: ControlFrame,
    ) -> Result<(), ConnectionError> {
        match frame {
            ControlFrame::Settings(payload) => self.handle_settings(out, &payload),
            ControlFrame::GoAway(id) => self.handle_goaway(id),
            ControlFrame::MaxPushId(id) => self.pushes.raise_max(id),
            ControlFrame::CancelPush(id) => self.handle_cancel_push(out, id),
            ControlFrame::PriorityUpdate { element, priority } => match element {
                Prioritized::Request(id) => self.prioritize_request(id, priority),
                Prioritized::Push(id) => self.check_prioritized_push(id),
            },
        }
    }

    /// Handles a PRIORITY_UPDATE for a request stream, which may not have begun yet, or may have ended (RFC 9218
    /// section 7.2).
    fn prioritize_request(
        &mut self,
        stream_id: u64,
        priority: Priority,
    ) -> Result<(), ConnectionError> {
        if !stream_id::is_client_bidi(stream_id) || stream_id >= self.request_ids.end() {
            return Err(ConnectionError::new(
                Code::H3_ID_ERROR,
                "PRIORITY_UPDATE for a stream that is not a request stream or is not allowed yet",
            ));
        }
        if self.request_ids.is_unused(stream_id) {
            self.early_priorities.keep(stream_id, priority);
            return Ok(());
        }
        match self.requests.get_mut(&stream_id) {
            Some(stream) if stream.announced => {
                self.events.push_back(Event::PriorityUpdate {
                    stream_id,
                    priority,
                });
            }
            Some(stream) => stream.priority = Some(priority),
            None => {}
        }
        Ok(())
    }

    /// Checks a PRIORITY_UPDATE for a push, which must have been promised (RFC 9218 section 7.2). The priority has no
    /// effect.
    fn check_prioritized_push(&self, push_id: u64) -> Result<(), ConnectionError> {
        match self.pushes.is_promised(push_id) {
            true => Ok(()),
            false => Err(ConnectionError::new(
                Code::H3_ID_ERROR,
                "PRIORITY_UPDATE for a push that was not promised",
            )),
        }
    }

    fn handle_settings(
        &mut self,
        out: &mut dyn Sink,
        payload: &[u8],
    ) -> Result<(), ConnectionError> {
        let settings = PeerSettings::parse(payload)?;
        if !self.settings.host_checks_settings {
            self.peer.check_settings(&settings)?;
        }
        self.encoder.handle_settings(
            settings.get(setting::QPACK_MAX_TABLE_CAPACITY).unwrap_or(0),
            settings.get(setting::QPACK_BLOCKED_STREAMS).unwrap_or(0),
        );
        self.flush_encoder(out);
        self.peer.set_settings(settings);
        self.events.push_back(Event::SettingsReceived);
        Ok(())
    }

    /// Handles the peer's GOAWAY (RFC 9114 section 5.2).
    fn handle_goaway(&mut self, id: u64) -> Result<(), ConnectionError> {
        self.goaway.receive(id)?;
        self.events.push_back(Event::GoAway { id });
        Ok(())
    }
}
