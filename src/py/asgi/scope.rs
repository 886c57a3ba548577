//! Converts the head of a request to an ASGI HTTP scope. It has the values that uvicorn would set, so that scopes of
//! different versions of HTTP differ only in `http_version`.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use uringcore_http::request_head::Head;

use super::asgi_service::AsgiService;
use super::header_cache;

/// The values of a connection that are in the scopes of all its requests.
pub struct ConnectionInfo<'py> {
    pub client: Bound<'py, PyAny>,
    pub server: Bound<'py, PyAny>,
    /// The extension `tls`.
    pub tls: Option<Bound<'py, PyAny>>,
    /// The size in bytes of the largest HTTP datagram that fits into a packet. `None` without datagrams.
    pub datagram_max: Option<usize>,
}

/// Makes the template from which every scope is copied: `common`, and the keys for the values of a request. The method
/// and the query have the values of most requests, so these need no change.
pub fn template(common: &Bound<'_, PyDict>) -> PyResult<Py<PyDict>> {
    let py = common.py();
    let template = common.copy()?;
    for name in [
        "method",
        "path",
        "raw_path",
        "query_string",
        "headers",
        "client",
        "server",
        "state",
        "extensions",
    ] {
        template.set_item(PyString::intern(py, name), py.None())?;
    }
    template.set_item(intern!(py, "method"), intern!(py, USUAL_METHOD))?;
    template.set_item(intern!(py, "query_string"), PyBytes::new(py, b""))?;
    Ok(template.unbind())
}

pub fn build<'py>(
    py: Python<'py>,
    service: &AsgiService,
    head: &Head,
    info: &ConnectionInfo<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    // The copy has all keys already, so its hash table does not grow.
    let scope = service.template.bind(py).copy()?;
    if let Some(versions) = scope.get_item(intern!(py, "asgi"))? {
        // This value is copied, because the next request must not see an application's changes.
        scope.set_item(intern!(py, "asgi"), versions.cast::<PyDict>()?.copy()?)?;
    }
    let (path, query) = split(&head.target);
    if &*head.method != USUAL_METHOD.as_bytes() {
        scope.set_item(intern!(py, "method"), method(py, &head.method))?;
    }
    scope.set_item(intern!(py, "path"), service.rooted_path(py, path)?)?;
    scope.set_item(intern!(py, "raw_path"), service.rooted_raw_path(py, path)?)?;
    if !query.is_empty() {
        scope.set_item(intern!(py, "query_string"), PyBytes::new(py, query))?;
    }
    scope.set_item(intern!(py, "headers"), headers(py, service, head)?)?;
    scope.set_item(intern!(py, "client"), &info.client)?;
    scope.set_item(intern!(py, "server"), &info.server)?;
    let state = service.app_state.bind(py).copy()?;
    scope.set_item(intern!(py, "state"), state)?;
    let extensions = service.extensions.bind(py).copy()?;
    if let Some(tls) = &info.tls {
        extensions.set_item(intern!(py, "tls"), tls)?;
    }
    if head.is_early {
        extensions.set_item(intern!(py, "uringcore.early_data"), PyDict::new(py))?;
    }
    if let Some(protocol) = &head.protocol {
        let datagrams = PyDict::new(py);
        datagrams.set_item(intern!(py, "protocol"), String::from_utf8_lossy(protocol))?;
        datagrams.set_item(intern!(py, "max_size"), info.datagram_max)?;
        extensions.set_item(intern!(py, "http.datagram"), datagrams)?;
    }
    scope.set_item(intern!(py, "extensions"), extensions)?;
    Ok(scope)
}

/// Changes the scope of a request to that of a WebSocket.
pub fn for_websocket<'py>(scope: &Bound<'py, PyDict>, head: &Head) -> PyResult<()> {
    let py = scope.py();
    scope.set_item(intern!(py, "type"), intern!(py, "websocket"))?;
    scope.set_item(intern!(py, "scheme"), intern!(py, "wss"))?;
    scope.del_item(intern!(py, "method"))?;
    let subprotocols = PyList::empty(py);
    let offered = head.fields.iter();
    for (_, value) in offered.filter(|(name, _)| &**name == b"sec-websocket-protocol") {
        for token in value.split(|&byte| byte == b',') {
            subprotocols.append(String::from_utf8_lossy(token.trim_ascii()))?;
        }
    }
    scope.set_item(intern!(py, "subprotocols"), subprotocols)?;
    add_upgrade(scope, head)?;
    let asgi = scope.as_any().get_item(intern!(py, "asgi"))?;
    let asgi = asgi.cast::<PyDict>()?.copy()?;
    asgi.set_item(intern!(py, "spec_version"), intern!(py, "2.4"))?;
    scope.set_item(intern!(py, "asgi"), asgi)?;
    let extensions = PyDict::new(py);
    extensions.set_item(intern!(py, "websocket.http.response"), PyDict::new(py))?;
    let all = scope.as_any().get_item(intern!(py, "extensions"))?;
    // The other extensions are about HTTP responses.
    if let Some(tls) = all.cast::<PyDict>()?.get_item(intern!(py, "tls"))? {
        extensions.set_item(intern!(py, "tls"), tls)?;
    }
    scope.set_item(intern!(py, "extensions"), extensions)
}

/// Adds the fields that open a WebSocket over HTTP/1.1, unless the client has sent them. Extended CONNECT has none (RFC
/// 8441 section 5), but applications look for them: Engine.IO refuses a WebSocket without. A proxy that passes a WebSocket
/// on over HTTP/1.1 adds them, too.
fn add_upgrade(scope: &Bound<'_, PyDict>, head: &Head) -> PyResult<()> {
    let py = scope.py();
    if head.fields.iter().any(|(name, _)| &**name == b"upgrade") {
        return Ok(());
    }
    let headers = scope.as_any().get_item(intern!(py, "headers"))?;
    let headers = headers.cast::<PyList>()?;
    for (name, value) in [("connection", "Upgrade"), ("upgrade", "websocket")] {
        let line = [name, value].map(|text| PyBytes::new(py, text.as_bytes()));
        headers.append(PyTuple::new(py, line)?)?;
    }
    Ok(())
}

/// Changes the scope of a request to that of a WebTransport session. ASGI has no specification of it.
pub fn for_webtransport<'py>(scope: &Bound<'py, PyDict>, protocols: &[String]) -> PyResult<()> {
    let py = scope.py();
    scope.set_item(intern!(py, "type"), intern!(py, "webtransport"))?;
    scope.del_item(intern!(py, "method"))?;
    scope.set_item(intern!(py, "subprotocols"), PyList::new(py, protocols)?)?;
    let extensions = PyDict::new(py);
    let all = scope.as_any().get_item(intern!(py, "extensions"))?;
    // The other extensions are about HTTP responses.
    if let Some(tls) = all.cast::<PyDict>()?.get_item(intern!(py, "tls"))? {
        extensions.set_item(intern!(py, "tls"), tls)?;
    }
    scope.set_item(intern!(py, "extensions"), extensions)
}

fn headers<'py>(
    py: Python<'py>,
    service: &AsgiService,
    head: &Head,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for (name, value) in &head.fields {
        list.append(header_cache::pair(py, &service.lines, name, value)?)?;
    }
    Ok(list)
}

/// The method in upper case, as ASGI requires. The server treats `head` as HEAD too, because the application does.
/// The common methods are interned strings.
fn method<'py>(py: Python<'py>, method: &[u8]) -> Bound<'py, PyString> {
    match method {
        b"GET" => intern!(py, "GET").clone(),
        b"POST" => intern!(py, "POST").clone(),
        b"PUT" => intern!(py, "PUT").clone(),
        b"HEAD" => intern!(py, "HEAD").clone(),
        // The request was refused before its method was read. Only the log shows this text.
        b"" => intern!(py, "-").clone(),
        other => PyString::new(py, &String::from_utf8_lossy(&other.to_ascii_uppercase())),
    }
}

pub(super) fn split(target: &[u8]) -> (&[u8], &[u8]) {
    match target.iter().position(|&byte| byte == b'?') {
        Some(at) => (&target[..at], &target[at + 1..]),
        None => (target, &[]),
    }
}

/// Decodes the percent-encoding of a path as `urllib.parse.unquote` does: an invalid escape stays, and invalid UTF-8
/// is replaced.
pub fn unquoted(path: &[u8]) -> String {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| (*byte as char).to_digit(16));
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first == b'%'
            && let (Some(high), Some(low)) = (digit(tail.first()), digit(tail.get(1)))
        {
            bytes.push((high << 4 | low) as u8);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

impl AsgiService {
    fn rooted_path<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Bound<'py, PyString>> {
        let text = match path.contains(&b'%') {
            true => PyString::new(py, &unquoted(path)),
            // The path is ASCII, as the parser of the head has checked.
            false => PyString::new(py, &String::from_utf8_lossy(path)),
        };
        match &self.root_path {
            None => Ok(text),
            Some(root) => Ok(root.text.bind(py).add(text)?.cast_into()?),
        }
    }

    fn rooted_raw_path<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let Some(root) = &self.root_path else {
            return Ok(PyBytes::new(py, path));
        };
        let root = root.raw.as_bytes(py);
        PyBytes::new_with(py, root.len() + path.len(), |out| {
            out[..root.len()].copy_from_slice(root);
            out[root.len()..].copy_from_slice(path);
            Ok(())
        })
    }
}

/// The method of most requests.
const USUAL_METHOD: &str = "GET";
