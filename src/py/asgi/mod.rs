//! ASGI: an application's coroutine for each request, and what it is called with.
//!
//! | file | noun |
//! | --- | --- |
//! | `service` | what all requests of a server share |
//! | `scope` | from a request's head to the scope |
//! | `names` | field names and values that come again and again, as Python objects |
//! | `request` | one request: its content, `receive()` |
//! | `body` | content that has arrived and was not asked for yet |
//! | `response` | what `send()` makes of the application's messages |
//! | `file` | files as content |
//! | `open_files` | places for open files, which clients share |
//! | `message` | what the application's messages say |
//! | `answer` | what `receive()` and `send()` give back |
//! | `task` | the coroutine around the application's, and its task |
//! | `limits` | what Python says of a WebSocket's limits |
//! | `websocket` | a request that is a WebSocket |
//! | `datagram` | HTTP datagrams of a request |
//! | `wire` | what a request writes through |
//!
//! No version of HTTP is known here: a [`Wire`](wire::Wire) is one stream of any. Messages are those of the ASGI
//! specification (HTTP version 2.3, WebSocket version 2.4), and applications see what uvicorn would show them.

pub mod answer;
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
    m.add_class::<answer::Answer>()?;
    m.add_class::<limits::WebSocketLimits>()?;
    let gone = m.py().get_type::<websocket::ClientDisconnected>();
    m.add("ClientDisconnected", gone)?;
    m.add_class::<task::ApplicationCoroutine>()
}
