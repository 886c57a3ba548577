//! A connection whose commands are queued, for hosts that cannot carry them out while they call the connection.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use bytes::Bytes;

use super::connection::{Connection, pop};
use super::error::{Code, LocalError};
use super::event::Role;
use super::quic_sink::Sink;
use super::settings::Settings;

/// A command for the QUIC connection.
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
    /// Close the QUIC connection with this application error. No command follows.
    CloseConnection {
        code: Code,
        reason: Cow<'static, str>,
    },
}

impl Sink for VecDeque<Output> {
    fn write(&mut self, stream_id: u64, data: Bytes, fin: bool) {
        self.push_back(Output::Write {
            stream_id,
            data,
            fin,
        });
    }

    fn send_datagram(&mut self, data: Bytes) {
        self.push_back(Output::Datagram { data });
    }

    fn reset_stream(&mut self, stream_id: u64, code: Code) {
        self.push_back(Output::ResetStream { stream_id, code });
    }

    fn stop_sending(&mut self, stream_id: u64, code: Code) {
        self.push_back(Output::StopSending { stream_id, code });
    }

    fn close(&mut self, code: Code, reason: Cow<'static, str>) {
        self.push_back(Output::CloseConnection { code, reason });
    }
}

/// A [`Connection`] that queues its commands as [`Output`]s. After each call the host takes them with
/// [`poll_output`](Self::poll_output) until it returns `None`. The methods correspond to those of `Connection`.
#[derive(Debug)]
pub struct QueuedConnection {
    core: Connection,
    outputs: VecDeque<Output>,
}

impl Deref for QueuedConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.core
    }
}

impl DerefMut for QueuedConnection {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.core
    }
}

/// Defines methods that call the method of the same name of the connection, with the queue as its sink.
macro_rules! forward {
    ($($name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {$(
        pub fn $name(&mut self, $($argument: $kind),*) $(-> $result)? {
            self.core.$name(&mut self.outputs, $($argument),*)
        }
    )*};
}

impl QueuedConnection {
    pub fn new(role: Role, settings: Settings, uni_streams: [u64; 3]) -> Self {
        let mut outputs = VecDeque::new();
        let core = Connection::new(role, settings, uni_streams, &mut outputs);
        Self { core, outputs }
    }

    /// Takes the next command for the QUIC connection.
    #[inline]
    pub fn poll_output(&mut self) -> Option<Output> {
        pop(&mut self.outputs)
    }

    pub fn free_capacity(&mut self) {
        self.core.free_capacity();
        self.outputs.shrink_to_fit();
    }

    forward! {
        // Input
        handle_stream_data(stream_id: u64, data: Bytes, fin: bool);
        handle_stream_reset(stream_id: u64, code: u64);
        handle_stop_sending(stream_id: u64, code: u64);
        handle_datagram(data: Bytes);
        note_stopped(stream_id: u64);
        fail(code: Code, reason: String);
        // Commands
        send_headers(stream_id: u64, fields: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)], fin: bool)
            -> Result<(), LocalError>;
        send_message(
            stream_id: u64, fields: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)], content: Bytes, fin: bool
        ) -> Result<(), LocalError>;
        send_data(stream_id: u64, data: Bytes, fin: bool) -> Result<(), LocalError>;
        send_datagram(stream_id: u64, data: &[u8]) -> Result<(), LocalError>;
        send_goaway(id: u64) -> Result<(), LocalError>;
        send_push_promise(
            stream_id: u64,
            push_stream_id: u64,
            fields: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)]
        ) -> Result<(), LocalError>;
        cancel_request(stream_id: u64, code: u64);
        stop_receiving(stream_id: u64, code: u64);
        create_webtransport_stream(session_id: u64, stream_id: u64) -> Result<(), LocalError>;
    }
}
