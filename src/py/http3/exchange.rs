//! One request stream of an HTTP/3 connection, as the [`HttpStream`] of a request.
//!
//! An application sees a method such as `head` as HEAD, because ASGI's methods are in upper case, so its response has
//! no content. For the client `head` is another method than HEAD, so the response must have no Content-Length either.

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_h3::Code;
use uringcore_http::http3::has_room;
use uringcore_http::response_errors::SendError;
use uringcore_limits::semaphore::Permit;

use super::http3_connection::Http3Connection;
use crate::asgi::http_stream::{Ending, Fields, HttpStream, Refused, fitting};
use crate::asgi::open_file_permits::FileClient;

pub struct Exchange {
    pub connection: Py<Http3Connection>,
    pub stream_id: u64,
    /// The method is HEAD in another case, such as `head` ([`fitting`]).
    pub is_mistaken_for_head: bool,
}

impl HttpStream for Exchange {
    fn headers(&self, py: Python<'_>, fields: &Fields<'_>, end: bool) -> Result<(), Refused> {
        let stream_id = self.stream_id;
        let fields = fitting(fields, self.is_mistaken_for_head);
        let sent = self
            .connection
            .get()
            .with_connections(py, |http, quic, now| {
                http.send_headers(quic, stream_id, &fields, end, now)
            });
        outcome(sent)
    }

    fn respond(
        &self,
        py: Python<'_>,
        fields: &Fields<'_>,
        content: Bytes,
        end: bool,
    ) -> Result<(), Refused> {
        let stream_id = self.stream_id;
        let fields = fitting(fields, self.is_mistaken_for_head);
        let sent = self
            .connection
            .get()
            .with_connections(py, |http, quic, now| {
                http.respond(quic, stream_id, &fields, content, end, now)
            });
        outcome(sent)
    }

    fn content(&self, py: Python<'_>, content: Bytes, end: bool) -> Result<(), Refused> {
        let stream_id = self.stream_id;
        let sent = self
            .connection
            .get()
            .with_connections(py, |http, quic, now| {
                http.send_data(quic, stream_id, content, end, now)
            });
        outcome(sent)
    }

    fn written(&self, py: Python<'_>) {
        self.connection.get().written(py);
    }

    fn datagram(&self, py: Python<'_>, data: &[u8]) -> Result<bool, Refused> {
        let stream_id = self.stream_id;
        let mut has_room = false;
        let sent = self
            .connection
            .get()
            .with_connections(py, |http, quic, now| {
                let sent = http.send_datagram(quic, stream_id, data, now);
                sent.map(|room| has_room = room)
            });
        outcome(sent).map(|()| has_room)
    }

    fn file_client(&self, py: Python<'_>) -> FileClient {
        self.connection.get().file_client(py)
    }

    fn file_permit(&self) -> Option<Permit> {
        self.connection.get().files.take()
    }

    fn message_permit_is_free(&self, py: Python<'_>) {
        let sockets = self.connection.get().sockets(py);
        sockets
            .iter()
            .for_each(|socket| socket.get().update_pause(py));
    }

    fn is_held_up(&self, py: Python<'_>) -> bool {
        let stream_id = self.stream_id;
        let connection = self.connection.get();
        // In most cases the stream has space. Then no command is needed.
        let has_room = connection.peek(py, |quic| has_room(quic, stream_id));
        has_room == Some(false)
            && connection
                .with_connections_unraisable(py, |http, quic, now| {
                    http.is_held_up(quic, stream_id, now)
                })
                .unwrap_or(false)
    }

    fn is_short_of_memory(&self, py: Python<'_>) -> bool {
        let connection = self.connection.get();
        connection.queued.is_budget_exceeded()
            && connection
                .with_connections_unraisable(py, |_, quic, _| quic.is_short_of_memory())
                .unwrap_or(false)
    }

    fn wait_for_body(&self, py: Python<'_>) {
        let stream_id = self.stream_id;
        self.connection
            .get()
            .with_http(py, |http, now| http.wait_for_body(stream_id, now));
    }

    fn pause(&self, py: Python<'_>) {
        let stream_id = self.stream_id;
        self.connection
            .get()
            .with_connections_unraisable(py, |http, quic, _| http.pause(quic, stream_id));
    }

    fn resume(&self, py: Python<'_>) {
        let stream_id = self.stream_id;
        self.connection
            .get()
            .with_connections_unraisable(py, |http, quic, _| http.resume(quic, stream_id));
    }

    fn end(&self, py: Python<'_>, ending: Ending) {
        let stream_id = self.stream_id;
        let code = match ending {
            Ending::NoMoreWanted => Code::H3_NO_ERROR,
            Ending::Cancelled => Code::H3_REQUEST_CANCELLED,
            Ending::Failed => Code::H3_INTERNAL_ERROR,
            Ending::NotProcessed => Code::H3_REQUEST_REJECTED,
        };
        self.connection
            .get()
            .with_connections_unraisable(py, |http, quic, now| {
                http.cancel(quic, stream_id, code, now)
            });
    }

    fn done(&self, py: Python<'_>) {
        Http3Connection::request_done(self.connection.bind(py), self.stream_id);
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.connection)
    }
}

fn outcome(sent: PyResult<Option<Result<(), SendError>>>) -> Result<(), Refused> {
    match sent {
        Ok(Some(sent)) => sent.map_err(Refused::from),
        Ok(None) => Err(Refused::Gone),
        Err(error) => Err(Refused::Failed(error)),
    }
}
