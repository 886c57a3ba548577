//! The [`Event`]s of a connection, the kinds of its end, and received stream data.
//!
//! Not here: the emission of events (`connection`), and the host's reaction.

use std::{net::SocketAddr, time::Instant};

use bytes::Bytes;

use crate::tls::SessionTicket;

/// Something that happened on a connection, in the order in which it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A server's endpoint has accepted a new connection. Always the connection's first event.
    Accepted,
    /// The application protocol is negotiated (RFC 7301); `None` if neither side offered any.
    ProtocolNegotiated { alpn: Option<Vec<u8>> },
    /// The handshake is complete (RFC 9001 section 4.1.1): the peer is authenticated and streams
    /// may be used.
    HandshakeCompleted {
        alpn: Option<Vec<u8>>,
        early_data_accepted: bool,
        session_resumed: bool,
    },
    /// All data that could be read in order when the event was polled. `fin` is set once, with the last data.
    StreamData {
        stream_id: u64,
        data: Chunks,
        fin: bool,
    },
    /// The peer has opened the stream, or data or the end can be read. Emitted instead of `StreamData` and
    /// `StreamReset`, once until the next read, on connections that are [read on
    /// demand](super::Connection::read_on_demand).
    StreamReadable { stream_id: u64 },
    /// The peer allows more streams of ours than before. Only on connections read on demand, whose host opens its
    /// streams by [`open_stream`](super::Connection::open_stream).
    StreamsAvailable { unidirectional: bool },
    /// The peer has reset its side of the stream (RFC 9000 section 19.4).
    StreamReset { stream_id: u64, error_code: u64 },
    /// The peer has sent STOP_SENDING (RFC 9000 section 19.5). Our side was already reset with this code, and
    /// the `unsent` bytes of its queue dropped.
    StopSending {
        stream_id: u64,
        error_code: u64,
        unsent: usize,
    },
    /// The send queue fell to the low watermark after it had reached the high one.
    StreamWritable { stream_id: u64 },
    /// Our side of the stream was reset, by either side, while its send queue was at the high watermark or on its
    /// way down from there: `StreamWritable` will not come.
    StreamAbandoned { stream_id: u64 },
    /// The queues of all streams together fell to the low watermark, and the datagram queue to a quarter of its
    /// bound, after the former had reached the high watermark or the latter half of its bound.
    ConnectionWritable { queued_bytes: usize },
    /// The host's migration to another socket has ended: the peer has answered there, or the connection has
    /// returned to its old path.
    MigrationFinished { succeeded: bool },
    /// A server's client has migrated and has proved its new address (RFC 9000 section 9.3), which
    /// [`validated_addr`](super::Connection::validated_addr) returns from now on. Not emitted for a client's first
    /// address.
    AddressValidated { address: SocketAddr },
    /// Our FIN and all data before it were acknowledged.
    StreamFinished { stream_id: u64 },
    /// One DATAGRAM frame (RFC 9221). `early`: it may have been 0-RTT data, which an attacker can replay (RFC 9001
    /// section 9.2).
    Datagram { data: Bytes, early: bool },
    /// The next packets issue a further connection ID of this side to the peer. Only with
    /// [`reports_connection_ids`](super::EndpointSettings::reports_connection_ids).
    ConnectionIdIssued { id: Vec<u8> },
    /// The peer has retired one of this side's connection IDs.
    ConnectionIdRetired { id: Vec<u8> },
    /// All events of a batch of datagrams, or of a timer, have been delivered. Only after
    /// [`report_batches`](super::Connection::tell_batches).
    BatchHandled,
    /// A packet with the PING of `uid` was acknowledged.
    PingAcknowledged { uid: u64 },
    /// A client received a ticket with which it can resume the session in another connection.
    SessionTicket(Box<SessionTicket>),
    /// A client received a token that validates its address in another connection (RFC 9000 section 8.1.3).
    NewToken {
        token: Bytes,
        /// The version of the token (RFC 9369 section 5).
        version: u32,
    },
    /// A client offers tickets. The host must put their sessions where the server's store finds them, and then call
    /// [`Endpoint::sessions_answered`](super::Endpoint::sessions_answered). This event belongs to no connection.
    /// Only with [`ServerSettings::asks_for_sessions`](super::ServerSettings::asks_for_sessions).
    SessionsAsked {
        question: u64,
        /// The time at which the handshake proceeds without an answer.
        deadline: Instant,
        tickets: Vec<Vec<u8>>,
        /// The identifier of the address validation token that the client sent as well, with
        /// [`ServerSettings::asks_for_tokens`](super::ServerSettings::asks_for_tokens). For a token that was used
        /// before the host calls [`Endpoint::token_refused`](super::Endpoint::token_refused) instead.
        token: Option<u128>,
    },
    /// The connection has ended. Emitted exactly once, as the last event of the connection.
    Closed {
        error_code: u64,
        frame_type: Option<u64>,
        reason: String,
        kind: CloseKind,
    },
}

impl Event {
    /// True if the event concerns a protocol above QUIC, and not the connection as such.
    pub fn is_about_streams(&self) -> bool {
        matches!(
            self,
            Self::StreamData { .. }
                | Self::StreamReadable { .. }
                | Self::StreamsAvailable { .. }
                | Self::StreamReset { .. }
                | Self::StopSending { .. }
                | Self::StreamWritable { .. }
                | Self::StreamAbandoned { .. }
                | Self::StreamFinished { .. }
                | Self::ConnectionWritable { .. }
                | Self::Datagram { .. }
        )
    }
}

/// The cause of a connection's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseKind {
    /// This side: the host called `close`, or the peer violated the protocol (then the frame type is known).
    Local,
    /// The peer's application, with its own error code.
    PeerApplication,
    /// The peer's transport (RFC 9000 section 20.1).
    PeerTransport,
    /// The TLS handshake failed, at either side (RFC 9001 section 4.8).
    Tls { alert: u8 },
    /// Nothing arrived for the idle time-out, or the handshake did not complete in time.
    IdleTimeout,
    /// The peer lost its state (RFC 9000 section 10.3).
    StatelessReset,
    /// The peer supports no version that we do.
    VersionNegotiation,
    /// The network reported the peer as unreachable (ICMP) during the handshake.
    Unreachable { errno: i32 },
}

/// The result of reading a stream: data, and the end if no data follows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Received {
    pub data: Chunks,
    pub end: Option<StreamEnd>,
}

/// How the peer's side of a stream has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// Ended by a FIN: all data has arrived.
    Finished,
    /// Ended by a RESET_STREAM (RFC 9000 section 19.4).
    Reset { error_code: u64 },
}

/// Received stream data, in order, as the pieces in which it arrived.
///
/// Each piece pins the receive buffer that it arrived in: copy it out promptly.
#[derive(Debug, Clone, Default)]
pub struct Chunks {
    pieces: Vec<Bytes>,
    len: usize,
    pub(super) early: bool,
}

impl Chunks {
    /// Total number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True if any of it was 0-RTT data, which an attacker can replay (RFC 9001 section 9.2).
    pub fn is_early(&self) -> bool {
        self.early
    }

    /// The pieces, none of them empty.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    pub fn into_pieces(self) -> Vec<Bytes> {
        self.pieces
    }

    /// Copies everything into `target`.
    ///
    /// # Panics
    /// If `target` is not exactly [`len`](Self::len) bytes long.
    pub fn copy_into(&self, target: &mut [u8]) {
        assert_eq!(
            target.len(),
            self.len,
            "the target must have the length of the data"
        );
        let mut rest = target;
        for piece in &self.pieces {
            let (head, tail) = rest.split_at_mut(piece.len());
            head.copy_from_slice(piece);
            rest = tail;
        }
    }

    /// Takes out the first `count` bytes; all of them if there are fewer.
    pub fn split_to(&mut self, count: usize) -> Self {
        if count >= self.len {
            return std::mem::take(self);
        }
        let mut front = Self {
            early: self.early,
            ..Self::default()
        };
        let mut rest = std::mem::take(&mut self.pieces).into_iter();
        while front.len < count
            && let Some(mut piece) = rest.next()
        {
            let taken = piece.split_to(piece.len().min(count - front.len));
            front.push(taken);
            if !piece.is_empty() {
                self.pieces.push(piece);
            }
        }
        self.pieces.extend(rest);
        self.len -= front.len;
        front
    }

    /// Appends the data that follows.
    pub fn append(&mut self, behind: Self) {
        self.len += behind.len;
        self.early |= behind.early;
        match self.pieces.is_empty() {
            true => self.pieces = behind.pieces,
            false => self.pieces.extend(behind.pieces),
        }
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len);
        self.pieces
            .iter()
            .for_each(|piece| all.extend_from_slice(piece));
        all
    }

    pub(super) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push(piece);
        }
    }
}

/// Compares the bytes, not the pieces.
impl PartialEq for Chunks {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len
            && self
                .pieces
                .iter()
                .flat_map(|p| p.iter())
                .eq(other.pieces.iter().flat_map(|p| p.iter()))
    }
}

impl Eq for Chunks {}

impl From<Bytes> for Chunks {
    fn from(piece: Bytes) -> Self {
        let mut chunks = Self::default();
        chunks.push(piece);
        chunks
    }
}
