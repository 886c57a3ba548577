//! The commands that send. Each command checks everything first, and changes nothing if it fails.

use std::collections::hash_map::Entry;

use bytes::{BufMut, Bytes, BytesMut};
use uringcore_wire::varint;

use super::connection::Connection;
use super::critical_streams::CriticalStream;
use super::error::{Code, LocalError};
use super::event::Role;
use super::field_validation::{self, Line, Method};
use super::frame_header::{self, FrameHeader};
use super::frame_type;
use super::qpack::FIELD_OVERHEAD;
use super::quic_sink::Sink;
use super::request::{Half, RequestStream};
use super::settings::id as setting;
use super::stream_id;
use super::stream_type;

impl Connection {
    /// Sends a header section: that of a request, of an interim or final response, or trailers, whichever comes next
    /// on the stream.
    ///
    /// White space around the values of regular fields is removed, because it is not part of the value (RFC 9110
    /// section 5.5). `content-length` is removed from responses that must not have it: interim responses, 204, and 2xx
    /// to CONNECT (RFC 9110 section 8.6).
    ///
    /// # Errors
    ///
    /// [`LocalError::InvalidField`] if the message would be malformed (RFC 9114 section 4.1.2),
    /// [`LocalError::FrameUnexpected`] if no header section may follow the sent frames,
    /// [`LocalError::FieldSectionTooLarge`] beyond the peer's SETTINGS_MAX_FIELD_SECTION_SIZE,
    /// [`LocalError::GoingAway`] for a new request after the peer's GOAWAY.
    pub fn send_headers<N, V>(
        &mut self,
        out: &mut dyn Sink,
        stream_id: u64,
        fields: &[(N, V)],
        fin: bool,
    ) -> Result<(), LocalError>
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        self.send_section(out, stream_id, field_validation::trimmed(fields), None, fin)
    }

    /// Sends a header section, and the content after it. Small content is sent in the same write. Empty content sends
    /// no DATA frame.
    ///
    /// # Errors
    ///
    /// Those of [`send_headers`](Self::send_headers), and [`LocalError::FrameUnexpected`] for content after the header
    /// section of an interim response or after trailers.
    pub fn send_message<N, V>(
        &mut self,
        out: &mut dyn Sink,
        stream_id: u64,
        fields: &[(N, V)],
        content: Bytes,
        fin: bool,
    ) -> Result<(), LocalError>
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let content = (!content.is_empty()).then_some(content);
        self.send_section(
            out,
            stream_id,
            field_validation::trimmed(fields),
            content,
            fin,
        )
    }

    fn send_section<'a>(
        &mut self,
        out: &mut dyn Sink,
        stream_id: u64,
        lines: impl Iterator<Item = Line<'a>> + Clone,
        content: Option<Bytes>,
        fin: bool,
    ) -> Result<(), LocalError> {
        let next = self.check_section(stream_id, lines.clone(), fin)?;
        if content.is_some() && next.half != Half::Body {
            return Err(LocalError::FrameUnexpected(NO_DATA));
        }
        let is_sent = move |(name, _): &Line<'_>| !next.drops_length || *name != b"content-length";
        let lines = lines.filter(is_sent);
        self.check_field_section_size(lines.clone())?;
        let prefix = self.encode_section(stream_id, lines.clone());
        self.flush_encoder(out);
        self.log.sent(stream_id, self.section.len(), None, lines);
        if let Some(content) = &content {
            self.log.data(true, stream_id, content.len() as u64);
        }
        self.write_message(out, stream_id, prefix, content, fin);
        self.sent_section(stream_id, next, fin);
        Ok(())
    }

    /// Checks a header section. Returns the state that the stream will have after it.
    fn check_section<'a>(
        &self,
        stream_id: u64,
        lines: impl Iterator<Item = Line<'a>>,
        fin: bool,
    ) -> Result<Next, LocalError> {
        if self.closed {
            return Err(LocalError::Closed);
        }
        let stream = self.requests.get(&stream_id);
        // A server also sends on push streams, which are not client-initiated.
        if self.role == Role::Client || stream.is_none() {
            check_request_stream(stream_id)?;
        }
        let Some(stream) = stream else {
            return self.check_new_request(lines);
        };
        match stream.send {
            Half::Head => self.check_head(lines, stream.method, fin),
            Half::Body => {
                self.check_trailers(stream)?;
                field_validation::trailers(lines).map_err(invalid_field)?;
                Ok(Next::plain(Half::Trailers, stream.method))
            }
            Half::Trailers | Half::Done => Err(LocalError::FrameUnexpected(
                "HEADERS frame is not allowed in this state",
            )),
        }
    }

    /// Sends an encoded field section, whose prefix is at `prefix` in the buffer, and content after it.
    fn write_message(
        &mut self,
        out: &mut dyn Sink,
        stream_id: u64,
        prefix: usize,
        content: Option<Bytes>,
        fin: bool,
    ) {
        let (lines, prefix) = self.section.split_at(prefix);
        let header = FrameHeader::new(frame_type::HEADERS, self.section.len() as u64);
        let content = content.unwrap_or_default();
        let data = match content.len() {
            0 => None,
            length => Some(FrameHeader::new(frame_type::DATA, length as u64)),
        };
        let data = data.as_deref().unwrap_or_default();
        let joined = match content.len() {
            ..=JOINED_CONTENT_MAX => &content[..],
            _ => &[],
        };
        let length = header.len() + self.section.len() + data.len() + joined.len();
        let mut message = Vec::with_capacity(length);
        for part in [&header[..], prefix, lines, data, joined] {
            message.extend_from_slice(part);
        }
        if content.len() > joined.len() {
            out.write(stream_id, message.into(), false);
            out.write(stream_id, content, fin);
        } else {
            out.write(stream_id, message.into(), fin);
        }
    }

    fn sent_section(&mut self, stream_id: u64, next: Next, fin: bool) {
        let update = |stream: &mut RequestStream| {
            stream.send = if fin { Half::Done } else { next.half };
            stream.method = next.method;
            stream.is_refused |= next.is_refused;
            stream.is_done()
        };
        match self.requests.entry(stream_id) {
            Entry::Occupied(mut stream) => {
                if update(stream.get_mut()) {
                    stream.remove();
                }
            }
            Entry::Vacant(place) => {
                // The request is a client's own, so its response is expected on the same stream.
                let mut stream = RequestStream::new(stream_id);
                update(&mut stream);
                place.insert(stream);
            }
        }
    }

    /// Sends content. Empty content without `fin` sends nothing.
    ///
    /// # Errors
    ///
    /// [`LocalError::FrameUnexpected`] unless a header section was sent and the message has not ended.
    pub fn send_data(
        &mut self,
        out: &mut dyn Sink,
        stream_id: u64,
        data: Bytes,
        fin: bool,
    ) -> Result<(), LocalError> {
        let header = self.send_data_header(stream_id, data.len() as u64, fin)?;
        let Some(header) = header else {
            if fin {
                out.write(stream_id, Bytes::new(), fin);
            }
            return Ok(());
        };
        if data.len() <= JOINED_CONTENT_MAX {
            let mut frame = Vec::with_capacity(header.len() + data.len());
            frame.extend_from_slice(&header);
            frame.extend_from_slice(&data);
            out.write(stream_id, frame.into(), fin);
        } else {
            out.write(stream_id, Bytes::copy_from_slice(&header), false);
            out.write(stream_id, data, fin);
        }
        Ok(())
    }

    /// Does what [`send_data`](Self::send_data) does, except writing. The host writes the returned frame header, if
    /// there is one, then `length` bytes of content, and FIN if `fin`. For hosts whose content is not in `Bytes`.
    pub fn send_data_header(
        &mut self,
        stream_id: u64,
        length: u64,
        fin: bool,
    ) -> Result<Option<FrameHeader>, LocalError> {
        if self.closed {
            return Err(LocalError::Closed);
        }
        let Entry::Occupied(mut stream) = self.requests.entry(stream_id) else {
            check_request_stream(stream_id)?;
            return Err(LocalError::FrameUnexpected(NO_DATA));
        };
        if self.role == Role::Client {
            check_request_stream(stream_id)?;
        }
        if stream.get().send != Half::Body {
            return Err(LocalError::FrameUnexpected(NO_DATA));
        }
        if fin {
            stream.get_mut().send = Half::Done;
            if stream.get().is_done() {
                stream.remove();
            }
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
    pub fn send_datagram(
        &mut self,
        out: &mut dyn Sink,
        stream_id: u64,
        data: &[u8],
    ) -> Result<(), LocalError> {
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
        out.send_datagram(datagram.freeze());
        Ok(())
    }

    /// True if this side and the peer have sent SETTINGS_H3_DATAGRAM (RFC 9297 section 2.1.1).
    pub fn are_datagrams_agreed(&self) -> bool {
        self.settings.h3_datagram && self.peer.is_enabled(setting::H3_DATAGRAM)
    }

    /// The bytes before the payload of an HTTP datagram of this request: the encoded quarter stream ID.
    pub fn datagram_prefix(stream_id: u64) -> Result<Vec<u8>, LocalError> {
        check_request_stream(stream_id)?;
        let mut prefix = Vec::with_capacity(varint::SIZE_MAX);
        varint::put(&mut prefix, stream_id / 4);
        Ok(prefix)
    }

    /// Sends GOAWAY (RFC 9114 section 5.2). A server then rejects request streams from `id` on; a client's `id` is a
    /// push ID.
    ///
    /// # Errors
    ///
    /// [`LocalError::InvalidId`] if `id` is above that of an earlier GOAWAY, or is not a request stream.
    pub fn send_goaway(&mut self, out: &mut dyn Sink, id: u64) -> Result<(), LocalError> {
        if self.closed {
            return Err(LocalError::Closed);
        }
        self.goaway.send(id)?;
        let mut payload = Vec::with_capacity(varint::SIZE_MAX);
        varint::put(&mut payload, id);
        let control_id = self.critical.id(CriticalStream::Control);
        out.write_critical(
            control_id,
            frame_header::frame(frame_type::GOAWAY, &[&payload]),
        );
        Ok(())
    }

    /// The identifier for [`send_goaway`](Self::send_goaway) with which all requests that have begun can still finish.
    pub fn next_goaway_id(&self) -> u64 {
        self.goaway.next_id(self.request_ids.next())
    }

    /// Abandons a request: resets this side's direction of its stream, and stops the peer's. Without an effect if the
    /// request has ended.
    pub fn cancel_request(&mut self, out: &mut dyn Sink, stream_id: u64, code: u64) {
        if !self.closed {
            self.drop_request(out, stream_id, Code(code));
            self.flush_decoder(out);
        }
    }

    /// Stops reading a message, while this side continues to send. A server that needs no more of a request uses
    /// H3_NO_ERROR (RFC 9114 section 4.1). Without an effect if the whole message has arrived.
    pub fn stop_receiving(&mut self, out: &mut dyn Sink, stream_id: u64, code: u64) {
        if !self.closed {
            self.stop_reading(out, stream_id, Code(code));
            self.flush_decoder(out);
        }
    }

    /// Sends the header of a WebTransport stream on `stream_id`, a QUIC stream of this side, for the session of a
    /// CONNECT request. The host sends the data after the header directly on QUIC; data of the peer is reported as
    /// `Event::WebTransportData`.
    ///
    /// # Errors
    ///
    /// [`LocalError::InvalidStream`] if WebTransport is not enabled or the session is not a request stream.
    pub fn create_webtransport_stream(
        &mut self,
        out: &mut dyn Sink,
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
        if !stream_id::is_client_bidi(session_id) {
            return Err(LocalError::InvalidStream(
                "a WebTransport session is a client-initiated bidirectional stream",
            ));
        }
        self.log
            .stream_type(stream_id, stream_type::WEBTRANSPORT, None);
        let mut header = Vec::with_capacity(2 * varint::SIZE_MAX);
        if stream_id::is_unidirectional(stream_id) {
            varint::put(&mut header, stream_type::WEBTRANSPORT);
        } else {
            varint::put(&mut header, frame_type::WEBTRANSPORT_STREAM);
            self.requests.insert(
                stream_id,
                RequestStream::new_webtransport(stream_id, session_id),
            );
        }
        varint::put(&mut header, session_id);
        out.write(stream_id, header.into(), false);
        Ok(())
    }

    /// Checks the first header section that this side sends on a stream. Returns the state that the stream will have
    /// after it.
    fn check_head<'a>(
        &self,
        lines: impl Iterator<Item = Line<'a>>,
        method: Method,
        fin: bool,
    ) -> Result<Next, LocalError> {
        if self.role == Role::Client {
            let target_check = self.settings.target_check;
            let head =
                field_validation::request_head(lines, target_check).map_err(invalid_field)?;
            return Ok(Next::plain(Half::Body, head.method));
        }
        let head = field_validation::response_head(lines).map_err(invalid_field)?;
        let drops_length = head.content_length.is_some() && head.is_without_content(method);
        if !head.is_interim() {
            return Ok(Next {
                is_refused: head.is_refusal(),
                drops_length,
                ..Next::plain(Half::Body, method)
            });
        }
        if fin {
            // RFC 9114 section 4.1: an interim response is not the end of the message.
            return Err(LocalError::FrameUnexpected(
                "an interim response cannot end the stream",
            ));
        }
        Ok(Next {
            drops_length,
            ..Next::plain(Half::Head, method)
        })
    }

    /// Checks if trailers may be sent (RFC 9114 section 4.4). The response to a refused CONNECT is an ordinary one and
    /// may have trailers. A CONNECT request never has them: before the response a server may treat the stream as a
    /// tunnel, and some servers do so after a refusal too.
    fn check_trailers(&self, stream: &RequestStream) -> Result<(), LocalError> {
        let may_follow = match self.role {
            Role::Client => stream.method != Method::Connect,
            Role::Server => !stream.is_tunnel(),
        };
        match may_follow {
            true => Ok(()),
            false => Err(LocalError::FrameUnexpected(
                "a CONNECT stream has no trailers",
            )),
        }
    }

    fn check_new_request<'a>(
        &self,
        lines: impl Iterator<Item = Line<'a>>,
    ) -> Result<Next, LocalError> {
        if self.role == Role::Server {
            return Err(LocalError::FrameUnexpected(
                "there is no request to respond to on this stream",
            ));
        }
        if self.goaway.is_received() {
            // RFC 9114 section 5.2: no new request after GOAWAY, whatever its identifier. A server that will stop soon
            // announces the highest identifier first.
            return Err(LocalError::GoingAway);
        }
        self.check_head(lines, Method::Other, false)
    }

    /// Checks that a field section is not larger than the peer accepts (RFC 9114 section 4.2.2).
    pub(super) fn check_field_section_size<'a>(
        &self,
        lines: impl Iterator<Item = Line<'a>>,
    ) -> Result<(), LocalError> {
        let max = self.peer.setting(setting::MAX_FIELD_SECTION_SIZE);
        let Some(max) = max else { return Ok(()) };
        let sizes = lines.map(|(name, value)| name.len() + value.len() + FIELD_OVERHEAD);
        let size = sizes.sum::<usize>() as u64;
        match size > max {
            true => Err(LocalError::FieldSectionTooLarge { size, max }),
            false => Ok(()),
        }
    }

    /// Encodes a field section in the connection's buffer, the prefix after the lines. Returns the position of the
    /// prefix.
    pub(super) fn encode_section<'a>(
        &mut self,
        stream_id: u64,
        lines: impl Iterator<Item = Line<'a>>,
    ) -> usize {
        self.section.clear();
        let mut section = self.encoder.section(stream_id, &mut self.section);
        for (name, value) in lines {
            section.field(name, value);
        }
        section.finish()
    }
}

/// The state that a stream will have after a header section.
#[derive(Clone, Copy)]
struct Next {
    half: Half,
    method: Method,
    is_refused: bool,
    /// True if `content-length` must not be sent.
    drops_length: bool,
}

impl Next {
    fn plain(half: Half, method: Method) -> Self {
        Self {
            half,
            method,
            is_refused: false,
            drops_length: false,
        }
    }
}

fn check_request_stream(stream_id: u64) -> Result<(), LocalError> {
    if stream_id::is_client_bidi(stream_id) {
        Ok(())
    } else {
        Err(LocalError::InvalidStream(
            "HTTP messages and datagrams belong to client-initiated bidirectional streams",
        ))
    }
}

fn invalid_field(reason: field_validation::Reason) -> LocalError {
    LocalError::InvalidField(reason.into_owned())
}

const NO_DATA: &str = "DATA frame is not allowed in this state";
/// Content of up to this many bytes is copied behind its frame header, so that both leave in one write. About the
/// payload of a packet.
const JOINED_CONTENT_MAX: usize = 1200;
