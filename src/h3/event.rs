//! What a connection tells its host ([`Event`]) and what it wants done on the QUIC connection
//! ([`Output`]).

use std::borrow::Cow;

use bytes::Bytes;

use super::error::Code;
use super::priority::Priority;
use super::qpack::Field;

/// Which end of the connection we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Client,
    Server,
}

/// Which part of a message a field section is (RFC 9114 section 4.1).
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

/// Something that happened. Events of one stream come in the stream's order.
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
    /// A request's header section has more bytes or lines than [`Settings`](super::Settings) allow
    /// (RFC 9114 section 4.2.2). Nothing more of the request is read; the host sends a response, 431
    /// for one, or cancels. `fields` are the pseudo-header fields that came before the limit, of a
    /// request that may be malformed behind it. Only for hosts that asked for it:
    /// `Connection::set_answers_large_requests`.
    HeadersTooLarge { stream_id: u64, fields: Vec<Field> },
    /// A piece of content, cut as it arrived. Empty only to say `fin`.
    Data {
        stream_id: u64,
        data: Bytes,
        fin: bool,
    },
    /// The server will answer a request that was not made (RFC 9114 section 4.6): these are its
    /// fields, and the answer comes on a push stream, see `Connection::push_id`.
    PushPromise {
        stream_id: u64,
        push_id: u64,
        fields: Vec<Field>,
    },
    /// How the client wants the response on this stream to be served from now on, whatever the
    /// request's `priority` field said (RFC 9218 section 7). What came before the request is told
    /// right after it. For a push it names the push stream.
    PriorityUpdate { stream_id: u64, priority: Priority },
    /// An HTTP datagram (RFC 9297 section 2.1).
    Datagram { stream_id: u64, data: Bytes },
    /// A piece of a WebTransport stream. Empty only to say `fin`.
    WebTransportData {
        session_id: u64,
        stream_id: u64,
        data: Bytes,
        fin: bool,
    },
    /// No more will come on this stream: the peer reset it, or what it sent was malformed and we
    /// gave it up (`local`).
    Reset {
        stream_id: u64,
        code: u64,
        local: bool,
    },
    /// The peer does not want what we send on this stream.
    StopSending { stream_id: u64, code: u64 },
    /// GOAWAY (RFC 9114 section 5.2): requests from this identifier on are not processed.
    GoAway { id: u64 },
}

/// Something to be done on the QUIC connection, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    Write {
        stream_id: u64,
        data: Bytes,
        fin: bool,
    },
    Datagram {
        data: Bytes,
    },
    ResetStream {
        stream_id: u64,
        code: Code,
    },
    StopSending {
        stream_id: u64,
        code: Code,
    },
    /// The last output: close the QUIC connection with this application error.
    CloseConnection {
        code: Code,
        reason: Cow<'static, str>,
    },
}
