//! A response: handles the messages that the application sends.
//!
//! The head is held until the first content or the end of the loop iteration. So head, content and end are one write,
//! and if the application fails before its content, the client gets a response 500.
//!
//! Messages are accepted until the stream, or the whole connection, has no space. A body is passed on in parts, so
//! that the rest of a large one waits in the application.

use bytes::Bytes;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use uringcore_http::content_coding::Plan;
use uringcore_http::ws::close_codes;

use super::asgi_service::{AsgiService, Line, ReportedFault};
use super::file_response::{FileBody, FileRequest};
use super::http_stream::{Ending, HttpStream, Refused};
use super::message_parser::{
    content_length, final_status, is_true, lower_name, optional, plain_bytes, required,
};
use super::request::Request;
use super::response_compression::{COMPRESSED_BYTES_PER_ITERATION, Encoding};
use crate::capi::bytes_like_objects;

pub struct Response {
    phase: ResponsePhase,
    /// The response has no content, because the request was a HEAD or the status forbids it.
    is_bodyless: bool,
    /// The number of bytes of content that must still follow, if there is a Content-Length.
    content_left: Option<u64>,
    has_trailers: bool,
    /// The server's own response ends its TCP connection.
    pub(super) closes: bool,
    trailers: Vec<Line>,
    /// Compresses the rest of the content.
    pub(super) encoding: Option<Box<Encoding>>,
}

enum ResponsePhase {
    Nothing,
    /// The application has passed the head, which is not sent yet.
    Held(Head),
    Body,
    Complete,
}

pub(super) struct Head {
    status: u16,
    pub(super) fields: Vec<Line>,
    /// The decision about compression, until the first content. `None` if the response stays as it is.
    pub(super) plan: Option<Plan>,
}

/// The effect of a piece of content on the state of the response.
pub(super) struct Accounted {
    /// No content follows.
    pub last: bool,
    /// The content is not sent, because the response must have none.
    pub is_left_out: bool,
}

/// The result of a message.
pub(super) enum Sent {
    Taken,
    /// The client has gone.
    ToNobody,
    /// The message was accepted, and there is no space for another one.
    Full,
    /// The content that was not accepted for want of space; true if it is the last of the response.
    FullBefore(Bytes, bool),
    /// Nothing was accepted: the message, with this number of bytes, has to wait for space.
    NotTaken(usize),
    /// A file that cannot be opened yet.
    FileUnopened(Box<FileRequest>),
    /// The rest of some content, after a pause in which the loop runs. True if it is the last of the response.
    RestLater(Bytes, bool),
    /// The rest of a file, after such a pause.
    FileLater(Box<FileBody>),
    /// The unsent rest of a file, for which the stream has no space yet.
    FileFull(Box<FileBody>),
    /// The unsent rest of a file that was closed and cannot be opened again yet.
    FileUnopenable(Box<FileBody>),
    /// The unsent rest of a file, whose next part a thread has to read.
    FileUnread(Box<FileBody>),
}

impl Response {
    pub fn new(is_head: bool) -> Self {
        Self {
            phase: ResponsePhase::Nothing,
            is_bodyless: is_head,
            content_left: None,
            has_trailers: false,
            closes: false,
            trailers: Vec::new(),
            encoding: None,
        }
    }

    pub fn is_complete(&self) -> bool {
        matches!(self.phase, ResponsePhase::Complete)
    }

    /// True if a part of the response was sent.
    pub fn is_begun(&self) -> bool {
        matches!(self.phase, ResponsePhase::Body | ResponsePhase::Complete)
    }

    /// True if the application has passed the head of the response.
    pub fn is_started(&self) -> bool {
        !matches!(self.phase, ResponsePhase::Nothing)
    }

    /// The fields of a response 200 whose head is held and whose content is sent as it is.
    pub fn lines_of_200(&self) -> Option<&[Line]> {
        match &self.phase {
            ResponsePhase::Held(Head {
                status: 200,
                fields,
                plan: None,
            }) if !self.has_trailers => Some(fields),
            _ => None,
        }
    }

    pub fn is_bodyless(&self) -> bool {
        self.is_bodyless
    }

    /// The number of bytes of content that must still follow, if there is a Content-Length.
    pub fn content_left(&self) -> Option<u64> {
        self.content_left
    }

    /// Counts `length` bytes of content. With `more_body`, other content follows. Fails if the content does not agree
    /// with the Content-Length.
    pub fn account(&mut self, length: u64, more_body: bool) -> Result<Accounted, &'static str> {
        let last = !more_body && !self.has_trailers;
        if self.is_bodyless {
            self.content_left = None;
        } else if let Some(left) = &mut self.content_left {
            match left.checked_sub(length) {
                None => return Err("Response content longer than Content-Length"),
                Some(0) => *left = 0,
                Some(_) if !more_body => {
                    return Err("Response content shorter than Content-Length");
                }
                Some(rest) => *left = rest,
            }
        }
        Ok(Accounted {
            last,
            is_left_out: self.is_bodyless,
        })
    }

    pub fn complete(&mut self) {
        self.phase = ResponsePhase::Complete;
        self.encoding = None;
    }
}

/// Methods for the messages of `send`.
impl Request {
    pub(super) fn take_message(
        slf: &Bound<'_, Self>,
        message: &Bound<'_, PyAny>,
    ) -> PyResult<Sent> {
        let (py, this) = (slf.py(), slf.get());
        if let Some(taken) = Self::take_socket_message(slf, message) {
            return taken;
        }
        if this.state.with(py, |state| state.disconnected) {
            // The client has gone. As in ASGI before version 2.4, the message is dropped without an error.
            return Ok(Sent::ToNobody);
        }
        let kind = required(message, intern!(py, "type"))?;
        let kind: std::borrow::Cow<'_, str> = kind.extract()?;
        let (is_first, is_complete, has_trailers) = this.state.with(py, |state| {
            let response = &state.response;
            let is_first = matches!(response.phase, ResponsePhase::Nothing);
            (is_first, response.is_complete(), response.has_trailers)
        });
        match &*kind {
            "http.response.start" if is_first => Self::start(slf, message),
            "http.response.early_hint" if is_first => Self::hint(slf, message),
            "http.response.body" if !is_first && !is_complete => Self::body(slf, message),
            "http.response.pathsend" if !is_first && !is_complete => Self::send_path(slf, message),
            "http.response.zerocopysend" if !is_first && !is_complete => {
                Self::send_open_file(slf, message)
            }
            "http.datagram.send" if !is_first && !is_complete && this.datagrams.is_some() => {
                Self::send_datagram(slf, message)
            }
            "http.response.debug" => Self::debug(slf, message),
            "http.response.trailers" if !is_first && !is_complete && has_trailers => {
                Self::trailers(slf, message)
            }
            _ => Err(PyRuntimeError::new_err(match (is_first, is_complete) {
                (true, _) => {
                    format!("Expected ASGI message 'http.response.start', but got '{kind}'.")
                }
                (_, true) => format!(
                    "Unexpected ASGI message '{kind}' sent, after response already completed."
                ),
                _ => format!("Expected ASGI message 'http.response.body', but got '{kind}'."),
            })),
        }
    }

    /// Handles the message `http.response.start`.
    pub(super) fn start(slf: &Bound<'_, Self>, message: &Bound<'_, PyAny>) -> PyResult<Sent> {
        let (py, this) = (slf.py(), slf.get());
        let has_trailers = is_true(message, intern!(py, "trailers"))?;
        let status = final_status(&required(message, intern!(py, "status"))?)?;
        let headers = optional(message, intern!(py, "headers"))?;
        Self::hold_head(slf, status, headers.as_ref(), None)?;
        this.state
            .with(py, |state| state.response.has_trailers = has_trailers);
        let service = this.service.bind(py);
        AsgiService::hold(service, slf.clone().unbind())?;
        Ok(Sent::Taken)
    }

    /// Holds the head of a final response: the fields of every response, the application's fields, and one field of the
    /// server.
    pub(super) fn hold_head(
        slf: &Bound<'_, Self>,
        status: u16,
        headers: Option<&Bound<'_, PyAny>>,
        ours: impl IntoIterator<Item = Line>,
    ) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let list = headers.and_then(|headers| headers.cast_exact::<PyList>().ok());
        let others = list.map_or(0, |list| list.len());
        let mut fields = this.service.get().default_headers(py, others);
        let mut content_left = None;
        let mut add = |item: Bound<'_, PyAny>| -> PyResult<()> {
            let (name, value) = AsgiService::pair(&item)?;
            let (name, value) = (lower_name(&name)?, plain_bytes(&value)?);
            if name.as_bytes() == b"content-length" {
                let length = content_length(value.as_bytes())?;
                match content_left.replace(length) {
                    None => {}
                    // A repeated Content-Length with the same value is sent once, because clients refuse repeated ones
                    // (RFC 9110 section 8.6).
                    Some(first) if first == length => return Ok(()),
                    Some(first) => {
                        let text = format!("content-length: is both {first} and {length}");
                        return Err(PyValueError::new_err(text));
                    }
                }
            }
            fields.push((name.unbind(), value.unbind()));
            Ok(())
        };
        match (list, headers) {
            // This needs no iterator object.
            (Some(list), _) => list.iter().try_for_each(add)?,
            (None, Some(headers)) => headers.try_iter()?.try_for_each(|item| add(item?))?,
            (None, None) => {}
        }
        fields.extend(ours);
        let plan = this.compression_plan(py, status, &mut fields)?;
        let old = this.state.with(py, |state| {
            let response = &mut state.response;
            response.content_left = content_left;
            // These statuses forbid content (RFC 9110 section 6.4.1), even with a Content-Length.
            response.is_bodyless |= matches!(status, 204 | 304);
            std::mem::replace(
                &mut response.phase,
                ResponsePhase::Held(Head {
                    status,
                    fields,
                    plan,
                }),
            )
        });
        drop(old);
        Ok(())
    }

    /// Handles the message `http.response.early_hint`.
    fn hint(slf: &Bound<'_, Self>, message: &Bound<'_, PyAny>) -> PyResult<Sent> {
        let py = slf.py();
        let mut links = Vec::new();
        for link in required(message, intern!(py, "links"))?.try_iter()? {
            links.push(plain_bytes(&link?)?);
        }
        let mut fields = vec![(&b":status"[..], &b"103"[..])];
        fields.extend(links.iter().map(|link| (&b"link"[..], link.as_bytes())));
        let sent = slf
            .get()
            .with_stream(py, |stream| stream.headers(py, &fields, false));
        match sent {
            // The header section of the Early Hints is larger than the client accepts. The response is complete without
            // hints, so they are dropped.
            Some(Err(Refused::TooLarge(_))) => Ok(Sent::Taken),
            sent => Self::outcome(slf, sent).map(|()| Sent::Taken),
        }
    }

    /// Handles the message `http.response.body`.
    pub(super) fn body(slf: &Bound<'_, Self>, message: &Bound<'_, PyAny>) -> PyResult<Sent> {
        let (py, this) = (slf.py(), slf.get());
        let more_body = is_true(message, intern!(py, "more_body"))?;
        let content = match optional(message, intern!(py, "body"))? {
            // An empty body is the default, as in uvicorn over HTTP/1.1.
            Some(body) if !body.is_none() => bytes_like_objects::contiguous(&body, "body")?,
            _ => Bytes::new(),
        };
        let Accounted { last, is_left_out } = this
            .state
            .with(py, |state| {
                state.response.account(content.len() as u64, more_body)
            })
            .map_err(PyRuntimeError::new_err)?;
        let content = if is_left_out { Bytes::new() } else { content };
        match Self::send_rest(slf, content, last)? {
            // No part of this content will wait for the client, so the call suspends once to let the loop run.
            Sent::Taken if is_left_out && more_body => Ok(Sent::ToNobody),
            sent => Ok(sent),
        }
    }

    /// Sends content while the client accepts it.
    pub(super) fn send_rest(slf: &Bound<'_, Self>, rest: Bytes, last: bool) -> PyResult<Sent> {
        let sent = Self::send_parts(slf, rest, last);
        slf.get().written(slf.py());
        sent
    }

    fn send_parts(slf: &Bound<'_, Self>, mut rest: Bytes, last: bool) -> PyResult<Sent> {
        let (py, this) = (slf.py(), slf.get());
        // A WebSocket frame is passed on whole, because another frame may be sent while the rest of a body would wait.
        let part_bytes = match this.is_socket() {
            true => usize::MAX,
            false => PART_BYTES,
        };
        let mut compressed = 0;
        loop {
            this.check_socket(py)?;
            if this.state.with(py, |state| state.disconnected) {
                return Ok(Sent::ToNobody);
            }
            // The check comes before anything is accepted, because the program may cancel the wait and send the message
            // again.
            let is_full = |stream: &dyn HttpStream| stream.is_held_up(py);
            if !rest.is_empty() && this.with_stream(py, is_full) == Some(true) {
                return Ok(Sent::FullBefore(rest, last));
            }
            if compressed >= COMPRESSED_BYTES_PER_ITERATION {
                return Ok(Sent::RestLater(rest, last));
            }
            let part = rest.split_to(rest.len().min(part_bytes));
            let ends = last && rest.is_empty();
            let (length, is_empty) = (part.len(), part.is_empty());
            Self::send_part(slf, part, ends, rest.is_empty())?;
            if this.is_encoding(py) {
                compressed += length;
            }
            if ends {
                return Ok(Sent::Taken);
            }
            if rest.is_empty() {
                return match !is_empty && this.with_stream(py, is_full) == Some(true) {
                    true => Ok(Sent::Full),
                    false => Ok(Sent::Taken),
                };
            }
        }
    }

    /// Sends a part of the content, and the head before the first one. With `flushes` the client can read all of it at
    /// once, even if it is compressed.
    pub(super) fn send_part(
        slf: &Bound<'_, Self>,
        part: Bytes,
        ends: bool,
        flushes: bool,
    ) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let held = this.state.with(py, |state| {
            let response = &mut state.response;
            match response.phase {
                ResponsePhase::Held(_) => {
                    std::mem::replace(&mut response.phase, ResponsePhase::Nothing)
                }
                _ => ResponsePhase::Body,
            }
        });
        let sent = match held {
            // The head leaves the held state only when it was sent: if it is refused, a 500 can still be sent.
            ResponsePhase::Held(mut head) => {
                let part = this.begin_encoding(py, &mut head, part, ends, flushes)?;
                let is_whole = ends && part.is_empty();
                let sent = head.with_fields(py, |fields| {
                    this.with_stream(py, |stream| match is_whole {
                        true => stream.headers(py, fields, true),
                        false if part.is_empty() => stream.headers(py, fields, false),
                        false => stream.respond(py, fields, part, ends),
                    })
                });
                if matches!(sent, Some(Ok(()))) {
                    this.begun(py, head.status);
                }
                sent
            }
            _ => {
                let part = this.encode(py, part, ends, flushes)?;
                match part.is_empty() && !ends {
                    true => Some(Ok(())),
                    false => this.with_stream(py, |stream| stream.content(py, part, ends)),
                }
            }
        };
        let is_sent = matches!(sent, Some(Ok(())));
        Self::outcome(slf, sent)?;
        if ends && is_sent {
            this.finished(py)?;
        }
        Ok(())
    }

    /// Handles the message `http.response.debug`, which is for the log and not for the client.
    fn debug(slf: &Bound<'_, Self>, message: &Bound<'_, PyAny>) -> PyResult<Sent> {
        let py = slf.py();
        let info = required(message, intern!(py, "info"))?;
        let text = "Debug information of an ASGI application";
        slf.get()
            .service
            .get()
            .report_fault(py, ReportedFault::Debug(&info), text);
        Ok(Sent::Taken)
    }

    /// Handles the message `http.response.trailers`. ASGI permits several such messages, which become one section.
    fn trailers(slf: &Bound<'_, Self>, message: &Bound<'_, PyAny>) -> PyResult<Sent> {
        let (py, this) = (slf.py(), slf.get());
        let mut lines = Vec::new();
        for item in required(message, intern!(py, "headers"))?.try_iter()? {
            let (name, value) = AsgiService::pair(&item?)?;
            lines.push((lower_name(&name)?.unbind(), plain_bytes(&value)?.unbind()));
        }
        let more = is_true(message, intern!(py, "more_trailers"))?;
        let lines = this.state.with(py, |state| {
            let response = &mut state.response;
            response.trailers.extend(lines);
            match more {
                true => None,
                false => Some((std::mem::take(&mut response.trailers), response.is_bodyless)),
            }
        });
        let Some((lines, is_bodyless)) = lines else {
            return Ok(Sent::Taken);
        };
        Self::release_head(slf)?;
        let tail = this.encode(py, Bytes::new(), true, true)?;
        if !tail.is_empty() {
            let sent = this.with_stream(py, |stream| stream.content(py, tail, false));
            Self::outcome(slf, sent)?;
        }
        let fields: Vec<_> = lines.iter().map(|line| slices(py, line)).collect();
        let sent = this.with_stream(py, |stream| match fields.is_empty() || is_bodyless {
            true => stream.content(py, Bytes::new(), true),
            false => match stream.headers(py, &fields, true) {
                // The client does not accept a section of this size, and does not need the trailers.
                Err(Refused::TooLarge(_)) => stream.content(py, Bytes::new(), true),
                sent => sent,
            },
        });
        let is_sent = matches!(sent, Some(Ok(())));
        Self::outcome(slf, sent)?;
        if is_sent {
            this.finished(py)?;
            this.written(py);
        }
        Ok(Sent::Taken)
    }

    /// True while a head is held until its content comes.
    pub(super) fn holds_head(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| {
            matches!(state.response.phase, ResponsePhase::Held(_)) && !state.disconnected
        })
    }

    /// Sends a held head.
    pub(super) fn release_head(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if !this.holds_head(py) {
            return Ok(());
        }
        match Self::send_part(slf, Bytes::new(), false, false) {
            Ok(()) => Ok(()),
            // The head is invalid and not sent. The application's next message raises the error.
            Err(error) => {
                let message = format!(
                    "The response to {} could not be sent\n",
                    this.request_line(py)
                );
                let service = this.service.get();
                service.report_fault(py, ReportedFault::Application(Some(error)), &message);
                Self::fail(slf)
            }
        }
    }

    /// Converts the result of a send: reports a client that has gone, and returns errors.
    pub(super) fn outcome(
        slf: &Bound<'_, Self>,
        sent: Option<Result<(), Refused>>,
    ) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        match sent {
            Some(Ok(())) => Ok(()),
            // The client went away in this loop iteration.
            Some(Err(Refused::Gone)) | None => this.disconnect(py),
            Some(Err(Refused::Failed(error))) => Err(error),
            Some(Err(Refused::Invalid(reason))) => Err(PyValueError::new_err(reason)),
            Some(Err(Refused::TooLarge(reason))) => {
                let client = this.client(py);
                let message = format!(
                    "The response to {} was not sent: {reason}.",
                    this.request_line(py)
                );
                this.service
                    .get()
                    .report_fault(py, ReportedFault::Client(&client), &message);
                this.end(py, Ending::Failed);
                this.disconnect(py)
            }
        }
    }

    /// Records that the head was sent, and logs the access.
    fn begun(&self, py: Python<'_>, status: u16) {
        let old = self.state.with(py, |state| {
            state.continue_wanted = false;
            std::mem::replace(&mut state.response.phase, ResponsePhase::Body)
        });
        drop(old);
        let service = self.service.get();
        // An exception of the log is only reported, because the head is sent already.
        if let Some(log_access) = &service.log_access
            && let Err(error) = log_access.bind(py).call1((self.scope.bind(py), status))
        {
            error.write_unraisable(py, Some(log_access.bind(py)));
        }
    }

    fn finished(&self, py: Python<'_>) -> PyResult<()> {
        let is_early = self.state.with(py, |state| {
            state.response.complete();
            state.more_body
        });
        if is_early {
            // After an early response, the client is requested to stop sending the rest of the request, without an
            // error (H3_NO_ERROR, RFC 9114 section 4.1).
            self.forget_body(py);
            self.with_stream(py, |stream| stream.end(py, Ending::NoMoreWanted));
        }
        self.wake_all(py)
    }

    /// Sends a whole response of the server, in place of the application's.
    pub fn respond(slf: &Bound<'_, Self>, status: u16, text: &[u8]) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let mut fields = this.service.get().default_headers(py, 3);
        let length = text.len().to_string();
        let closes = this.state.with(py, |state| state.response.closes);
        let added = [
            (&b"content-type"[..], &b"text/plain; charset=utf-8"[..]),
            (b"content-length", length.as_bytes()),
            (b"connection", b"close"),
        ];
        for (name, value) in &added[..if closes { 3 } else { 2 }] {
            fields.push((
                PyBytes::new(py, name).unbind(),
                PyBytes::new(py, value).unbind(),
            ));
        }
        let content = this.state.with(py, |state| {
            let response = &mut state.response;
            response.has_trailers = false;
            match response.is_bodyless {
                true => Bytes::new(),
                false => Bytes::copy_from_slice(text),
            }
        });
        let head = Head {
            status,
            fields,
            plan: None,
        };
        let old = this.state.with(py, |state| {
            state.response.encoding = None;
            std::mem::replace(&mut state.response.phase, ResponsePhase::Held(head))
        });
        drop(old);
        Self::send_part(slf, content, true, true)
    }

    /// Handles a failure of the application: sends 500 if the head is not sent yet, otherwise resets the stream.
    pub(super) fn fail(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if this.close_socket(py, close_codes::INTERNAL_ERROR, "") {
            return this.wake_all(py);
        }
        let (is_over, is_begun) = this.state.with(py, |state| {
            let response = &mut state.response;
            let is_begun = response.is_begun();
            if !is_begun {
                // The response 500 has content, even if the status of the application's response forbids it.
                response.is_bodyless = this.is_head;
            }
            (response.is_complete() || state.disconnected, is_begun)
        });
        match (is_over, is_begun) {
            (true, _) => Ok(()),
            (false, true) => {
                this.end(py, Ending::Failed);
                Ok(())
            }
            (false, false) => Self::respond_or_end(slf, 500, b"Internal Server Error"),
        }
    }

    /// Sends a whole response of the server. If it is malformed, which the header options of the server may cause,
    /// resets the stream and logs that.
    pub(super) fn respond_or_end(slf: &Bound<'_, Self>, status: u16, text: &[u8]) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if let Err(error) = Self::respond(slf, status, text) {
            let message = format!(
                "The response to {} could not be sent\n",
                this.request_line(py)
            );
            let service = this.service.get();
            service.report_fault(py, ReportedFault::Application(Some(error)), &message);
            this.end(py, Ending::Failed);
        }
        Ok(())
    }

    /// The method and path of the request, for the log. They come from the scope, which the application may have
    /// changed.
    fn request_line(&self, py: Python<'_>) -> String {
        let scope = self.scope.bind(py);
        let get = |name| scope.get_item(name).ok().flatten();
        let method = get(intern!(py, "method")).and_then(|method| method.extract().ok());
        // The scope of a WebSocket has no method.
        let method = method.unwrap_or_else(|| "WebSocket".to_owned());
        let path = get(intern!(py, "raw_path"));
        let path = path.as_ref().and_then(|path| path.cast::<PyBytes>().ok());
        let path = path.map_or(&b"?"[..], |path| path.as_bytes());
        let path = &path[..path.len().min(LOGGED_PATH_BYTES)];
        format!("{} {}", method.escape_debug(), path.escape_ascii())
    }

    /// The client's address, for the log.
    pub(super) fn client<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        let client = self.scope.bind(py).get_item(intern!(py, "client"));
        client
            .ok()
            .flatten()
            .unwrap_or_else(|| py.None().into_bound(py))
    }
}

impl Head {
    /// Calls `run` with the fields in the form in which they are sent.
    fn with_fields<R>(&self, py: Python<'_>, run: impl FnOnce(&[(&[u8], &[u8])]) -> R) -> R {
        let digits = [
            b'0' + (self.status / 100) as u8,
            b'0' + (self.status / 10 % 10) as u8,
            b'0' + (self.status % 10) as u8,
        ];
        let mut fields = Vec::with_capacity(self.fields.len() + 1);
        fields.push((&b":status"[..], &digits[..]));
        fields.extend(self.fields.iter().map(|line| slices(py, line)));
        run(&fields)
    }
}

fn slices<'a>(py: Python<'a>, (name, value): &'a Line) -> (&'a [u8], &'a [u8]) {
    (name.as_bytes(py), value.as_bytes(py))
}

/// The largest number of bytes of a path in a line of the log.
const LOGGED_PATH_BYTES: usize = 200;

/// The largest number of bytes of a body that are queued between two checks for space.
pub(super) const PART_BYTES: usize = 128 * 1024;
