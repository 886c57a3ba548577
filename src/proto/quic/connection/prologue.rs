//! What a connection is told before it begins: an HTTP/3 layer, for one, opens its control streams
//! when it is made. Kept in order and carried out then.
//!
//! Not here: the connection itself, which does not exist yet, and so nothing that depends on a peer.

use bytes::Bytes;

use super::Connection;
use crate::{
    quic::{DatagramError, Priority, StreamError},
    wire::varint,
};

/// Commands in waiting, and the stream ids that they use up. Bounded by what the program says before
/// it connects; nothing of a peer ends here.
pub struct Prologue {
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
    Priority {
        stream_id: u64,
        priority: Priority,
    },
}

impl Prologue {
    /// Stream ids: RFC 9000 section 2.1.
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

    /// Only streams of our own can exist now.
    pub fn push(&mut self, command: Command) -> Result<(), StreamError> {
        if let Command::SendStream { stream_id, .. } = &command {
            if *stream_id > varint::MAX {
                return Err(StreamError::OutOfRange);
            }
            if *stream_id & 1 != u64::from(!self.is_client) {
                return Err(StreamError::Unknown);
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

    pub fn queued_bytes(&self, stream_id: u64) -> usize {
        let bytes = |command: &Command| match command {
            Command::SendStream {
                stream_id: id,
                data,
                ..
            } if *id == stream_id => data.len(),
            _ => 0,
        };
        self.commands.iter().map(bytes).sum()
    }

    /// Carries everything out. The calls that asked for it have returned: what the connection refuses goes to
    /// `refused`.
    pub fn replay(self, connection: &mut Connection, mut refused: impl FnMut(String)) {
        for command in self.commands {
            if let Err(reason) = run(command, connection) {
                refused(reason);
            }
        }
    }
}

fn run(command: Command, connection: &mut Connection) -> Result<(), String> {
    let stream = |result: Result<(), StreamError>| result.map_err(|error| error.to_string());
    match command {
        Command::SendStream {
            stream_id,
            data,
            fin,
        } => stream(connection.send_stream(stream_id, data, fin)),
        Command::ResetStream {
            stream_id,
            error_code,
        } => stream(connection.reset_stream(stream_id, error_code)),
        Command::StopStream {
            stream_id,
            error_code,
        } => stream(connection.stop_stream(stream_id, error_code)),
        Command::SendDatagram { data } => connection
            .send_datagram(data)
            .map_err(|error: DatagramError| error.to_string()),
        Command::Ping { uid } => {
            connection.ping(uid);
            Ok(())
        }
        Command::Priority {
            stream_id,
            priority,
        } => stream(connection.set_priority(stream_id, priority)),
    }
}
