//! One stream of an HTTP/2 connection, as the [`HttpStream`] of a request.

use std::time::Instant;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_http::http2::{Code, Connection};
use uringcore_http::response_errors::SendError;
use uringcore_limits::semaphore::Permit;

use super::connection::Http2Connection;
use crate::asgi::http_stream::{Ending, Fields, HttpStream, Refused, fitting};
use crate::asgi::open_file_permits::FileClient;

pub struct Exchange {
    pub connection: Py<Http2Connection>,
    pub stream_id: u64,
    /// The method is HEAD in another case, such as `head` ([`fitting`]).
    pub is_mistaken_for_head: bool,
}

impl Exchange {
    fn send(
        &self,
        py: Python<'_>,
        command: impl FnOnce(&mut Connection, u64, Instant) -> Result<(), SendError>,
    ) -> Result<(), Refused> {
        let connection = self.connection.bind(py);
        let now = Instant::now();
        let sent = connection
            .get()
            .with_http(py, |http| command(http, self.stream_id, now));
        sent?;
        Http2Connection::flush(connection).map_err(Refused::Failed)
    }

    /// Runs a command whose caller cannot handle an exception. An exception goes to `sys.unraisablehook`; it occurs if
    /// the transport cannot be used, for instance because this is not the thread of its loop.
    fn change(&self, py: Python<'_>, command: impl FnOnce(&mut Connection)) {
        let connection = self.connection.bind(py);
        connection.get().with_http(py, command);
        if let Err(error) = Http2Connection::flush(connection) {
            error.write_unraisable(py, Some(connection));
        }
    }
}

impl HttpStream for Exchange {
    fn headers(&self, py: Python<'_>, fields: &Fields<'_>, end: bool) -> Result<(), Refused> {
        let fields = fitting(fields, self.is_mistaken_for_head);
        self.send(py, |http, stream_id, now| {
            http.send_headers(stream_id, &fields, end, now)
        })
    }

    fn respond(
        &self,
        py: Python<'_>,
        fields: &Fields<'_>,
        content: Bytes,
        end: bool,
    ) -> Result<(), Refused> {
        let fields = fitting(fields, self.is_mistaken_for_head);
        self.send(py, |http, stream_id, now| {
            http.respond(stream_id, &fields, content, end, now)
        })
    }

    fn content(&self, py: Python<'_>, content: Bytes, end: bool) -> Result<(), Refused> {
        self.send(py, |http, stream_id, now| {
            http.send_data(stream_id, content, end, now)
        })
    }

    /// Does nothing, because each command has written its bytes, and the engine sends the bytes of a loop iteration
    /// together.
    fn written(&self, _py: Python<'_>) {}

    fn datagram(&self, _py: Python<'_>, _data: &[u8]) -> Result<bool, Refused> {
        Err(Refused::Invalid("HTTP/2 has no datagrams".to_owned()))
    }

    fn file_client(&self, _py: Python<'_>) -> FileClient {
        self.connection.get().file_client()
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
        self.connection.get().is_held_up(py, self.stream_id)
    }

    fn is_short_of_memory(&self, py: Python<'_>) -> bool {
        self.connection.get().is_short_of_memory(py)
    }

    fn wait_for_body(&self, py: Python<'_>) {
        let now = Instant::now();
        self.connection
            .get()
            .with_http(py, |http| http.wait_for_body(self.stream_id, now));
    }

    fn pause(&self, py: Python<'_>) {
        self.connection
            .get()
            .with_http(py, |http| http.pause(self.stream_id));
    }

    fn resume(&self, py: Python<'_>) {
        self.change(py, |http| http.resume(self.stream_id));
    }

    fn end(&self, py: Python<'_>, ending: Ending) {
        let code = match ending {
            Ending::NoMoreWanted => Code::NoError,
            Ending::Cancelled => Code::Cancel,
            Ending::Failed => Code::InternalError,
            Ending::NotProcessed => Code::RefusedStream,
        };
        let now = Instant::now();
        self.change(py, |http| http.cancel(self.stream_id, code, now));
    }

    fn done(&self, py: Python<'_>) {
        let connection = self.connection.bind(py);
        connection.get().request_done(py, self.stream_id);
        let now = Instant::now();
        self.change(py, |http| http.done(self.stream_id, now));
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.connection)
    }
}
