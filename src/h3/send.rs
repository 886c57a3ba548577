//! The commands: data that the host sends. Each checks first and changes nothing if it fails.

use bytes::{BufMut, Bytes, BytesMut};
use uringcore_wire::varint;

use super::connection::Connection;
use super::critical_streams::CriticalStream;
use super::error::{Code, LocalError};
use super::event::{Output, Role};
use super::field::{self, Method};
use super::frame::{self, FrameHeader, frame_type, stream_type};
use super::qpack::FIELD_OVERHEAD;
use super::request::{Half, RequestStream};
use super::settings::id as setting;

impl Connection {
    /// Sends a header section: a request, an interim or final response, or trailers, whichever is next on the stream.
    ///
    /// White space around the values of regular fields is not part of them (RFC 9110 section 5.5) and is removed.
    /// So is `content-length` in a response that cannot have content: an interim one, 204, and 2xx to CONNECT (RFC
    /// 9110 section 8.6).
    ///
    /// # Errors
    ///
    /// [`LocalError::InvalidField`] if the message would be malformed (RFC 9114 section 4.1.2),
    /// [`LocalError::FrameUnexpected`] if no header section may follow the sent frames,
    /// [`LocalError::FieldSectionTooLarge`] beyond the peer's SETTINGS_MAX_FIELD_SECTION_SIZE,
    /// [`LocalError::GoingAway`] for a new request after the peer's GOAWAY.
    pub fn send_headers<N, V>(
        &mut self,
        stream_id: u64,
        fields: &[(N, V)],
        fin: bool,
    ) -> Result<(), LocalError>
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        self.send_field_section(stream_id, field::trimmed(fields), fin)
    }

    fn send_field_section(
        &mut self,
        stream_id: u64,
        mut fields: Vec<(&[u8], &[u8])>,
        fin: bool,
    ) -> Result<(), LocalError> {
        self.check_open(stream_id)?;
        let known = self
            .requests
            .get(&stream_id)
            .map(|stream| (stream.send, stream.method));
        let next = match known {
            Some((Half::Head, method)) => self.check_head(&mut fields, method, fin)?,
            Some((Half::Body, method)) => {
                self.check_trailers(stream_id)?;
                field::validate_trailers(&fields).map_err(invalid_field)?;
                Next::plain(Half::Trailers, method)
            }
            Some((Half::Trailers | Half::Done, _)) => {
                return Err(LocalError::FrameUnexpected(
                    "HEADERS frame is not allowed in this state",
                ));
            }
            None => self.check_new_request(&mut fields)?,
        };
        self.check_field_section_size(&fields)?;
        let frame = self.encode_headers(stream_id, &fields);
        self.flush_encoder();
        self.log.sent(stream_id, &frame, None, &fields);
        self.outputs.push_back(Output::Write {
            stream_id,
            data: frame,
            fin,
        });
        let stream = self
            .requests
            .entry(stream_id)
            .or_insert_with(|| RequestStream::new(stream_id));
        stream.send = if fin { Half::Done } else { next.half };
        stream.method = next.method;
        stream.is_refused |= next.is_refused;
        self.remove_if_done(stream_id);
        Ok(())
    }

    /// Sends content. Empty content without `fin` sends nothing.
    ///
    /// # Errors
    ///
    /// [`LocalError::FrameUnexpected`] unless a header section was sent and the message has not ended.
    pub fn send_data(&mut self, stream_id: u64, data: Bytes, fin: bool) -> Result<(), LocalError> {
        let header = self.send_data_header(stream_id, data.len() as u64, fin)?;
        let Some(header) = header else {
            if fin {
                self.outputs.push_back(Output::Write {
                    stream_id,
                    data: Bytes::new(),
                    fin,
                });
            }
            return Ok(());
        };
        if data.len() <= JOINED_CONTENT_MAX {
            let mut frame = BytesMut::with_capacity(header.len() + data.len());
            frame.put_slice(&header);
            frame.put_slice(&data);
            self.outputs.push_back(Output::Write {
                stream_id,
                data: frame.freeze(),
                fin,
            });
        } else {
            self.write(stream_id, Bytes::copy_from_slice(&header));
            self.outputs.push_back(Output::Write {
                stream_id,
                data,
                fin,
            });
        }
        Ok(())
    }

    /// Does the same as [`send_data`](Self::send_data), without writing: the host writes the returned header, if
    /// there is one, then `length` bytes of content, and FIN if `fin`. For hosts whose content is not in `Bytes`.
    pub fn send_data_header(
        &mut self,
        stream_id: u64,
        length: u64,
        fin: bool,
    ) -> Result<Option<FrameHeader>, LocalError> {
        self.check_open(stream_id)?;
        let stream = self
            .requests
            .get_mut(&stream_id)
            .filter(|stream| stream.send == Half::Body);
        let Some(stream) = stream else {
            return Err(LocalError::FrameUnexpected(
                "DATA frame is not allowed in this state",
            ));
        };
        if fin {
            stream.send = Half::Done;
            self.remove_if_done(stream_id);
        }
        if length == 0 && !self.settings.separate_writes {
            return Ok(None);
        }
        self.log.data(true, stream_id, length);
        Ok(Some(FrameHeader::new(frame_type::DATA, length)))
    }

    /// Sends an HTTP datagram of a request (RFC 9297 section 2.1).
    ///
    /// # Errors
    ///
    /// [`LocalError::DatagramsNotNegotiated`] unless both sides sent SETTINGS_H3_DATAGRAM.
    pub fn send_datagram(&mut self, stream_id: u64, data: &[u8]) -> Result<(), LocalError> {
        if self.closed {
            return Err(LocalError::Closed);
        }
        let prefix = Self::datagram_prefix(stream_id)?;
        if !self.are_datagrams_agreed() {
            return Err(LocalError::DatagramsNotNegotiated);
        }
        let mut datagram = BytesMut::with_capacity(prefix.len() + data.len());
        datagram.put_slice(&prefix);
        datagram.put_slice(data);
        self.outputs.push_back(Output::Datagram {
            data: datagram.freeze(),
        });
        Ok(())
    }

    /// True if both sides sent SETTINGS_H3_DATAGRAM (RFC 9297 section 2.1.1).
    pub fn are_datagrams_agreed(&self) -> bool {
        self.settings.h3_datagram && self.peer.is_enabled(setting::H3_DATAGRAM)
    }

    /// The prefix of an HTTP datagram of this request: the quarter stream ID.
    pub fn datagram_prefix(stream_id: u64) -> Result<Vec<u8>, LocalError> {
        check_request_stream(stream_id)?;
        let mut prefix = Vec::with_capacity(varint::SIZE_MAX);
        varint::put(&mut prefix, stream_id / 4);
        Ok(prefix)
    }

    /// Announces the end of the connection (RFC 9114 section 5.2): a server rejects request streams from `id` on;
    /// for a client `id` is a push ID without effect.
    ///
    /// # Errors
    ///
    /// [`LocalError::InvalidId`] if `id` is above that of an earlier GOAWAY, or is not a request stream.
    pub fn send_goaway(&mut self, id: u64) -> Result<(), LocalError> {
        if self.closed {
            return Err(LocalError::Closed);
        }
        self.goaway.send(id)?;
        let mut payload = Vec::with_capacity(varint::SIZE_MAX);
        varint::put(&mut payload, id);
        let control_id = self.critical.id(CriticalStream::Control);
        self.write(control_id, frame::frame(frame_type::GOAWAY, &[&payload]));
        Ok(())
    }

    /// The identifier with which [`send_goaway`](Self::send_goaway) lets all requests finish that have begun.
    pub fn next_goaway_id(&self) -> u64 {
        self.goaway.next_id(self.request_ids.next())
    }

    /// Abandons a request: resets our direction and stops the peer's. Does nothing if it has ended already.
    pub fn cancel_request(&mut self, stream_id: u64, code: u64) {
        if !self.closed {
            self.drop_request(stream_id, Code(code));
            self.flush_decoder();
        }
    }

    /// Stops reading a message that is being answered, and continues to send: a server that needs no more of a
    /// request uses H3_NO_ERROR (RFC 9114 section 4.1). Does nothing if all of it has arrived.
    pub fn stop_receiving(&mut self, stream_id: u64, code: u64) {
        if !self.closed {
            self.refuse_rest(stream_id, Code(code));
            self.flush_decoder();
        }
    }

    /// Begins a WebTransport stream of ours, on the QUIC stream `stream_id`, in the session of a CONNECT request.
    /// Data after the stream's header is sent directly on QUIC; the peer's data is reported as
    /// `Event::WebTransportData`.
    ///
    /// # Errors
    ///
    /// [`LocalError::InvalidStream`] if WebTransport is not enabled or the session is not a request stream.
    pub fn create_webtransport_stream(
        &mut self,
        session_id: u64,
        stream_id: u64,
    ) -> Result<(), LocalError> {
        if self.closed {
            return Err(LocalError::Closed);
        }
        if !self.settings.webtransport {
            return Err(LocalError::InvalidStream(
                "WebTransport is not enabled on this connection",
            ));
        }
        if !frame::is_client_bidi(session_id) {
            return Err(LocalError::InvalidStream(
                "a WebTransport session is a client-initiated bidirectional stream",
            ));
        }
        self.log
            .stream_type(stream_id, stream_type::WEBTRANSPORT, None);
        let mut header = Vec::with_capacity(2 * varint::SIZE_MAX);
        if frame::is_unidirectional(stream_id) {
            varint::put(&mut header, stream_type::WEBTRANSPORT);
        } else {
            varint::put(&mut header, frame_type::WEBTRANSPORT_STREAM);
            self.requests.insert(
                stream_id,
                RequestStream::new_webtransport(stream_id, session_id),
            );
        }
        varint::put(&mut header, session_id);
        self.write(stream_id, header.into());
        Ok(())
    }

    fn check_open(&self, stream_id: u64) -> Result<(), LocalError> {
        if self.closed {
            return Err(LocalError::Closed);
        }
        if self.role == Role::Server && self.requests.contains_key(&stream_id) {
            // A push stream of ours is allowed, too.
            return Ok(());
        }
        check_request_stream(stream_id)
    }

    /// Checks the first header section of our side of a stream, and returns the state after it.
    fn check_head(
        &self,
        fields: &mut Vec<(&[u8], &[u8])>,
        method: Method,
        fin: bool,
    ) -> Result<Next, LocalError> {
        if self.role == Role::Client {
            let target_check = self.settings.target_check;
            let head = field::validate_request_to(fields, target_check).map_err(invalid_field)?;
            return Ok(Next::plain(Half::Body, head.method));
        }
        let head = field::validate_response(fields).map_err(invalid_field)?;
        if head.content_length.is_some() && head.is_without_content(method) {
            fields.retain(|(name, _)| *name != b"content-length");
        }
        if !head.is_interim() {
            return Ok(Next {
                half: Half::Body,
                method,
                is_refused: head.is_refusal(),
            });
        }
        if fin {
            // RFC 9114 section 4.1.
            return Err(LocalError::FrameUnexpected(
                "an interim response cannot end the stream",
            ));
        }
        Ok(Next::plain(Half::Head, method))
    }

    /// RFC 9114 section 4.4. The response to a rejected CONNECT is an ordinary one, which may have trailers. The
    /// request never has any: before the response a server may treat the stream as a tunnel, and some servers do so
    /// after it too.
    fn check_trailers(&self, stream_id: u64) -> Result<(), LocalError> {
        let may_follow = self
            .requests
            .get(&stream_id)
            .is_some_and(|stream| match self.role {
                Role::Client => stream.method != Method::Connect,
                Role::Server => !stream.is_tunnel(),
            });
        match may_follow {
            true => Ok(()),
            false => Err(LocalError::FrameUnexpected(
                "a CONNECT stream has no trailers",
            )),
        }
    }

    fn check_new_request(&self, fields: &mut Vec<(&[u8], &[u8])>) -> Result<Next, LocalError> {
        if self.role == Role::Server {
            return Err(LocalError::FrameUnexpected(
                "there is no request to respond to on this stream",
            ));
        }
        if self.goaway.is_received() {
            // RFC 9114 section 5.2: for any stream ID. A server that is about to stop announces the highest.
            return Err(LocalError::GoingAway);
        }
        self.check_head(fields, Method::Other, false)
    }

    /// RFC 9114 section 4.2.2.
    pub(super) fn check_field_section_size(
        &self,
        fields: &[(&[u8], &[u8])],
    ) -> Result<(), LocalError> {
        let max = self.peer.setting(setting::MAX_FIELD_SECTION_SIZE);
        let Some(max) = max else { return Ok(()) };
        let size: usize = fields
            .iter()
            .map(|(name, value)| name.len() + value.len() + FIELD_OVERHEAD)
            .sum();
        if size as u64 > max {
            return Err(LocalError::FieldSectionTooLarge {
                size: size as u64,
                max,
            });
        }
        Ok(())
    }

    fn encode_headers(&mut self, stream_id: u64, fields: &[(&[u8], &[u8])]) -> Bytes {
        let (prefix, section) = self.encode_section(stream_id, fields);
        frame::frame(frame_type::HEADERS, &[&prefix, section])
    }

    /// A field section in QPACK: its prefix and its lines.
    pub(super) fn encode_section(
        &mut self,
        stream_id: u64,
        fields: &[(&[u8], &[u8])],
    ) -> (Vec<u8>, &[u8]) {
        self.section.clear();
        let mut section = self.encoder.section(stream_id, &mut self.section);
        for (name, value) in fields {
            section.field(name, value);
        }
        let mut prefix = Vec::with_capacity(2);
        section.finish(&mut prefix);
        (prefix, &self.section)
    }
}

/// The state of a stream after a header section.
struct Next {
    half: Half,
    method: Method,
    is_refused: bool,
}

impl Next {
    fn plain(half: Half, method: Method) -> Self {
        Self {
            half,
            method,
            is_refused: false,
        }
    }
}

fn check_request_stream(stream_id: u64) -> Result<(), LocalError> {
    if frame::is_client_bidi(stream_id) {
        Ok(())
    } else {
        Err(LocalError::InvalidStream(
            "HTTP messages and datagrams belong to client-initiated bidirectional streams",
        ))
    }
}

fn invalid_field(reason: field::Reason) -> LocalError {
    LocalError::InvalidField(reason.into_owned())
}

/// Content up to this size is copied after its frame header: one write, one small copy. About a packet's payload.
const JOINED_CONTENT_MAX: usize = 1200;
