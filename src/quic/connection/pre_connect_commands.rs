//! Commands that an application calls before its connection begins. An HTTP/3 layer, for example, opens its control
//! streams when it is created. The commands are stored in order and run when the connection begins.
//!
//! Not here: anything that depends on the peer.

use std::{collections::BTreeSet, fmt};

use bytes::Bytes;
use uringcore_wire::varint;

use super::Connection;
use crate::{DatagramError, Priority, StreamError};

/// Stored commands, and the stream IDs that they use. The calls of the program bound their number; a peer cannot add
/// any.
pub struct PreConnectCommands {
    is_client: bool,
    commands: Vec<Command>,
    next_bidi: u64,
    next_uni: u64,
}

pub enum Command {
    SendStream {
        stream_id: u64,
        data: Bytes,
        fin: bool,
    },
    ResetStream {
        stream_id: u64,
        error_code: u64,
    },
    StopStream {
        stream_id: u64,
        error_code: u64,
    },
    SendDatagram {
        data: Bytes,
    },
    Ping {
        uid: u64,
    },
    ReadOnDemand,
    ReportBatches,
    Priority {
        stream_id: u64,
        priority: Priority,
    },
}

impl PreConnectCommands {
    /// RFC 9000 section 2.1: the low bits of the first stream IDs of a client and of a server.
    pub fn new(is_client: bool) -> Self {
        let side = u64::from(!is_client);
        Self {
            is_client,
            commands: Vec::new(),
            next_bidi: side,
            next_uni: side | 2,
        }
    }

    pub fn is_client(&self) -> bool {
        self.is_client
    }

    pub fn next_stream_id(&self, unidirectional: bool) -> u64 {
        if unidirectional {
            self.next_uni
        } else {
            self.next_bidi
        }
    }

    /// Stores a command. Returns an error for a stream of the peer, because no such stream exists yet.
    pub fn push(&mut self, command: Command) -> Result<(), CommandError> {
        if let Command::SendStream { stream_id, .. } = &command {
            let refused = |error| CommandError::Stream {
                stream_id: *stream_id,
                error,
            };
            if *stream_id > varint::MAX {
                return Err(refused(StreamError::OutOfRange));
            }
            if *stream_id & 1 != u64::from(!self.is_client) {
                return Err(refused(StreamError::Unknown));
            }
            let next = if stream_id & 2 != 0 {
                &mut self.next_uni
            } else {
                &mut self.next_bidi
            };
            *next = (*next).max(stream_id + 4);
        }
        self.commands.push(command);
        Ok(())
    }

    /// The IDs of all streams that the commands use, in ascending order.
    pub fn stream_ids(&self) -> Vec<u64> {
        let ids: BTreeSet<u64> = self
            .commands
            .iter()
            .filter_map(Command::stream_id)
            .collect();
        ids.into_iter().collect()
    }

    /// True if any command is for the stream.
    pub fn has_stream(&self, stream_id: u64) -> bool {
        let mut ids = self.commands.iter().filter_map(Command::stream_id);
        ids.any(|id| id == stream_id)
    }

    /// The stored data for a stream, in pieces.
    pub fn queued_data(&self, stream_id: u64) -> impl Iterator<Item = &Bytes> + Clone {
        self.commands
            .iter()
            .filter_map(move |command| match command {
                Command::SendStream {
                    stream_id: id,
                    data,
                    ..
                } if *id == stream_id => Some(data),
                _ => None,
            })
    }

    /// The stored datagrams.
    pub fn queued_datagrams(&self) -> impl Iterator<Item = &Bytes> {
        self.commands.iter().filter_map(|command| match command {
            Command::SendDatagram { data } => Some(data),
            _ => None,
        })
    }

    pub fn queued_bytes(&self, stream_id: u64) -> usize {
        self.queued_data(stream_id).map(Bytes::len).sum()
    }

    /// Runs all commands. Each error is passed to `refused`, because the call that stored the command has returned.
    pub fn replay(self, connection: &mut Connection, mut refused: impl FnMut(String)) {
        for command in self.commands {
            if let Err(reason) = command.run(connection) {
                refused(reason.to_string());
            }
        }
    }
}

impl Command {
    fn stream_id(&self) -> Option<u64> {
        match self {
            Self::SendStream { stream_id, .. }
            | Self::ResetStream { stream_id, .. }
            | Self::StopStream { stream_id, .. } => Some(*stream_id),
            _ => None,
        }
    }

    pub fn run(self, connection: &mut Connection) -> Result<(), CommandError> {
        let (stream_id, result) = match self {
            Self::SendStream {
                stream_id,
                data,
                fin,
            } => (stream_id, connection.send_stream(stream_id, data, fin)),
            Self::ResetStream {
                stream_id,
                error_code,
            } => (stream_id, connection.reset_stream(stream_id, error_code)),
            Self::StopStream {
                stream_id,
                error_code,
            } => (stream_id, connection.stop_stream(stream_id, error_code)),
            Self::Priority {
                stream_id,
                priority,
            } => (stream_id, connection.set_priority(stream_id, priority)),
            Self::SendDatagram { data } => {
                return connection
                    .send_datagram(data)
                    .map_err(CommandError::Datagram);
            }
            Self::Ping { uid } => {
                connection.ping(uid);
                return Ok(());
            }
            Self::ReadOnDemand => {
                connection.read_on_demand();
                return Ok(());
            }
            Self::ReportBatches => {
                connection.report_batches();
                return Ok(());
            }
        };
        result.map_err(|error| CommandError::Stream { stream_id, error })
    }
}

/// The reason for which a command was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandError {
    Stream { stream_id: u64, error: StreamError },
    Datagram(DatagramError),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream { stream_id, error } => write!(f, "stream {stream_id}: {error}"),
            Self::Datagram(error) => error.fmt(f),
        }
    }
}
