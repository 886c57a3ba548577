//! The host's commands for a response.

use std::time::Instant;

use bytes::Bytes;

use super::connection::{Connection, Exchange, Reading};
use super::response_encoder::{self, Added, Fields};
use crate::response_errors::SendError;
use crate::tcp_output::Closing;

/// The part of a response that the host has to send next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    Head,
    /// Content with this number of bytes.
    Length(u64),
    Chunked,
    /// Content that ends with the connection, for a client of HTTP/1.0.
    UntilClose,
    /// No content. Content that the host sends is dropped.
    Nothing,
    /// Frames of a WebSocket.
    Raw,
    Done,
}

impl Sending {
    pub fn is_done(self) -> bool {
        self == Self::Done
    }

    pub fn is_begun(self) -> bool {
        self != Self::Head
    }
}

impl Connection {
    /// Sends a header section: an interim response, the final one, or trailers. If `end` is true, nothing follows.
    pub fn send_headers(
        &mut self,
        serial: u64,
        fields: &Fields<'_>,
        end: bool,
        now: Instant,
    ) -> Result<(), SendError> {
        match (status(fields)?, self.open(serial)?.sending.is_begun()) {
            (None, true) => self.end_content(fields, now),
            (Some(status @ 100..200), false) => self.interim(status, &fields[1..]),
            (Some(status), false) => {
                self.begin_response(status, &fields[1..], end.then_some(0))?;
                match end {
                    true => self.end_content(&[], now),
                    false => Ok(()),
                }
            }
            (None, false) => Err(invalid("a response begins with its status")),
            (Some(_), true) => Err(invalid("the response has begun")),
        }
    }

    /// Sends the header section of a final response, and content.
    pub fn respond(
        &mut self,
        serial: u64,
        fields: &Fields<'_>,
        content: Bytes,
        end: bool,
        now: Instant,
    ) -> Result<(), SendError> {
        match (status(fields)?, self.open(serial)?.sending) {
            (Some(status @ 200..), Sending::Head) => {
                let length = end.then_some(content.len() as u64);
                self.begin_response(status, &fields[1..], length)?;
                self.send_data(serial, content, end, now)
            }
            _ => Err(invalid("a response begins with its status, once")),
        }
    }

    /// Sends content.
    pub fn send_data(
        &mut self,
        serial: u64,
        content: Bytes,
        end: bool,
        now: Instant,
    ) -> Result<(), SendError> {
        let exchange = self.open(serial)?;
        match &mut exchange.sending {
            Sending::Head => return Err(invalid("the response has not begun")),
            Sending::Done => return Err(SendError::Gone),
            Sending::Nothing => {}
            Sending::Length(left) => {
                let rest = left.checked_sub(content.len() as u64);
                *left = rest.ok_or_else(|| invalid("the content is longer than content-length"))?;
                self.output.content(content);
            }
            Sending::Chunked if content.is_empty() => {}
            Sending::Chunked => {
                let (buffer, before) = self.output.buffer();
                response_encoder::chunk_size(buffer, content.len());
                self.output.end_buffer(before, true);
                self.output.content(content);
                self.output.copy(b"\r\n");
            }
            Sending::UntilClose | Sending::Raw => self.output.content(content),
        }
        match end {
            true => self.end_content(&[], now),
            false => Ok(()),
        }
    }

    /// Sends a frame of a WebSocket. A large payload is not copied.
    pub fn send_frame(
        &mut self,
        serial: u64,
        head: &[u8],
        payload: Bytes,
    ) -> Result<(), SendError> {
        match self.open(serial)?.sending {
            Sending::Raw => {
                self.output.copy(head);
                self.output.content(payload);
                Ok(())
            }
            Sending::Done => Err(SendError::Gone),
            _ => Err(invalid("the connection is no WebSocket")),
        }
    }

    /// The number of bytes of content that the host may write to the transport itself, after all output.
    pub fn content_left(&self, serial: u64) -> u64 {
        match &self.exchange {
            Some(Exchange {
                sending: Sending::Length(left),
                ..
            }) if serial == self.serial && self.output.is_empty() => *left,
            _ => 0,
        }
    }

    /// Counts content that the host has written to the transport itself, at most [`content_left`](Self::content_left)
    /// bytes. The end follows as content of no bytes.
    pub fn content_written(&mut self, serial: u64, length: u64) {
        if length <= self.content_left(serial)
            && let Some(Exchange {
                sending: Sending::Length(left),
                ..
            }) = &mut self.exchange
        {
            *left -= length;
            self.written += length;
        }
    }

    /// Ends a response early. Also ends the connection, by which the client notices that the response is incomplete.
    pub fn abandon(&mut self, serial: u64, now: Instant) {
        let Ok(exchange) = self.open(serial) else {
            return;
        };
        let is_length_known = exchange.sending != Sending::UntilClose;
        exchange.sending = Sending::Done;
        exchange.keep_alive = false;
        match is_length_known {
            true => self.settle(now),
            // Only a reset distinguishes this end from the end of the content.
            false => {
                self.exchange = None;
                self.close(Closing::AtOnce);
            }
        }
    }

    /// Returns the exchange, if its response is incomplete.
    fn open(&mut self, serial: u64) -> Result<&mut Exchange, SendError> {
        let is_current = serial == self.serial;
        let exchange = self.exchange.as_mut().filter(|_| is_current);
        exchange
            .filter(|exchange| !exchange.sending.is_done())
            .ok_or(SendError::Gone)
    }

    fn interim(&mut self, status: u16, fields: &Fields<'_>) -> Result<(), SendError> {
        let Some(exchange) = &mut self.exchange else {
            return Err(SendError::Gone);
        };
        if status == 101 {
            return Err(invalid("101 is the server's answer to an upgrade"));
        }
        if exchange.is_http10 {
            // A client of HTTP/1.0 gets no interim responses (RFC 9110 section 15.2).
            return Ok(());
        }
        if status == 100 {
            exchange.expects_continue = false;
        }
        let (buffer, before) = self.output.buffer();
        let encoded = response_encoder::interim(buffer, status, fields);
        self.output.end_buffer(before, encoded.is_ok());
        encoded.map_err(SendError::Invalid)
    }

    /// Sends the header section of a final response. `whole` is the length of the content, if all of it follows at
    /// once.
    fn begin_response(
        &mut self,
        status: u16,
        fields: &Fields<'_>,
        whole: Option<u64>,
    ) -> Result<(), SendError> {
        let Some(exchange) = &mut self.exchange else {
            return Err(SendError::Gone);
        };
        if let Some(key) = &exchange.key
            && status < 300
        {
            let (buffer, before) = self.output.buffer();
            let encoded = response_encoder::switching(buffer, key, fields);
            self.output.end_buffer(before, encoded.is_ok());
            encoded.map_err(SendError::Invalid)?;
            exchange.sending = Sending::Raw;
            exchange.keep_alive = false;
            return Ok(());
        }
        let given = read_fields(fields)?;
        // These responses have no content (RFC 9110 section 6.4.1).
        let has_no_content = exchange.is_head || matches!(status, 204 | 304);
        let mut added = Added::default();
        let sending = match (given.content_length, whole) {
            // A 204 has no Content-Length (RFC 9110 section 8.6).
            _ if status == 204 => {
                added.hides_length = true;
                Sending::Nothing
            }
            _ if exchange.is_mistaken_for_head => {
                added.hides_length = true;
                added.content_length = (!has_no_content).then_some(0);
                Sending::Nothing
            }
            _ if has_no_content => Sending::Nothing,
            (Some(length), _) => Sending::Length(length),
            (None, Some(length)) => {
                added.content_length = Some(length);
                Sending::Length(length)
            }
            (None, None) if exchange.is_http10 => Sending::UntilClose,
            (None, None) => {
                added.is_chunked = true;
                Sending::Chunked
            }
        };
        // A client that still waits for the status 100 may send its content or not, so the position of the next request
        // is unknown.
        let is_request_uncertain = exchange.expects_continue || exchange.key.is_some();
        let mut keep_alive = exchange.keep_alive && !given.closes && !is_request_uncertain;
        keep_alive &= !self.is_stopping;
        keep_alive &= sending != Sending::UntilClose;
        if let Reading::Body(body) = &self.reading {
            keep_alive &= !body.is_too_long_to_discard();
        }
        added.closes = !keep_alive;
        added.keeps_alive = keep_alive && exchange.is_http10;
        let (buffer, before) = self.output.buffer();
        let encoded = match exchange.refusal {
            // A 426 names the protocol (RFC 9110 section 15.5.22) and its version (RFC 6455 section 4.4).
            Some(426) => {
                let ours: [(&[u8], &[u8]); 2] = [
                    (b"upgrade", b"websocket"),
                    (b"sec-websocket-version", b"13"),
                ];
                response_encoder::response(buffer, status, &[fields, &ours[..]].concat(), &added)
            }
            _ => response_encoder::response(buffer, status, fields, &added),
        };
        self.output.end_buffer(before, encoded.is_ok());
        encoded.map_err(SendError::Invalid)?;
        exchange.sending = sending;
        exchange.keep_alive = keep_alive;
        Ok(())
    }

    /// Ends the content of the response, and sends trailers if it is chunked.
    fn end_content(&mut self, trailers: &Fields<'_>, now: Instant) -> Result<(), SendError> {
        let Some(exchange) = &mut self.exchange else {
            return Err(SendError::Gone);
        };
        match exchange.sending {
            Sending::Head | Sending::Done => return Err(SendError::Gone),
            Sending::Length(1..) => {
                return Err(invalid("the content is shorter than content-length"));
            }
            Sending::Chunked => {
                let (buffer, before) = self.output.buffer();
                let encoded = response_encoder::last_chunk(buffer, trailers);
                self.output.end_buffer(before, encoded.is_ok());
                encoded.map_err(SendError::Invalid)?;
            }
            // Only chunked content can have trailers. They are dropped here, because no client depends on them (RFC
            // 9110 section 6.5.1).
            Sending::Length(0) | Sending::UntilClose | Sending::Nothing | Sending::Raw => {}
        }
        exchange.sending = Sending::Done;
        self.settle(now);
        // The input may contain the next request.
        self.read(now);
        Ok(())
    }
}

/// The fields of a response that affect its framing, and the end of the connection.
struct ResponseFields {
    content_length: Option<u64>,
    /// True if the application closes the connection.
    closes: bool,
}

fn read_fields(fields: &Fields<'_>) -> Result<ResponseFields, SendError> {
    let mut given = ResponseFields {
        content_length: None,
        closes: false,
    };
    for &(name, value) in fields {
        match name {
            b"content-length" => {
                let length =
                    super::message_body_length::decimal(super::message_body_length::trimmed(value));
                let length = length.ok_or_else(|| invalid("content-length is not a number"))?;
                if given.content_length.replace(length).is_some() {
                    return Err(invalid("content-length is repeated"));
                }
            }
            b"connection" => {
                given.closes |= super::header_section_parser::has_option(value, b"close")
            }
            _ => {}
        }
    }
    Ok(given)
}

/// Returns the status of a header section; `None` if it has trailers.
fn status(fields: &Fields<'_>) -> Result<Option<u16>, SendError> {
    match fields.first() {
        Some(&(
            b":status",
            &[
                hundreds @ b'1'..=b'9',
                tens @ b'0'..=b'9',
                ones @ b'0'..=b'9',
            ],
        )) => {
            let digit = |byte: u8| u16::from(byte - b'0');
            Ok(Some(digit(hundreds) * 100 + digit(tens) * 10 + digit(ones)))
        }
        Some((b":status", _)) => Err(invalid("the status is not a three-digit number")),
        _ => Ok(None),
    }
}

fn invalid(reason: &str) -> SendError {
    SendError::Invalid(reason.to_owned())
}
