//! A connection whose commands are queued, for hosts that cannot carry them out while they call the connection.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use bytes::Bytes;

use super::connection::{Connection, pop};
use super::error::{Code, LocalError};
use super::event::Role;
use super::settings::Settings;
use super::sink::Sink;

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

    // Input --------------------------------------------------------------------------------------

    pub fn handle_stream_data(&mut self, stream_id: u64, data: Bytes, fin: bool) {
        let Self { core, outputs } = self;
        core.handle_stream_data(outputs, stream_id, data, fin);
    }

    pub fn handle_stream_reset(&mut self, stream_id: u64, code: u64) {
        let Self { core, outputs } = self;
        core.handle_stream_reset(outputs, stream_id, code);
    }

    pub fn handle_stop_sending(&mut self, stream_id: u64, code: u64) {
        let Self { core, outputs } = self;
        core.handle_stop_sending(outputs, stream_id, code);
    }

    pub fn handle_datagram(&mut self, data: Bytes) {
        let Self { core, outputs } = self;
        core.handle_datagram(outputs, data);
    }

    pub fn note_stopped(&mut self, stream_id: u64) {
        let Self { core, outputs } = self;
        core.note_stopped(outputs, stream_id);
    }

    pub fn fail(&mut self, code: Code, reason: String) {
        let Self { core, outputs } = self;
        core.fail(outputs, code, reason);
    }

    // Commands -----------------------------------------------------------------------------------

    pub fn send_headers<N, V>(
        &mut self,
        stream_id: u64,
        fields: &[(N, V)],
        fin: bool,
    ) -> Result<(), LocalError>
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let Self { core, outputs } = self;
        core.send_headers(outputs, stream_id, fields, fin)
    }

    pub fn send_message<N, V>(
        &mut self,
        stream_id: u64,
        fields: &[(N, V)],
        content: Bytes,
        fin: bool,
    ) -> Result<(), LocalError>
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let Self { core, outputs } = self;
        core.send_message(outputs, stream_id, fields, content, fin)
    }

    pub fn send_data(&mut self, stream_id: u64, data: Bytes, fin: bool) -> Result<(), LocalError> {
        let Self { core, outputs } = self;
        core.send_data(outputs, stream_id, data, fin)
    }

    pub fn send_datagram(&mut self, stream_id: u64, data: &[u8]) -> Result<(), LocalError> {
        let Self { core, outputs } = self;
        core.send_datagram(outputs, stream_id, data)
    }

    pub fn send_goaway(&mut self, id: u64) -> Result<(), LocalError> {
        let Self { core, outputs } = self;
        core.send_goaway(outputs, id)
    }

    pub fn send_push_promise<N, V>(
        &mut self,
        stream_id: u64,
        push_stream_id: u64,
        fields: &[(N, V)],
    ) -> Result<(), LocalError>
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let Self { core, outputs } = self;
        core.send_push_promise(outputs, stream_id, push_stream_id, fields)
    }

    pub fn cancel_request(&mut self, stream_id: u64, code: u64) {
        let Self { core, outputs } = self;
        core.cancel_request(outputs, stream_id, code);
    }

    pub fn stop_receiving(&mut self, stream_id: u64, code: u64) {
        let Self { core, outputs } = self;
        core.stop_receiving(outputs, stream_id, code);
    }

    pub fn create_webtransport_stream(
        &mut self,
        session_id: u64,
        stream_id: u64,
    ) -> Result<(), LocalError> {
        let Self { core, outputs } = self;
        core.create_webtransport_stream(outputs, session_id, stream_id)
    }
}
