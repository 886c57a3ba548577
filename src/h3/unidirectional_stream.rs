//! Receives the peer's unidirectional streams (RFC 9114 section 6.2): reads the stream type, and passes the data to the
//! part that handles the type.
//!
//! Not here: the frames of the control stream (`control_frame_parser`) and the reaction to them (`control_stream`), and
//! the content of QPACK streams (`qpack`).

use bytes::Bytes;

use super::connection::Connection;
use super::control_frame_parser::ControlStream;
use super::critical_streams::{self, CriticalStream};
use super::error::{Code, ConnectionError};
use super::event::{Event, Role};
use super::frame_header::HeaderBuffer;
use super::quic_sink::Sink;
use super::request::check_session_id;
use super::stream_id;
use super::stream_type;

/// A unidirectional stream of the peer. Its state is small and exists until the peer ends the stream; QUIC's limit of
/// streams bounds the number of states.
#[derive(Debug)]
pub(super) struct UnidirectionalStream {
    pub kind: UnidirectionalKind,
    pub header: HeaderBuffer,
}

#[derive(Debug)]
pub(super) enum UnidirectionalKind {
    /// The stream type is incomplete.
    Unknown,
    Control(ControlStream),
    QpackEncoder,
    QpackDecoder,
    /// The stream has type 0x01, a push stream. The push ID comes next.
    Push,
    /// Type 0x54. `session_id` is `None` until the identifier after the type has arrived.
    WebTransport {
        session_id: Option<u64>,
    },
    /// An unknown type; the data of the stream is discarded (RFC 9114 section 6.2).
    Ignored,
}

impl UnidirectionalStream {
    pub fn new() -> Self {
        Self {
            kind: UnidirectionalKind::Unknown,
            header: HeaderBuffer::default(),
        }
    }

    /// The kind of a stream with this stream type.
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
                    // RFC 9114 section 6.2.2: only servers open push streams.
                    Role::Server => ConnectionError::new(
                        Code::H3_STREAM_CREATION_ERROR,
                        "a client opened a push stream",
                    ),
                    Role::Client => return Ok(UnidirectionalKind::Push),
                });
            }
            stream_type::WEBTRANSPORT if webtransport => {
                UnidirectionalKind::WebTransport { session_id: None }
            }
            _ => UnidirectionalKind::Ignored,
        })
    }
}

impl Connection {
    /// Receives data of a unidirectional stream, and its end.
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
}
