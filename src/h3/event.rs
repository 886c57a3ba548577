//! The events of a connection for its host.

use bytes::Bytes;

use super::priority::Priority;
use super::qpack::Field;

/// The role of this side of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Client,
    Server,
}

/// The kind of a field section by its position in the message (RFC 9114 section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadersKind {
    /// The header section of a request.
    Request,
    /// The header section of an interim (1xx) response; another response follows.
    Informational,
    /// The header section of the final response.
    Response,
    Trailers,
}

/// An event of a connection. The events of one stream are in the order of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The peer's SETTINGS have arrived; `Connection::received_settings` returns them.
    SettingsReceived,
    Headers {
        stream_id: u64,
        fields: Vec<Field>,
        kind: HeadersKind,
        fin: bool,
    },
    /// A request's header section has more bytes or lines than [`Settings`](super::Settings) allow (RFC 9114 section
    /// 4.2.2). The rest of the request is not read; the host sends a response such as 431, or cancels the request.
    /// `fields` are the pseudo-header fields that came before the limit; the fields after it may be malformed. This
    /// event comes only with `Connection::set_answers_large_requests`.
    HeadersTooLarge { stream_id: u64, fields: Vec<Field> },
    /// A piece of a message's content, as it arrived. The data is empty only if `fin` is true.
    Data {
        stream_id: u64,
        data: Bytes,
        fin: bool,
    },
    /// The server promises a response to a request with these fields, which the client did not send (RFC 9114 section
    /// 4.6). The response arrives on a push stream; `Connection::push_id` identifies it.
    PushPromise {
        stream_id: u64,
        push_id: u64,
        fields: Vec<Field>,
    },
    /// The new priority of the response on this stream. It overrides the request's `priority` field (RFC 9218 section
    /// 7). An update that arrived before its request is reported right after the request.
    PriorityUpdate { stream_id: u64, priority: Priority },
    /// An HTTP datagram (RFC 9297 section 2.1).
    Datagram { stream_id: u64, data: Bytes },
    /// A piece of data of a WebTransport stream. Empty data occurs only with `fin`.
    WebTransportData {
        session_id: u64,
        stream_id: u64,
        data: Bytes,
        fin: bool,
    },
    /// The peer's direction of the stream has ended early, so no more events follow for it. The peer has reset it, or
    /// (`local`) this side has abandoned it because its data was malformed.
    Reset {
        stream_id: u64,
        code: u64,
        local: bool,
    },
    /// The peer has sent STOP_SENDING for this side's direction of the stream.
    StopSending { stream_id: u64, code: u64 },
    /// The peer has sent GOAWAY (RFC 9114 section 5.2): it does not process requests from this identifier on.
    GoAway { id: u64 },
}
