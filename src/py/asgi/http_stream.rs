//! [`HttpStream`]: the stream of one request and its response, in any version of HTTP.

use std::borrow::Cow;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_http::response_errors::SendError;
use uringcore_io::SentFile;
use uringcore_limits::semaphore::Permit;

use super::open_file_permits::FileClient;

/// Field lines as they are sent.
pub type Fields<'a> = [(&'a [u8], &'a [u8])];

/// The reason for which nothing was sent.
pub enum Refused {
    /// The client has gone.
    Gone,
    /// The application has made a mistake, which the text describes.
    Invalid(String),
    /// The client does not accept a header section of this size.
    TooLarge(String),
    /// The connection cannot be used now, for instance because this is not the thread of its loop.
    Failed(PyErr),
}

impl From<SendError> for Refused {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Gone => Self::Gone,
            SendError::Invalid(reason) => Self::Invalid(reason),
            SendError::TooLarge { .. } => Self::TooLarge(error.to_string()),
        }
    }
}

/// Returns the fields without Content-Length if the method is HEAD in another case, such as `head`. The application takes
/// the method for HEAD, so its response has no content, and the client expects content (RFC 9110 section 9.1).
pub fn fitting<'a, 'b>(fields: &'a Fields<'b>, is_mistaken_for_head: bool) -> Cow<'a, Fields<'b>> {
    if !is_mistaken_for_head {
        return Cow::Borrowed(fields);
    }
    let kept = fields.iter().filter(|(name, _)| *name != b"content-length");
    Cow::Owned(kept.copied().collect())
}

/// The reason for which an exchange ends early.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The response is complete, and the rest of the request is not needed.
    NoMoreWanted,
    /// The request was cancelled.
    Cancelled,
    /// The application has failed in the middle of a response.
    Failed,
    /// The application was never called, so the client may repeat the request.
    NotProcessed,
}

/// The stream of one request. Its methods run no Python code, except for the function that makes a foreign loop send.
pub trait HttpStream: Send + Sync {
    /// Sends the fields of a response, with the status as the first one. With `end`, nothing follows.
    fn headers(&self, py: Python<'_>, fields: &Fields<'_>, end: bool) -> Result<(), Refused>;

    /// Sends the fields of a response as `headers` does, followed by content.
    fn respond(
        &self,
        py: Python<'_>,
        fields: &Fields<'_>,
        content: Bytes,
        end: bool,
    ) -> Result<(), Refused>;

    fn content(&self, py: Python<'_>, content: Bytes, end: bool) -> Result<(), Refused>;

    /// Sends a frame of a WebSocket as content: its header and its payload.
    fn frame(&self, py: Python<'_>, head: &[u8], payload: Bytes) -> Result<(), Refused> {
        self.content(py, [head, &payload].concat().into(), false)
    }

    /// Sends up to `length` bytes of a file as content without a copy, if the transport can do that now. Returns the number
    /// of sent bytes. It is 0 if the bytes have to be read and sent as content.
    fn send_file(&self, _py: Python<'_>, _file: &SentFile, _offset: u64, _length: u64) -> u64 {
        0
    }

    /// True if requests like this one are looked up in the table of answers with files (`static_answers`).
    fn repeats_answers(&self) -> bool {
        false
    }

    /// Lets the loop send the written data. Called when the application has written all that it has at present.
    fn written(&self, py: Python<'_>);

    /// Sends an HTTP datagram of the request. Returns true if there is space for another one. A datagram without space
    /// is lost.
    fn datagram(&self, py: Python<'_>, data: &[u8]) -> Result<bool, Refused>;

    /// The client to which the open files of this response are charged.
    fn file_client(&self, py: Python<'_>) -> FileClient;

    /// Takes a permit for a file that stays open while its response waits for the client.
    fn file_permit(&self) -> Option<Permit>;

    /// Notifies WebSockets that have failed to get a permit for a large message, because one is free.
    fn message_permit_is_free(&self, py: Python<'_>);

    /// True if the sender has to wait. `Request::writable` or `Request::disconnect` will be called.
    fn is_held_up(&self, py: Python<'_>) -> bool;

    /// True if the server has no memory for further responses to this client.
    fn is_short_of_memory(&self, py: Python<'_>) -> bool;

    /// Records that the application waits for content.
    fn wait_for_body(&self, py: Python<'_>);

    /// Stops reading the request's content. The client then has to stop sending.
    fn pause(&self, py: Python<'_>);

    fn resume(&self, py: Python<'_>);

    /// Ends both directions, if they are open.
    fn end(&self, py: Python<'_>, ending: Ending);

    /// Releases the stream, because the application has returned.
    fn done(&self, py: Python<'_>);

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError>;
}
