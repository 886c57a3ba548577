//! Results that came for a waiter that was cancelled, kept for the next call on the same socket object.
//!
//! Weakly: the entry goes with the object, and a connection in it is closed then. By the object, since
//! a descriptor's number says nothing. What asks for them, and when, is in `lanes` and `calls`.

use std::collections::VecDeque;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple, PyWeakrefReference};

use crate::event_loop::loop_core::LoopCore;

/// Results without a waiter.
pub struct Held {
    /// Removes the entry when the socket object dies.
    _socket: Py<PyWeakrefReference>,
    pub items: VecDeque<Py<PyAny>>,
    /// A connect succeeded.
    connected: bool,
}

/// Keeps a result for the next call on `socket`.
pub fn hold(
    slf: &Bound<'_, LoopCore>,
    socket: &Bound<'_, PyAny>,
    item: Py<PyAny>,
    first: bool,
) -> PyResult<()> {
    with_held(slf, socket, |held| {
        if first {
            held.items.push_front(item);
        } else {
            held.items.push_back(item);
        }
    })
}

/// A connect succeeded whose waiter was cancelled.
pub fn note_connected(slf: &Bound<'_, LoopCore>, socket: &Bound<'_, PyAny>) -> PyResult<()> {
    with_held(slf, socket, |held| held.connected = true)
}

/// Whether that was noted; it is forgotten now.
pub fn take_connected(this: &LoopCore, py: Python<'_>, socket: &Bound<'_, PyAny>) -> bool {
    let (connected, emptied) = this.sockets.with(py, |sockets| {
        let address = socket.as_ptr() as usize;
        let Some(held) = sockets.held.get_mut(&address) else {
            return (false, None);
        };
        let connected = std::mem::take(&mut held.connected);
        let emptied = held.items.is_empty();
        let emptied = emptied.then(|| sockets.held.remove(&address)).flatten();
        (connected, emptied)
    });
    drop(emptied);
    connected
}

fn with_held(
    slf: &Bound<'_, LoopCore>,
    socket: &Bound<'_, PyAny>,
    work: impl FnOnce(&mut Held),
) -> PyResult<()> {
    let py = slf.py();
    let this = slf.get();
    let address = socket.as_ptr() as usize;
    let known = this
        .sockets
        .with(py, |sockets| sockets.held.contains_key(&address));
    let fresh = if known {
        None
    } else {
        Some(weak_key(slf, socket, address)?)
    };
    this.sockets.with(py, |sockets| {
        if let Some(weak) = fresh {
            let held = Held {
                _socket: weak,
                items: VecDeque::new(),
                connected: false,
            };
            sockets.held.insert(address, held);
        }
        if let Some(held) = sockets.held.get_mut(&address) {
            work(held);
        }
    });
    Ok(())
}

/// The oldest result held for `socket`.
pub fn take_held(slf: &Bound<'_, LoopCore>, socket: &Bound<'_, PyAny>) -> Option<Py<PyAny>> {
    let py = slf.py();
    let address = socket.as_ptr() as usize;
    let (item, emptied) = slf.get().sockets.with(py, |sockets| {
        if sockets.held.is_empty() {
            return (None, None);
        }
        let Some(held) = sockets.held.get_mut(&address) else {
            return (None, None);
        };
        let item = held.items.pop_front();
        let emptied = held.items.is_empty() && !held.connected;
        let emptied = emptied.then(|| sockets.held.remove(&address)).flatten();
        (item, emptied)
    });
    drop(emptied);
    item
}

/// A weak reference that lets go of what is held when the socket object dies.
fn weak_key(
    slf: &Bound<'_, LoopCore>,
    socket: &Bound<'_, PyAny>,
    address: usize,
) -> PyResult<Py<PyWeakrefReference>> {
    let py = slf.py();
    let owner = PyWeakrefReference::new(slf)?.unbind();
    let forget = move |args: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| -> PyResult<()> {
        let py = args.py();
        let Some(owner) = owner.bind(py).upgrade_as::<LoopCore>()? else {
            return Ok(());
        };
        let held = owner
            .get()
            .sockets
            .with(py, |sockets| sockets.held.remove(&address));
        held.map_or(Ok(()), |held| release(py, held))
    };
    let callback = PyCFunction::new_closure(py, None, None, forget)?;
    Ok(PyWeakrefReference::new_with(socket, callback)?.unbind())
}

/// Lets go of held results: accepted connections are closed.
fn release(py: Python<'_>, held: Held) -> PyResult<()> {
    for item in held.items {
        if let Ok(pair) = item.bind(py).cast::<PyTuple>()
            && let Ok(first) = pair.get_item(0)
            && first.hasattr(intern!(py, "close"))?
        {
            first.call_method0(intern!(py, "close"))?;
        }
    }
    Ok(())
}

/// At the end of the loop.
pub fn close(this: &LoopCore, py: Python<'_>) -> PyResult<()> {
    let sockets = this.sockets.take(py);
    sockets
        .held
        .into_values()
        .try_for_each(|held| release(py, held))
}
