//! What a connection tells its host: the [`Event`]s, the reason a connection ended, and the pieces
//! of received stream data.
//!
//! Not here: when an event is produced (`connection`), and what happens to it afterwards (the
//! host's business).

use std::{net::SocketAddr, time::Instant};

use bytes::Bytes;

use crate::tls::SessionTicket;

/// Something that happened on a connection, in the order in which it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A server's endpoint took a new connection. Always the first event of such a connection.
    Accepted,
    /// The application protocol is agreed (RFC 7301); `None` when neither side offered any.
    ProtocolNegotiated { alpn: Option<Vec<u8>> },
    /// The handshake is complete (RFC 9001 section 4.1.1): the peer is authenticated and streams
    /// may be used.
    HandshakeCompleted {
        alpn: Option<Vec<u8>>,
        early_data_accepted: bool,
        session_resumed: bool,
    },
    /// All data that could be read in order when the event was polled. `fin` is said once, with the
    /// last data.
    StreamData {
        stream_id: u64,
        data: Chunks,
        fin: bool,
    },
    /// The peer has opened the stream, or something can be read of it, or of its end. Instead of
    /// `StreamData` and `StreamReset`, and once until the next read, on connections that are
    /// [read on demand](super::Connection::read_on_demand).
    StreamReadable { stream_id: u64 },
    /// The peer allows more streams of ours than before. Only on connections read on demand, whose host
    /// opens its streams by [`open_stream`](super::Connection::open_stream).
    StreamsAvailable { unidirectional: bool },
    /// The peer abandoned its side of the stream (RFC 9000 section 19.4).
    StreamReset { stream_id: u64, error_code: u64 },
    /// The peer wants no more data (RFC 9000 section 19.5). Our side has already been reset with
    /// the same code, and the `unsent` bytes of its queue dropped.
    StopSending {
        stream_id: u64,
        error_code: u64,
        unsent: usize,
    },
    /// The send queue fell to the low watermark after it had reached the high one.
    StreamWritable { stream_id: u64 },
    /// Our side of the stream was reset, by whomever, while its send queue was at the high
    /// watermark or on its way down from there: `StreamWritable` will not come.
    StreamAbandoned { stream_id: u64 },
    /// What waits on all streams together fell to the low watermark, and the datagrams that wait
    /// to a quarter of their bound, after one of them had reached the high watermark, or half
    /// of the bound.
    ConnectionWritable { queued_bytes: usize },
    /// The move to another socket that the host asked for has ended: the peer was heard there, or
    /// the connection is back where it was.
    MigrationFinished { succeeded: bool },
    /// A server's client has moved, and has proved to receive packets at its new address (RFC 9000 section 9.3), which
    /// [`validated_addr`](super::Connection::validated_addr) is from now on. Not told of a client's first address.
    AddressValidated { address: SocketAddr },
    /// Our FIN and all data before it were acknowledged.
    StreamFinished { stream_id: u64 },
    /// One DATAGRAM frame (RFC 9221). `early`: it may have come as 0-RTT data, which an attacker can
    /// replay (RFC 9001 section 9.2).
    Datagram { data: Bytes, early: bool },
    /// The next packets give the peer a further connection ID of this side's. Only with
    /// [`tells_connection_ids`](super::EndpointSettings::tells_connection_ids).
    ConnectionIdIssued { id: Vec<u8> },
    /// The peer will not use one of this side's connection IDs any more.
    ConnectionIdRetired { id: Vec<u8> },
    /// All that a batch of datagrams brought has been told, or what a timer did. Only after
    /// [`tell_batches`](super::Connection::tell_batches).
    BatchHandled,
    /// A packet that carried the PING asked for with `uid` was acknowledged.
    PingAcknowledged { uid: u64 },
    /// A client got a ticket with which it can resume the session in another connection.
    SessionTicket(Box<SessionTicket>),
    /// A client got a token that validates its address in another connection (RFC 9000 section
    /// 8.1.3).
    NewToken {
        token: Bytes,
        /// The version that it is for (RFC 9369 section 5).
        version: u32,
    },
    /// Of no connection: a client shows tickets, and the host is asked to put their sessions where
    /// the server's store takes them from, and then to call
    /// [`Endpoint::sessions_answered`](super::Endpoint::sessions_answered). Only with
    /// [`ServerSettings::asks_for_sessions`](super::ServerSettings::asks_for_sessions).
    SessionsAsked {
        question: u64,
        /// When the handshake goes on without an answer.
        deadline: Instant,
        tickets: Vec<Vec<u8>>,
        /// What names the address validation token that the client shows too, with
        /// [`ServerSettings::asks_for_tokens`](super::ServerSettings::asks_for_tokens). One that was
        /// used before is answered with
        /// [`Endpoint::token_refused`](super::Endpoint::token_refused) instead.
        token: Option<u128>,
    },
    /// The connection ended. Exactly once, and the last event of the connection.
    Closed {
        error_code: u64,
        frame_type: Option<u64>,
        reason: String,
        kind: CloseKind,
    },
}

impl Event {
    /// True if it is about what a protocol above QUIC sends and receives, and not about the connection as
    /// such.
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

/// Who or what ended a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseKind {
    /// This side: the host called `close`, or the peer broke the protocol (then the frame type is
    /// known).
    Local,
    /// The peer's application, with its own error code.
    PeerApplication,
    /// The peer's transport (RFC 9000 section 20.1).
    PeerTransport,
    /// The TLS handshake failed, at either side (RFC 9001 section 4.8).
    Tls { alert: u8 },
    /// Nothing was heard for the idle time-out, or the handshake did not finish in its time.
    IdleTimeout,
    /// The peer lost its state (RFC 9000 section 10.3).
    StatelessReset,
    /// The peer speaks no version that we do.
    VersionNegotiation,
    /// The network said that nobody is there (ICMP), while the handshake was still running.
    Unreachable { errno: i32 },
}

/// What a read of a stream gave: data, and its end if nothing comes behind that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Received {
    pub data: Chunks,
    pub end: Option<StreamEnd>,
}

/// How the peer's side of a stream has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// By a FIN: all of it has come.
    Finished,
    /// By a RESET_STREAM (RFC 9000 section 19.4).
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

    /// True if any of it came as 0-RTT data, which an attacker can replay (RFC 9001 section 9.2).
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
    /// When `target` is not exactly [`len`](Self::len) bytes long.
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

    /// Takes the first `count` bytes out; all of them if there are fewer.
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

    /// Adds what came behind it.
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

/// Equal when the bytes are, however they are cut.
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
