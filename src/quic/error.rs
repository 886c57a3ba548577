//! Errors that calls of the application return. A protocol violation of the peer closes the connection instead.

use std::{fmt, net::SocketAddr};

/// The reason for which a connection was not begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectError {
    /// The given server name is neither a DNS name nor an IP address.
    InvalidServerName(String),
    /// The remote address has port 0 or is unspecified.
    InvalidRemoteAddress(SocketAddr),
    /// The endpoint has reached its limit of connections.
    TooManyConnections { limit: usize },
    /// The TLS configuration could not begin a session.
    Tls(String),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidServerName(name) => {
                write!(
                    f,
                    "server name {name:?} is neither a DNS name nor an IP address"
                )
            }
            Self::InvalidRemoteAddress(addr) => write!(f, "cannot connect to {addr}"),
            Self::TooManyConnections { limit } => {
                write!(f, "the endpoint already has its {limit} connections")
            }
            Self::Tls(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for ConnectError {}

/// The reason for which a client's connection was not moved to another socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationError {
    /// A server cannot migrate: only clients initiate migration (RFC 9000 section 9).
    Server,
    /// The handshake is not confirmed yet (RFC 9001 section 4.1.2).
    NotConfirmed,
    /// The peer has sent `disable_active_migration`.
    Forbidden,
    /// The peer has issued no spare connection ID (RFC 9000 section 9.5).
    NoConnectionId,
    /// An earlier migration has neither succeeded nor failed yet.
    UnderWay,
    /// The connection is closed.
    Closed,
}

impl fmt::Display for MigrationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "a server does not migrate",
            Self::NotConfirmed => "the handshake is not confirmed yet",
            Self::Forbidden => "the server forbids migration (disable_active_migration)",
            Self::NoConnectionId => "the server has given no connection ID to spare",
            Self::UnderWay => "a migration is under way",
            Self::Closed => "the connection is closed",
        })
    }
}

impl std::error::Error for MigrationError {}

/// The reason for which a stream command failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamError {
    /// The peer has not opened this stream.
    Unknown,
    /// Both directions of the stream have ended already.
    Over,
    /// This side cannot send on a unidirectional stream of the peer, and cannot receive on one of its own.
    WrongDirection,
    /// The stream was already finished with a FIN.
    Finished,
    /// The stream was reset by this side, or because the peer has sent STOP_SENDING.
    Reset,
    /// The connection is closed.
    Closed,
    /// A stream ID or an error code is 2^62 or more.
    OutOfRange,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "the stream is not open",
            Self::Over => "the stream is over",
            Self::WrongDirection => "the stream does not go in this direction",
            Self::Finished => "the stream is already finished",
            Self::Reset => "the stream was reset",
            Self::Closed => "the connection is closed",
            Self::OutOfRange => "the number does not fit in 62 bits",
        })
    }
}

impl std::error::Error for StreamError {}

/// The reason for which a datagram was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatagramError {
    /// The datagram is larger than a packet, or larger than the peer accepts.
    TooLarge { max: usize },
    /// This side or the peer does not support DATAGRAM frames (RFC 9221 section 3).
    Unsupported,
    /// The connection is closed.
    Closed,
}

impl fmt::Display for DatagramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { max } => write!(f, "a datagram may have at most {max} bytes now"),
            Self::Unsupported => f.write_str("datagrams are not supported on this connection"),
            Self::Closed => f.write_str("the connection is closed"),
        }
    }
}

impl std::error::Error for DatagramError {}
