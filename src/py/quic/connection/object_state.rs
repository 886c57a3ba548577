//! The state of a connection object: its phase, the receivers of its events, and the values that can be read after
//! its end.

use std::collections::VecDeque;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_quic::{ConnectionKey, ConnectionStats, PreConnectCommands};

use super::stream_protocol::StreamProtocol;
use crate::quic::endpoint::QuicEndpoint;

/// The phase of the connection.
pub(super) enum ConnectionPhase {
    /// Before the start. Commands are queued.
    Idle(PreConnectCommands),
    /// A server without a loop, before its client's first packet. Commands are queued.
    Listening(PreConnectCommands, Py<QuicEndpoint>),
    Running(Py<QuicEndpoint>, ConnectionKey),
    /// The connection has ended. If it alone uses its endpoint, the endpoint is kept, because the last packets are
    /// still queued there.
    Over(Option<Py<QuicEndpoint>>, Box<Summary>),
}

/// The values that can be read after the end of the connection.
#[derive(Default)]
pub(super) struct Summary {
    pub stats: ConnectionStats,
    pub remote: Option<std::net::SocketAddr>,
    pub alpn: Option<Vec<u8>>,
    pub original_id: Option<Vec<u8>>,
    pub host_id: Option<Vec<u8>>,
    pub version: Option<u32>,
}

pub(super) struct ConnectionState {
    pub phase: ConnectionPhase,
    pub attached: Option<Arc<dyn StreamProtocol>>,
    /// Called with each list of events. Without a receiver, events wait in `queue`.
    pub receiver: Option<Py<PyAny>>,
    /// The protocol whose `transmit` is called when all events of a batch of datagrams were delivered.
    pub on_batch: Option<Py<PyAny>>,
    pub queue: VecDeque<Py<PyAny>>,
    /// True if the program has requested `StreamFinished` events. Most programs do not need them, so they cost nothing
    /// by default.
    pub notify_finished: bool,
    /// Called with the session tickets and the address validation tokens of a client.
    pub on_ticket: Option<Py<PyAny>>,
    pub on_token: Option<Py<PyAny>>,
}

impl ConnectionState {
    pub fn new(is_client: bool) -> Self {
        Self {
            phase: ConnectionPhase::Idle(PreConnectCommands::new(is_client)),
            attached: None,
            receiver: None,
            on_batch: None,
            queue: VecDeque::new(),
            notify_finished: false,
            on_ticket: None,
            on_token: None,
        }
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.receiver)?;
        visit.call(&self.on_batch)?;
        if let Some(attached) = &self.attached {
            attached.traverse(visit)?;
        }
        visit.call(&self.on_ticket)?;
        visit.call(&self.on_token)?;
        self.queue.iter().try_for_each(|event| visit.call(event))?;
        match &self.phase {
            ConnectionPhase::Listening(_, endpoint) | ConnectionPhase::Running(endpoint, _) => {
                visit.call(endpoint)
            }
            ConnectionPhase::Over(endpoint, _) => visit.call(endpoint),
            ConnectionPhase::Idle(_) => Ok(()),
        }
    }

    /// Takes out all Python objects. The caller drops them where Python code may run.
    pub fn clear(&mut self) -> impl Sized + use<> {
        let phase = std::mem::replace(&mut self.phase, ConnectionPhase::Over(None, Box::default()));
        (
            phase,
            (self.receiver.take(), self.on_batch.take()),
            self.attached.take(),
            (self.on_ticket.take(), self.on_token.take()),
            std::mem::take(&mut self.queue),
        )
    }
}
