//! Handles the frames of the peer's control stream (SETTINGS, GOAWAY, PRIORITY_UPDATE), and its other unidirectional
//! streams.
//!
//! Not here: splitting these streams into frames (`unidirectional_stream.rs`).

use bytes::Bytes;

use super::connection::Connection;
use super::critical_streams::{self, CriticalStream};
use super::error::{Code, ConnectionError};
use super::event::{Event, Role};
use super::priority::Priority;
use super::quic_sink::Sink;
use super::request::check_session_id;
use super::settings::{PeerSettings, id as setting};
use super::stream_id;
use super::unidirectional_stream::{
    ControlFrame, Prioritized, UnidirectionalKind, UnidirectionalStream,
};

impl Connection {
    pub(super) fn receive_uni(
        &mut self,
        out: &mut dyn Sink,
        stream_id: u64,
        mut data: Bytes,
        fin: bool,
    ) -> Result<(), ConnectionError> {
        if stream_id::is_server_initiated(stream_id) == (self.role == Role::Server) {
            // The peer cannot send on a unidirectional stream of this side.
            return Ok(());
        }
        let mut stream = self
            .unidirectional
            .remove(&stream_id)
            .unwrap_or_else(UnidirectionalStream::new);
        if matches!(stream.kind, UnidirectionalKind::Unknown)
            && let Some(stream_type) = stream.header.read_one(&mut data)
        {
            let webtransport = self.settings.webtransport;
            stream.kind = UnidirectionalStream::kind_for(stream_type, self.role, webtransport)?;
            self.claim_critical(stream_id, &stream.kind)?;
            // The qlog entry of a push stream contains the push ID, so it is made when that has arrived.
            if !matches!(stream.kind, UnidirectionalKind::Push) {
                self.log.stream_type(stream_id, stream_type, None);
            }
            if matches!(stream.kind, UnidirectionalKind::Ignored) {
                self.useless_frames.take(1)?;
            }
        }
        match &mut stream.kind {
            UnidirectionalKind::Unknown | UnidirectionalKind::Ignored => {}
            UnidirectionalKind::Push => {
                return self.receive_push(out, stream_id, stream, data, fin);
            }
            UnidirectionalKind::Control(control) => {
                while let Some(frame) =
                    control.next_frame(self.role, &mut self.useless_frames, &mut data)?
                {
                    self.handle_control_frame(out, frame)?;
                }
            }
            UnidirectionalKind::QpackEncoder => {
                let instructions = self.decoder.handle_encoder_stream(&data)?;
                self.useless_frames.take(instructions)?;
                self.resume_blocked(out)?;
            }
            UnidirectionalKind::QpackDecoder => {
                let cancellations = self.encoder.handle_decoder_stream(&data)?;
                self.useless_frames.take(cancellations)?;
            }
            UnidirectionalKind::WebTransport { session_id } => {
                if session_id.is_none()
                    && let Some(id) = stream.header.read_one(&mut data)
                {
                    check_session_id(id)?;
                    *session_id = Some(id);
                }
                if let Some(session_id) = *session_id
                    && (fin || !data.is_empty())
                {
                    let event = Event::WebTransportData {
                        session_id,
                        stream_id,
                        data,
                        fin,
                    };
                    self.useless_frames.allow_for(&event);
                    self.events.push_back(event);
                }
            }
        }
        if fin {
            if self.critical.is_peers(stream_id) {
                return Err(critical_streams::closed());
            }
        } else {
            self.unidirectional.insert(stream_id, stream);
        }
        Ok(())
    }

    /// Records a critical stream of the peer. An error if the peer has opened one of this type before.
    fn claim_critical(
        &mut self,
        stream_id: u64,
        kind: &UnidirectionalKind,
    ) -> Result<(), ConnectionError> {
        let stream = match kind {
            UnidirectionalKind::Control(_) => CriticalStream::Control,
            UnidirectionalKind::QpackEncoder => CriticalStream::Encoder,
            UnidirectionalKind::QpackDecoder => CriticalStream::Decoder,
            _ => return Ok(()),
        };
        self.critical.claim(stream, stream_id)
    }

    fn handle_control_frame(
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
