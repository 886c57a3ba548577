//! Results of `sock_*` calls that were cancelled after the kernel had completed their operation. The next call on the
//! same socket object gets them.
//!
//! They are dropped with the socket object; a connection that was accepted is closed then. The key is the object and
//! not the descriptor, because a descriptor's number may be reused. `operation_queues` and `socket_operations` take the
//! results.

use std::collections::{HashMap, VecDeque};

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple, PyWeakrefReference};
use pyo3::{PyTraverseError, PyVisit, intern};

use crate::event_loop::loop_core::LoopCore;

/// The results of all sockets, by the address of the socket object.
#[derive(Default)]
pub struct CancelledResults(HashMap<usize, OfSocket>);

struct OfSocket {
    /// A weak reference whose callback removes the entry when the socket object dies.
    _socket: Py<PyWeakrefReference>,
    items: VecDeque<Py<PyAny>>,
    /// True if a connect has succeeded whose call was cancelled.
    connected: bool,
}

impl CancelledResults {
    fn take(&mut self, address: usize) -> (Option<Py<PyAny>>, Option<OfSocket>) {
        let Some(of_socket) = self.0.get_mut(&address) else {
            return (None, None);
        };
        let item = of_socket.items.pop_front();
        (item, self.take_if_empty(address))
    }

    fn take_connected(&mut self, address: usize) -> (bool, Option<OfSocket>) {
        let Some(of_socket) = self.0.get_mut(&address) else {
            return (false, None);
        };
        let connected = std::mem::take(&mut of_socket.connected);
        (connected, self.take_if_empty(address))
    }

    /// Removes the entry of a socket if it has no results. The caller drops it outside of the cell, because the drop
    /// may run Python code.
    fn take_if_empty(&mut self, address: usize) -> Option<OfSocket> {
        let of_socket = self.0.get(&address)?;
        let is_empty = of_socket.items.is_empty() && !of_socket.connected;
        is_empty.then(|| self.0.remove(&address)).flatten()
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let mut items = self.0.values().flat_map(|of_socket| &of_socket.items);
        items.try_for_each(|item| visit.call(item))
    }
}

/// True if there is a result for the next call on `socket`.
pub fn has(this: &LoopCore, socket: &Bound<'_, PyAny>) -> bool {
    this.cancelled_results
        .with(socket.py(), |cancelled_results| {
            !cancelled_results.0.is_empty()
                && cancelled_results
                    .0
                    .get(&(socket.as_ptr() as usize))
                    .is_some_and(|of_socket| !of_socket.items.is_empty())
        })
}

/// Takes the oldest result of `socket`.
pub fn take(this: &LoopCore, socket: &Bound<'_, PyAny>) -> Option<Py<PyAny>> {
    let address = socket.as_ptr() as usize;
    let (item, emptied) = this
        .cancelled_results
        .with(socket.py(), |cancelled_results| {
            if cancelled_results.0.is_empty() {
                return (None, None);
            }
            cancelled_results.take(address)
        });
    drop(emptied);
    item
}

/// True if a connect has succeeded whose call was cancelled. The second call returns false.
pub fn take_connected(this: &LoopCore, socket: &Bound<'_, PyAny>) -> bool {
    let address = socket.as_ptr() as usize;
    let take = |cancelled_results: &mut CancelledResults| cancelled_results.take_connected(address);
    let (connected, emptied) = this.cancelled_results.with(socket.py(), take);
    drop(emptied);
    connected
}

/// Keeps a result of a cancelled call for a later call on `socket`, behind results that are kept already.
pub fn keep(slf: &Bound<'_, LoopCore>, socket: &Bound<'_, PyAny>, item: Py<PyAny>) -> PyResult<()> {
    with_entry(slf, socket, |of_socket| of_socket.items.push_back(item))
}

/// Keeps a result, or the part of it that did not fit into a caller's buffer, in front of results that are kept
/// already.
pub fn give_back(
    slf: &Bound<'_, LoopCore>,
    socket: &Bound<'_, PyAny>,
    item: Py<PyAny>,
) -> PyResult<()> {
    with_entry(slf, socket, |of_socket| of_socket.items.push_front(item))
}

/// Records that a connect has succeeded whose call was cancelled.
pub fn keep_connected(slf: &Bound<'_, LoopCore>, socket: &Bound<'_, PyAny>) -> PyResult<()> {
    with_entry(slf, socket, |of_socket| of_socket.connected = true)
}

fn with_entry(
    slf: &Bound<'_, LoopCore>,
    socket: &Bound<'_, PyAny>,
    work: impl FnOnce(&mut OfSocket),
) -> PyResult<()> {
    let py = slf.py();
    let cell = &slf.get().cancelled_results;
    let address = socket.as_ptr() as usize;
    let known = cell.with(py, |cancelled_results| {
        cancelled_results.0.contains_key(&address)
    });
    let fresh = if known {
        None
    } else {
        Some(OfSocket {
            _socket: weak_key(slf, socket, address)?,
            items: VecDeque::new(),
            connected: false,
        })
    };
    cell.with(py, |cancelled_results| {
        if let Some(fresh) = fresh {
            cancelled_results.0.insert(address, fresh);
        }
        cancelled_results.0.get_mut(&address).map(work);
    });
    Ok(())
}

/// Makes the weak reference that drops the results of a socket object when the object dies.
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
        let gone = owner
            .get()
            .cancelled_results
            .with(py, |cancelled_results| cancelled_results.0.remove(&address));
        gone.map_or(Ok(()), |of_socket| release(py, of_socket))
    };
    let callback = PyCFunction::new_closure(py, None, None, forget)?;
    Ok(PyWeakrefReference::new_with(socket, callback)?.unbind())
}

/// Closes accepted connections among the results.
fn release(py: Python<'_>, of_socket: OfSocket) -> PyResult<()> {
    for item in of_socket.items {
        if let Ok(pair) = item.bind(py).cast::<PyTuple>()
            && let Ok(first) = pair.get_item(0)
            && first.hasattr(intern!(py, "close"))?
        {
            first.call_method0(intern!(py, "close"))?;
        }
    }
    Ok(())
}

/// Drops all results when the loop is closed.
pub fn close(this: &LoopCore, py: Python<'_>) -> PyResult<()> {
    let cancelled_results = this.cancelled_results.take(py);
    let mut all = cancelled_results.0.into_values();
    all.try_for_each(|of_socket| release(py, of_socket))
}
