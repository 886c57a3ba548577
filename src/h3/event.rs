//! A connection's events for its host.

use bytes::Bytes;

use super::priority::Priority;
use super::qpack::Field;

/// Our end of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Client,
    Server,
}

/// The part of a message that a field section is (RFC 9114 section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadersKind {
    /// A request's header section.
    Request,
    /// An interim response: others follow.
    Informational,
    /// The final response.
    Response,
    Trailers,
}

/// An event. Events of one stream are in the stream's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The peer's SETTINGS arrived; see `Connection::received_settings`.
    SettingsReceived,
    Headers {
        stream_id: u64,
        fields: Vec<Field>,
        kind: HeadersKind,
        fin: bool,
    },
    /// A request's header section has more bytes or lines than [`Settings`](super::Settings) allow (RFC 9114
    /// section 4.2.2). Nothing more of the request is read; the host sends a response, such as 431, or cancels.
    /// `fields` are the pseudo-header fields before the limit; the rest of the request may be malformed. Only with
    /// `Connection::set_answers_large_requests`.
    HeadersTooLarge { stream_id: u64, fields: Vec<Field> },
    /// A piece of content, as it arrived. Empty only to carry `fin`.
    Data {
        stream_id: u64,
        data: Bytes,
        fin: bool,
    },
    /// The server will answer a request that was not made (RFC 9114 section 4.6), with these fields. The response
    /// follows on a push stream, see `Connection::push_id`.
    PushPromise {
        stream_id: u64,
        push_id: u64,
        fields: Vec<Field>,
    },
    /// The priority of the response on this stream from now on, which overrides the request's `priority` field (RFC
    /// 9218 section 7). An update that arrived before the request is reported right after it.
    PriorityUpdate { stream_id: u64, priority: Priority },
    /// An HTTP datagram (RFC 9297 section 2.1).
    Datagram { stream_id: u64, data: Bytes },
    /// A piece of a WebTransport stream. Empty only to carry `fin`.
    WebTransportData {
        session_id: u64,
        stream_id: u64,
        data: Bytes,
        fin: bool,
    },
    /// Nothing more follows on this stream: the peer reset it, or its data was malformed and we abandoned it
    /// (`local`).
    Reset {
        stream_id: u64,
        code: u64,
        local: bool,
    },
    /// The peer sent STOP_SENDING for our direction of this stream.
    StopSending { stream_id: u64, code: u64 },
    /// GOAWAY (RFC 9114 section 5.2): requests from this identifier on are not processed.
    GoAway { id: u64 },
}
