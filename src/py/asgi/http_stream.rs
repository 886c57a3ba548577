//! The stream that a request writes to: one exchange of one connection, in any version of HTTP.

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_limits::semaphore::Permit;

use super::open_files::FileClient;

/// Field lines as they are sent.
pub type Fields<'a> = [(&'a [u8], &'a [u8])];

/// The reason why nothing was sent.
pub enum Refused {
    /// The client has gone.
    Gone,
    /// The application's fault, as text.
    Invalid(String),
    /// The client accepts no header section of that size.
    TooLarge(String),
    /// The connection is out of reach, for example because this is not its loop's thread.
    Failed(PyErr),
}

/// The reason why an exchange ends early.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The response is complete, and no more of the request is needed.
    NoMoreWanted,
    /// The request was cancelled.
    Cancelled,
    /// The application failed in the middle of a response.
    Failed,
    /// The application was never called: the client may repeat the request.
    NotProcessed,
}

/// One exchange. Its methods run no Python code, except the function that makes a foreign loop send.
pub trait HttpStream: Send + Sync {
    /// Sends a response's status, as the first field, and its fields. `end`: nothing follows.
    fn headers(&self, py: Python<'_>, fields: &Fields<'_>, end: bool) -> Result<(), Refused>;

    /// Sends the headers like `headers`, followed by content.
    fn respond(
        &self,
        py: Python<'_>,
        fields: &Fields<'_>,
        content: Bytes,
        end: bool,
    ) -> Result<(), Refused>;

    fn content(&self, py: Python<'_>, content: Bytes, end: bool) -> Result<(), Refused>;

    /// The application has written everything it has for now.
    fn written(&self, py: Python<'_>);

    /// Sends an HTTP datagram of the exchange. True if there is space for another one. A datagram without space is
    /// lost.
    fn datagram(&self, py: Python<'_>, data: &[u8]) -> Result<bool, Refused>;

    /// The client that this response's open files are charged to.
    fn file_client(&self, py: Python<'_>) -> FileClient;

    /// A permit for a file that stays open while its response waits for the client.
    fn file_permit(&self) -> Option<Permit>;

    /// A permit for a large message of a WebSocket is free, and other WebSockets have failed to get one.
    fn message_permit_is_free(&self, py: Python<'_>);

    /// True if the sender should wait: `Request::writable` or `Request::disconnect` will be called.
    fn is_held_up(&self, py: Python<'_>) -> bool;

    /// True if the server has no memory for this client's further responses.
    fn is_short_of_memory(&self, py: Python<'_>) -> bool;

    /// The application waits for content.
    fn wait_for_body(&self, py: Python<'_>);

    /// Stops reading the request's content, which stops the client.
    fn pause(&self, py: Python<'_>);

    fn resume(&self, py: Python<'_>);

    /// Ends both directions if they are open.
    fn end(&self, py: Python<'_>, ending: Ending);

    /// The application has returned.
    fn done(&self, py: Python<'_>);

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError>;
}
