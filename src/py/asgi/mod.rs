//! ASGI: calls an application with a scope, `receive()` and `send()` for each request.
//!
//! | file | content |
//! | --- | --- |
//! | `asgi_service` | the state that all requests of a server share |
//! | `scope` | converts the head of a request to the scope |
//! | `header_cache` | a cache of field lines as Python objects |
//! | `request` | a request: its content, `receive()` |
//! | `request_body_buffer` | content that has arrived before `receive()` |
//! | `response` | a response: the messages of `send()` |
//! | `response_compression` | compression of responses by negotiation |
//! | `file_response` | files as content of a response |
//! | `static_answers` | answers with such files that are repeated without Python |
//! | `static_folder` | files of a folder that the server publishes |
//! | `open_file_permits` | permits for the open files of a process, which clients share |
//! | `message_parser` | parses the application's messages |
//! | `receive_send_awaitables` | the awaitables that `receive()` and `send()` return |
//! | `application_task` | the coroutine around the application's, and its task |
//! | `websocket_limits` | the limits of a WebSocket from Python |
//! | `websocket` | a request that is a WebSocket |
//! | `http_datagrams` | HTTP datagrams of a request |
//! | `http_stream` | the interface of a request's stream, in any version of HTTP |
//!
//! This code does not depend on the version of HTTP, which implements [`HttpStream`](http_stream::HttpStream). The
//! messages are those of the ASGI specification (HTTP version 2.3, WebSocket version 2.4), with the values that
//! uvicorn would pass.

mod application_task;
pub mod asgi_service;
mod file_response;
mod header_cache;
mod http_datagrams;
pub mod http_stream;
mod message_parser;
pub mod open_file_permits;
pub mod receive_send_awaitables;
pub mod request;
mod request_body_buffer;
mod response;
mod response_compression;
pub mod scope;
mod static_answers;
mod static_folder;
pub mod websocket;
mod websocket_limits;

use pyo3::prelude::*;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<asgi_service::AsgiService>()?;
    m.add_class::<request::Request>()?;
    m.add_class::<receive_send_awaitables::MessageAwaitable>()?;
    m.add_class::<websocket_limits::WebSocketLimits>()?;
    m.add_class::<response_compression::ResponseCompression>()?;
    m.add_function(wrap_pyfunction!(response_compression::accepted_codings, m)?)?;
    m.add_class::<static_folder::StaticFile>()?;
    m.add_class::<static_folder::StaticFolder>()?;
    let gone = m.py().get_type::<websocket::ClientDisconnected>();
    m.add("ClientDisconnected", gone)?;
    m.add_class::<application_task::ApplicationCoroutine>()
}
