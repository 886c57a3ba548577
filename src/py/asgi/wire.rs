//! What a request writes through: one exchange of one connection, whatever the version of HTTP.

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_limits::semaphore::Permit;

use super::open_files::FileClient;

/// Field lines as they are sent.
pub type Fields<'a> = [(&'a [u8], &'a [u8])];

/// Why nothing was sent.
pub enum Refused {
    /// Nobody is there any more.
    Gone,
    /// The application's fault, in words.
    Invalid(String),
    /// The client takes no such header section.
    TooLarge(String),
    /// The connection is out of reach: this is not its loop's thread, for one.
    Failed(PyErr),
}

/// Why an exchange ends before its time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The response is complete, and no more of the request is wanted.
    NoMoreWanted,
    /// It was given up.
    Cancelled,
    /// The application failed in the middle of a response.
    Failed,
    /// The application was never called: the client may ask again.
    NotProcessed,
}

/// One exchange. Its methods run no Python code but for what a foreign loop has to be told.
pub trait Wire: Send + Sync {
    /// A response's status as the first field, and its fields. `end`: nothing follows.
    fn headers(&self, py: Python<'_>, fields: &Fields<'_>, end: bool) -> Result<(), Refused>;

    /// The same with content behind it.
    fn respond(
        &self,
        py: Python<'_>,
        fields: &Fields<'_>,
        content: Bytes,
        end: bool,
    ) -> Result<(), Refused>;

    fn content(&self, py: Python<'_>, content: Bytes, end: bool) -> Result<(), Refused>;

    /// The application has written all that it has for now.
    fn written(&self, py: Python<'_>);

    /// An HTTP datagram that belongs to the exchange; whether there is room for another. What finds none is lost.
    fn datagram(&self, py: Python<'_>, data: &[u8]) -> Result<bool, Refused>;

    /// The client that this response's open files are counted for.
    fn file_client(&self, py: Python<'_>) -> FileClient;

    /// A permit for a file that stays open while its response waits for the client.
    fn file_permit(&self) -> Option<Permit>;

    /// There is a permit for a large message of a WebSocket, for which others have asked in vain.
    fn message_permit_is_free(&self, py: Python<'_>);

    /// Whether to wait before more is sent: `Request::writable` or `Request::disconnect` will be called.
    fn is_held_up(&self, py: Python<'_>) -> bool;

    /// True if the server has no memory for this client's further responses.
    fn is_short_of_memory(&self, py: Python<'_>) -> bool;

    /// The application waits for content.
    fn wait_for_body(&self, py: Python<'_>);

    /// Stops reading the request's content, and with it the client.
    fn pause(&self, py: Python<'_>);

    fn resume(&self, py: Python<'_>);

    /// Ends both directions as far as they are open.
    fn end(&self, py: Python<'_>, ending: Ending);

    /// The application has returned.
    fn done(&self, py: Python<'_>);

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError>;
}
