//! The [`Event`]s of a connection, the kinds of its end, and received stream data.
//!
//! Not here: the code that emits the events (`connection`).

use std::{net::SocketAddr, time::Instant};

use bytes::Bytes;

use crate::tls::SessionTicket;

/// An event of a connection. Events are delivered in the order in which they happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A server's endpoint has accepted a new connection. This is the connection's first event.
    Accepted,
    /// The application protocol was negotiated (RFC 7301). `None` if neither side has offered any.
    ProtocolNegotiated { alpn: Option<Vec<u8>> },
    /// The handshake is complete (RFC 9001 section 4.1.1). The peer is authenticated, and streams can be used.
    HandshakeCompleted {
        alpn: Option<Vec<u8>>,
        early_data_accepted: bool,
        session_resumed: bool,
    },
    /// All data of a stream that had arrived in order when the event was polled. `fin` is true in the last such event.
    StreamData {
        stream_id: u64,
        data: Chunks,
        fin: bool,
    },
    /// A stream was opened by the peer, has data or has ended. Emitted instead of `StreamData` and `StreamReset` if the
    /// connection is [read on demand](super::Connection::read_on_demand), once until the next read.
    StreamReadable { stream_id: u64 },
    /// The peer allows more streams than before. Emitted only if the connection is read on demand, whose application
    /// opens streams by [`open_stream`](super::Connection::open_stream).
    StreamsAvailable { unidirectional: bool },
    /// The peer has reset its sending part of the stream (RFC 9000 section 19.4).
    StreamReset { stream_id: u64, error_code: u64 },
    /// The peer has sent STOP_SENDING (RFC 9000 section 19.5). In answer this side has reset its sending part of the
    /// stream with the same code, and has dropped `unsent` bytes that were queued on it.
    StopSending {
        stream_id: u64,
        error_code: u64,
        unsent: usize,
    },
    /// The stream's send queue has fallen to the low watermark, after it had reached the high one.
    StreamWritable { stream_id: u64 },
    /// The sending part of the stream was reset, by this side or because of STOP_SENDING, while the application waited
    /// for a `StreamWritable`. That event does not follow any more.
    StreamAbandoned { stream_id: u64 },
    /// The send queues have room again: those of all streams together are at the low watermark, and the datagram queue
    /// is at a quarter of its bound. Emitted after the streams were at the high watermark or the datagram queue was
    /// half full.
    ConnectionWritable { queued_bytes: usize },
    /// A migration to another socket has ended. `succeeded` is true if the peer has answered there, and false if the
    /// connection has returned to its old path.
    MigrationFinished { succeeded: bool },
    /// A server's client has migrated and proved its new address (RFC 9000 section 9.3). From now on
    /// [`validated_addr`](super::Connection::validated_addr) returns it. Not emitted for a client's first address.
    AddressValidated { address: SocketAddr },
    /// The peer has acknowledged all data of this side on the stream, and the FIN.
    StreamFinished { stream_id: u64 },
    /// A DATAGRAM frame (RFC 9221). `early` is true if it may have been 0-RTT data, which an attacker can replay (RFC
    /// 9001 section 9.2).
    Datagram { data: Bytes, early: bool },
    /// This side gives the peer another connection ID. Its NEW_CONNECTION_ID frame leaves with the next packets. Emitted
    /// only with
    /// [`reports_connection_ids`](super::EndpointSettings::reports_connection_ids).
    ConnectionIdIssued { id: Vec<u8> },
    /// The peer has retired one of this side's connection IDs.
    ConnectionIdRetired { id: Vec<u8> },
    /// Follows the last event of a batch: the datagrams of one loop iteration, or one expired timer. No other event
    /// follows until the next batch. Emitted only after [`report_batches`](super::Connection::report_batches) was
    /// called.
    BatchHandled,
    /// The peer has acknowledged the PING with the identifier `uid`.
    PingAcknowledged { uid: u64 },
    /// A client has received a session ticket, which resumes the session in another connection.
    SessionTicket(Box<SessionTicket>),
    /// A client has received a token that validates its address in another connection (RFC 9000 section 8.1.3).
    NewToken {
        token: Bytes,
        /// The QUIC version that the token is for (RFC 9369 section 5).
        version: u32,
    },
    /// A client has offered tickets. The application must put their sessions into the server's session store, and then
    /// call [`Endpoint::sessions_answered`](super::Endpoint::sessions_answered). The event belongs to no connection.
    /// Emitted only with [`ServerSettings::asks_for_sessions`](super::ServerSettings::asks_for_sessions).
    SessionsAsked {
        question: u64,
        /// The time at which the handshake continues if the application has not answered.
        deadline: Instant,
        tickets: Vec<Vec<u8>>,
        /// The identifier of the address validation token that the client has sent. `None` without
        /// [`ServerSettings::asks_for_tokens`](super::ServerSettings::asks_for_tokens). If the token was used before,
        /// the application must call [`Endpoint::token_refused`](super::Endpoint::token_refused) instead. Boxed to
        /// keep the other events, which are frequent and are moved several times, small.
        token: Option<Box<u128>>,
    },
    /// The connection has ended. This is the connection's last event, and is emitted once.
    Closed {
        error_code: u64,
        frame_type: Option<u64>,
        reason: String,
        kind: CloseKind,
    },
}

impl Event {
    /// True if the event belongs to a protocol above QUIC, and not to the connection itself.
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
    /// This side has closed the connection: the application called `close`, or the peer violated the protocol.
    Local,
    /// The peer's application has closed the connection, with an error code of its own.
    PeerApplication,
    /// The peer's QUIC implementation has closed the connection (RFC 9000 section 20.1).
    PeerTransport,
    /// The TLS handshake has failed, on this side or at the peer (RFC 9001 section 4.8).
    Tls { alert: u8 },
    /// Nothing has arrived for the idle time-out, or the handshake was not complete in time.
    IdleTimeout,
    /// The peer has lost its state and sent a stateless reset (RFC 9000 section 10.3).
    StatelessReset,
    /// The peer supports no QUIC version of this side.
    VersionNegotiation,
    /// The network has reported the peer as unreachable (ICMP) during the handshake.
    Unreachable { errno: i32 },
}

/// The result of reading a stream: data, and the stream's end if nothing follows the data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Received {
    pub data: Chunks,
    pub end: Option<StreamEnd>,
}

/// The way in which the peer's sending part of a stream has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// The stream has ended by a FIN, and all data has arrived.
    Finished,
    /// The stream has ended by a RESET_STREAM (RFC 9000 section 19.4).
    Reset { error_code: u64 },
}

/// Received stream data in order, in the pieces in which it arrived. Each piece keeps the whole receive buffer of its
/// datagram in memory, so the pieces should be copied or dropped soon.
#[derive(Debug, Clone, Default)]
pub struct Chunks {
    pieces: Pieces,
    pub(super) early: bool,
}

/// The pieces of a read. A single piece, which most reads find, is kept without an allocation.
#[derive(Debug, Clone)]
enum Pieces {
    /// A single piece. Empty if there are no data.
    One(Bytes),
    /// Several pieces, none of them empty.
    Many(Vec<Bytes>),
}

impl Default for Pieces {
    fn default() -> Self {
        Self::One(Bytes::new())
    }
}

impl Chunks {
    /// The number of bytes of all pieces.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.pieces {
            Pieces::One(piece) => piece.len(),
            Pieces::Many(pieces) => pieces.iter().map(Bytes::len).sum(),
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pieces().is_empty()
    }

    /// True if a part of the data was 0-RTT data, which an attacker can replay (RFC 9001 section 9.2).
    pub fn is_early(&self) -> bool {
        self.early
    }

    /// The pieces of the data. None is empty.
    #[inline]
    pub fn pieces(&self) -> &[Bytes] {
        match &self.pieces {
            Pieces::One(piece) if piece.is_empty() => &[],
            Pieces::One(piece) => std::slice::from_ref(piece),
            Pieces::Many(pieces) => pieces,
        }
    }

    /// The last piece, and the pieces before it. The last piece is empty if there are no data.
    pub fn into_last_and_first(self) -> (Bytes, Vec<Bytes>) {
        match self.pieces {
            Pieces::One(piece) => (piece, Vec::new()),
            Pieces::Many(mut pieces) => (pieces.pop().unwrap_or_default(), pieces),
        }
    }

    fn into_vec(self) -> Vec<Bytes> {
        match self.pieces {
            Pieces::One(piece) if piece.is_empty() => Vec::new(),
            Pieces::One(piece) => vec![piece],
            Pieces::Many(pieces) => pieces,
        }
    }

    /// Copies everything into `target`.
    ///
    /// # Panics
    /// If `target` is not exactly [`len`](Self::len) bytes long.
    pub fn copy_into(&self, target: &mut [u8]) {
        assert_eq!(
            target.len(),
            self.len(),
            "the target must have the length of the data"
        );
        let mut rest = target;
        for piece in self.pieces() {
            let (head, tail) = rest.split_at_mut(piece.len());
            head.copy_from_slice(piece);
            rest = tail;
        }
    }

    /// Removes and returns the first `count` bytes, or all if there are fewer.
    pub fn split_to(&mut self, count: usize) -> Self {
        if count >= self.len() {
            return std::mem::take(self);
        }
        let mut front = Self {
            early: self.early,
            ..Self::default()
        };
        let mut missing = count;
        let pieces = std::mem::take(self).into_vec();
        self.early = front.early;
        for mut piece in pieces {
            if missing > 0 {
                let taken = piece.split_to(piece.len().min(missing));
                missing -= taken.len();
                front.push(taken);
            }
            self.push(piece);
        }
        front
    }

    /// Appends data that follows in the stream.
    pub fn append(&mut self, behind: Self) {
        self.early |= behind.early;
        match self.is_empty() {
            true => self.pieces = behind.pieces,
            false => behind
                .into_vec()
                .into_iter()
                .for_each(|piece| self.push(piece)),
        }
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len());
        self.pieces()
            .iter()
            .for_each(|piece| all.extend_from_slice(piece));
        all
    }

    /// An empty list with space for `count` pieces.
    pub(super) fn with_capacity(count: usize) -> Self {
        let pieces = match count {
            0 | 1 => Pieces::default(),
            count => Pieces::Many(Vec::with_capacity(count)),
        };
        Self {
            pieces,
            early: false,
        }
    }

    /// Appends a piece. An empty one is dropped.
    #[inline]
    pub fn push(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        match &mut self.pieces {
            Pieces::One(first) if first.is_empty() => *first = piece,
            Pieces::One(first) => {
                let mut pieces = Vec::with_capacity(PIECES_MIN);
                pieces.extend([std::mem::take(first), piece]);
                self.pieces = Pieces::Many(pieces);
            }
            Pieces::Many(pieces) => pieces.push(piece),
        }
    }
}

/// Compares the bytes. Their division into pieces does not matter.
impl PartialEq for Chunks {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self
                .pieces()
                .iter()
                .flat_map(|p| p.iter())
                .eq(other.pieces().iter().flat_map(|p| p.iter()))
    }
}

impl Eq for Chunks {}

impl FromIterator<Bytes> for Chunks {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Self {
        let mut chunks = Self::default();
        pieces.into_iter().for_each(|piece| chunks.push(piece));
        chunks
    }
}

impl From<Bytes> for Chunks {
    fn from(piece: Bytes) -> Self {
        let mut chunks = Self::default();
        chunks.push(piece);
        chunks
    }
}

/// The capacity of the list for a read that finds more than one piece.
const PIECES_MIN: usize = 16;
