//! The engine identifies transports, watchers, listeners and QUIC endpoints by keys. This table has the Python object
//! of each key.
//!
//! The loop keeps an object alive while its key is in the engine. A transport is removed at its last event.

use std::os::fd::RawFd;

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use rustc_hash::{FxHashMap, FxHashSet};
use uringcore_engine::Key;

use crate::capi::contextvars_context::CallbackContext;
use crate::event_loop::cross_thread_commands::CrossThreadCommand;
use crate::event_loop::handle::AnyHandle;
use crate::transport::base_transport::BaseTransport;

/// A registration of `add_reader` or `add_writer`.
pub struct Watcher {
    /// The engine's number of the registration. Events with another number belong to an earlier registration.
    pub serial: u64,
    /// The argument of `add_reader` or `add_writer`: a descriptor's number, or an object with a `fileno()`. An object
    /// that has been closed has no number any more, and its registration can still be found and removed by the object,
    /// as with `selectors`.
    pub file: Py<PyAny>,
    pub handle: AnyHandle,
}

/// The objects of a listening socket, with which the transports of its connections are made.
pub struct ListenerObjects {
    pub key: Key,
    pub protocol_factory: Py<PyAny>,
    /// For a TLS server, the argument of the Python function that makes the transport of each connection. None without
    /// TLS.
    pub tls: Option<Py<PyAny>>,
    pub server: Py<PyAny>,
    /// Each connection gets a copy of this context. The protocol is made and its methods are called in that copy.
    pub context: CallbackContext,
}

/// The Python objects of all keys of the engine.
#[derive(Default)]
pub struct EngineObjects {
    pub transports: Vec<Option<(Key, Py<BaseTransport>)>>,
    pub listeners: FxHashMap<RawFd, ListenerObjects>,
    pub watchers: FxHashMap<(RawFd, bool), Watcher>,
    pub watchable_fds: FxHashSet<RawFd>,
    /// Changes of the engine that other threads have queued, because only the thread that runs the loop may use the
    /// engine.
    pub commands: Vec<CrossThreadCommand>,
    pub quic: FxHashMap<Key, Py<PyAny>>,
}

impl EngineObjects {
    pub fn transport<'py>(&self, py: Python<'py>, key: Key) -> Option<Bound<'py, BaseTransport>> {
        let (at, transport) = self.transports.get(key.index as usize)?.as_ref()?;
        (*at == key).then(|| transport.bind(py).clone())
    }

    /// Returns the transport that uses the descriptor `fd`, unless the transport is closing.
    pub fn transport_over<'py>(
        &self,
        py: Python<'py>,
        fd: RawFd,
    ) -> Option<Bound<'py, BaseTransport>> {
        let mut all = self.transports.iter().flatten();
        let found = all.find(|(_, one)| one.get().fd == fd && !one.get().shared.is_closing());
        found.map(|(_, transport)| transport.bind(py).clone())
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.transports
            .iter()
            .flatten()
            .try_for_each(|(_, transport)| visit.call(transport))?;
        self.watchers.values().try_for_each(|watcher| {
            visit.call(&watcher.file)?;
            watcher.handle.traverse(visit)
        })?;
        self.quic
            .values()
            .try_for_each(|endpoint| visit.call(endpoint))?;
        self.listeners.values().try_for_each(|host| {
            visit.call(&host.protocol_factory)?;
            visit.call(&host.tls)?;
            visit.call(&host.server)?;
            visit.call(host.context.get())
        })
    }
}

/// Stores `value` for `key` in a list, at the index of the key.
pub fn insert_at<T>(list: &mut Vec<Option<(Key, T)>>, key: Key, value: T) {
    let index = key.index as usize;
    if list.len() <= index {
        list.resize_with(index + 1, || None);
    }
    list[index] = Some((key, value));
}

/// Removes the value of `key` from a list. Returns `None` if the list has no value for this key.
pub fn take_at<T>(list: &mut [Option<(Key, T)>], key: Key) -> Option<T> {
    let entry = list.get_mut(key.index as usize)?;
    if entry.as_ref().is_some_and(|(at, _)| *at == key) {
        entry.take().map(|(_, value)| value)
    } else {
        None
    }
}
