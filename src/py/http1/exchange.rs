//! One request of an HTTP/1.1 connection and its response, as the [`HttpStream`] of a request.

use std::time::Instant;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_http::http1::Connection;
use uringcore_http::response_errors::SendError;
use uringcore_io::SentFile;
use uringcore_limits::semaphore::Permit;

use super::connection::Http1Connection;
use crate::asgi::http_stream::{Ending, Fields, HttpStream, Refused};
use crate::asgi::open_file_permits::FileClient;

pub struct Exchange {
    pub connection: Py<Http1Connection>,
    /// The number of the request on its connection. Commands with the number of an earlier request do nothing.
    pub serial: u64,
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
            .with_http(py, |http| command(http, self.serial, now));
        sent?;
        Http1Connection::flush(connection).map_err(Refused::Failed)
    }
}

impl HttpStream for Exchange {
    fn headers(&self, py: Python<'_>, fields: &Fields<'_>, end: bool) -> Result<(), Refused> {
        self.send(py, |http, serial, now| {
            http.send_headers(serial, fields, end, now)
        })
    }

    fn respond(
        &self,
        py: Python<'_>,
        fields: &Fields<'_>,
        content: Bytes,
        end: bool,
    ) -> Result<(), Refused> {
        self.send(py, |http, serial, now| {
            http.respond(serial, fields, content, end, now)
        })
    }

    fn content(&self, py: Python<'_>, content: Bytes, end: bool) -> Result<(), Refused> {
        self.send(py, |http, serial, now| {
            http.send_data(serial, content, end, now)
        })
    }

    fn frame(&self, py: Python<'_>, head: &[u8], payload: Bytes) -> Result<(), Refused> {
        self.send(py, |http, serial, _| http.send_frame(serial, head, payload))
    }

    fn send_file(&self, py: Python<'_>, file: &SentFile, offset: u64, length: u64) -> u64 {
        self.connection
            .get()
            .send_file(py, self.serial, file, offset, length)
    }

    fn repeats_answers(&self) -> bool {
        true
    }

    /// Does nothing, because each command has written its bytes, and the engine sends the bytes of a loop iteration
    /// together.
    fn written(&self, _py: Python<'_>) {}

    fn datagram(&self, _py: Python<'_>, _data: &[u8]) -> Result<bool, Refused> {
        Err(Refused::Invalid("HTTP/1.1 has no datagrams".to_owned()))
    }

    fn file_client(&self, _py: Python<'_>) -> FileClient {
        self.connection.get().file_client()
    }

    fn file_permit(&self) -> Option<Permit> {
        self.connection.get().files.take()
    }

    fn message_permit_is_free(&self, py: Python<'_>) {
        if let Some(request) = self.connection.get().request(py) {
            request.get().update_pause(py);
        }
    }

    fn is_held_up(&self, py: Python<'_>) -> bool {
        self.connection.get().is_writing_paused(py)
    }

    fn is_short_of_memory(&self, py: Python<'_>) -> bool {
        self.connection.get().is_short_of_memory(py)
    }

    fn wait_for_body(&self, py: Python<'_>) {
        let now = Instant::now();
        self.connection
            .get()
            .with_http(py, |http| http.wait_for_body(self.serial, now));
    }

    fn pause(&self, py: Python<'_>) {
        self.change(py, |http| http.set_paused(self.serial, true));
    }

    fn resume(&self, py: Python<'_>) {
        self.change(py, |http| http.set_paused(self.serial, false));
    }

    fn end(&self, py: Python<'_>, ending: Ending) {
        // After a complete response, the connection drops the rest of the request without a command.
        if ending != Ending::NoMoreWanted {
            let now = Instant::now();
            self.change(py, |http| http.abandon(self.serial, now));
        }
    }

    fn done(&self, py: Python<'_>) {
        let connection = self.connection.bind(py);
        if let Err(error) = Http1Connection::request_done(connection, self.serial) {
            error.write_unraisable(py, Some(connection));
        }
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.connection)
    }
}

impl Exchange {
    /// Runs a command whose caller cannot handle an exception. An exception goes to `sys.unraisablehook`; it occurs if
    /// the transport cannot be used, for instance because this is not the thread of its loop.
    fn change(&self, py: Python<'_>, command: impl FnOnce(&mut Connection)) {
        let connection = self.connection.bind(py);
        connection.get().with_http(py, command);
        if let Err(error) = Http1Connection::flush(connection) {
            error.write_unraisable(py, Some(connection));
        }
    }
}
