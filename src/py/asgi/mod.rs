//! ASGI: an application's coroutine for each request, and its arguments.
//!
//! | file | content |
//! | --- | --- |
//! | `service` | the common state of all requests of a server |
//! | `scope` | from a request's head to the scope |
//! | `names` | a cache of field lines as Python objects |
//! | `request` | a request: its content, `receive()` |
//! | `body` | content that has arrived before `receive()` |
//! | `response` | a response: the messages of `send()` |
//! | `file` | files as content |
//! | `open_files` | the bound of open files, which clients share |
//! | `message` | parsing of the application's messages |
//! | `awaitables` | the awaitables that `receive()` and `send()` return |
//! | `task` | the coroutine around the application's, and its task |
//! | `limits` | a WebSocket's limits from Python |
//! | `websocket` | a request that is a WebSocket |
//! | `datagram` | HTTP datagrams of a request |
//! | `wire` | the interface by which a request writes to its stream |
//!
//! This code does not depend on the version of HTTP: a [`Wire`](wire::Wire) is a stream of any. Messages are those of the
//! ASGI specification (HTTP version 2.3, WebSocket version 2.4), with the values that uvicorn would pass.

pub mod awaitables;
mod body;
mod datagram;
mod file;
mod limits;
mod message;
mod names;
pub mod open_files;
pub mod request;
mod response;
pub mod scope;
pub mod service;
mod task;
pub mod websocket;
pub mod wire;

use pyo3::prelude::*;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<service::AsgiService>()?;
    m.add_class::<request::Request>()?;
    m.add_class::<awaitables::Answer>()?;
    m.add_class::<limits::WebSocketLimits>()?;
    let gone = m.py().get_type::<websocket::ClientDisconnected>();
    m.add("ClientDisconnected", gone)?;
    m.add_class::<task::ApplicationCoroutine>()
}
