//! Compression of responses by negotiation (`uringcore_http::content_coding`): the settings of a server, and the
//! encoder of a response.
//!
//! A response of up to 128 KiB that is complete with its first content is compressed in one step. The content of any
//! other response is compressed message by message, and each message is flushed, so that the client can read it at
//! once. Parts of files are not flushed.
//!
//! The encoders of responses that are under way are bounded in number, and their memory is charged to the client.
//! Without a permit or memory, a response is sent as it is.

use std::sync::Arc;

use bytes::Bytes;
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use uringcore_http::content_coding::{Coding, Encoder, Plan, Settings, accepted, weakened};
use uringcore_limits::memory_budget::Charge;
use uringcore_limits::semaphore::{Permit, Semaphore};

use super::asgi_service::{AsgiService, Line};
use super::http_stream::Ending;
use super::request::Request;
use super::response::Head;
use crate::capi::bounded_arguments::List;

/// The compression of a server's responses.
///
/// `codings` are "zstd", "br" and "gzip", in the order of preference. Content of fewer than `min_size` bytes is not
/// compressed. `level` is 1 (fast) to 9 (small), or `None` for a moderate level. `max_streams` is the largest number
/// of responses that are compressed at the same time, without those that are complete with their first content.
/// Raises `ValueError` for an unknown coding or level.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct ResponseCompression {
    settings: Settings,
    streams: Arc<Semaphore>,
}

#[pymethods]
impl ResponseCompression {
    #[new]
    #[pyo3(signature = (codings, *, min_size, level, max_streams))]
    fn new(
        codings: List<String>,
        min_size: u64,
        level: Option<u8>,
        max_streams: usize,
    ) -> PyResult<Self> {
        let codings = codings.0.iter().map(|name| {
            let coding = Coding::from_name(name.as_bytes());
            coding.ok_or_else(|| PyValueError::new_err(format!("no coding {name:?}")))
        });
        if level.is_some_and(|level| !(1..=9).contains(&level)) {
            return Err(PyValueError::new_err("level must be 1 to 9"));
        }
        Ok(Self {
            settings: Settings {
                codings: codings.collect::<PyResult<_>>()?,
                size_min: min_size,
                level,
            },
            streams: Semaphore::new(max_streams),
        })
    }
}

/// Returns the codings of compressed files that a client accepts and does not rank below the plain file, the best one
/// first. `value` is the value of Accept-Encoding.
#[pyfunction]
pub fn accepted_codings(value: &str) -> Vec<&'static str> {
    let offered = [Coding::Brotli, Coding::Zstd, Coding::Gzip];
    let accepted = accepted(value.as_bytes(), &offered);
    accepted.into_iter().map(Coding::name).collect()
}

/// The encoder of a response that is under way.
pub(super) struct Encoding {
    encoder: Encoder,
    _permit: Permit,
    _charge: Charge,
}

impl Request {
    /// Decides whether a response is compressed. `None` if it must stay as it is.
    pub(super) fn compression_plan(
        &self,
        py: Python<'_>,
        status: u16,
        fields: &mut [Line],
    ) -> PyResult<Option<Plan>> {
        let Some(compression) = &self.service.get().compression else {
            return Ok(None);
        };
        if self.is_socket() || self.datagrams.is_some() {
            return Ok(None);
        }
        if status == 304 {
            self.weaken_known_tag(py, fields)?;
            return Ok(None);
        }
        let accept = self.request_field(py, b"accept-encoding")?;
        let lines = fields.iter();
        let lines = lines.map(|(name, value)| (name.as_bytes(py), value.as_bytes(py)));
        Ok(Plan::new(
            status,
            lines,
            &accept,
            &compression.get().settings,
        ))
    }

    /// Makes the tag of a 304 weak if the client has got a weak one, with a compressed response (RFC 9110 section
    /// 15.4.5: the field is the one of the response 200).
    fn weaken_known_tag(&self, py: Python<'_>, fields: &mut [Line]) -> PyResult<()> {
        let mut lines = fields.iter_mut();
        let Some((_, tag)) = lines.find(|(name, _)| name.as_bytes(py) == b"etag") else {
            return Ok(());
        };
        let Some(weak) = weakened(tag.as_bytes(py)) else {
            return Ok(());
        };
        let known = self.request_field(py, b"if-none-match")?;
        let mut known = known.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        if known.any(|one| one == weak) {
            *tag = PyBytes::new(py, &weak).unbind();
        }
        Ok(())
    }

    /// Returns the value of a field of the request, from the scope: a middleware may have changed it.
    fn request_field(&self, py: Python<'_>, name: &[u8]) -> PyResult<Vec<u8>> {
        let mut joined = Vec::new();
        let Some(headers) = self.scope.bind(py).get_item(intern!(py, "headers"))? else {
            return Ok(joined);
        };
        let Ok(headers) = headers.cast::<PyList>() else {
            return Ok(joined);
        };
        for item in headers {
            let (known, value) = AsgiService::pair(&item)?;
            if let (Ok(known), Ok(value)) = (known.cast::<PyBytes>(), value.cast::<PyBytes>())
                && known.as_bytes() == name
            {
                if !joined.is_empty() {
                    joined.extend_from_slice(b", ");
                }
                joined.extend_from_slice(value.as_bytes());
            }
        }
        Ok(joined)
    }

    /// Handles the first content of a response, before its head is sent. Returns the content to send.
    pub(super) fn begin_encoding(
        &self,
        py: Python<'_>,
        head: &mut Head,
        content: Bytes,
        ends: bool,
        flushes: bool,
    ) -> PyResult<Bytes> {
        let (Some(plan), Some(compression)) = (head.plan.take(), &self.service.get().compression)
        else {
            return Ok(content);
        };
        head.add_vary(py);
        let Some(coding) = plan.coding else {
            return Ok(content);
        };
        let compression = compression.get();
        let is_bodyless = self.state.with(py, |state| state.response.is_bodyless());
        let length = match ends && !is_bodyless {
            true => Some(content.len() as u64),
            false => plan.length,
        };
        let is_small = length.is_some_and(|length| length < compression.settings.size_min);
        // The size of the response to a GET is not known if the answer to a HEAD has no length.
        if is_small || (is_bodyless && length.is_none()) {
            return Ok(content);
        }
        if is_bodyless {
            head.set_coding(py, coding, None);
            return Ok(content);
        }
        let level = compression.settings.level;
        if ends {
            let encoder = Encoder::new(coding, level).map_err(no_memory)?;
            let coded = encoder.finish(&content).map_err(no_memory)?;
            if coded.len() >= content.len() {
                return Ok(content);
            }
            head.set_coding(py, coding, plan.length.map(|_| coded.len()));
            return Ok(coded.into());
        }
        let is_short = self.with_stream(py, |stream| stream.is_short_of_memory(py));
        let Some(permit) = compression
            .streams
            .take()
            .filter(|_| is_short != Some(true))
        else {
            return Ok(content);
        };
        let mut charge = self.state.with(py, |state| state.charge.beside());
        charge.set(Encoder::memory(coding, level));
        let mut encoder = Encoder::new(coding, level).map_err(no_memory)?;
        let coded = match content.is_empty() {
            true => Vec::new(),
            false => encoder.write(&content, flushes).map_err(no_memory)?,
        };
        head.set_coding(py, coding, None);
        let encoding = Encoding {
            encoder,
            _permit: permit,
            _charge: charge,
        };
        self.state.with(py, |state| {
            state.response.encoding = Some(Box::new(encoding))
        });
        Ok(coded.into())
    }

    /// Compresses further content of a response. With `ends` it is the last. Returns the content to send.
    pub(super) fn encode(
        &self,
        py: Python<'_>,
        content: Bytes,
        ends: bool,
        flushes: bool,
    ) -> PyResult<Bytes> {
        let encoding = self.state.with(py, |state| state.response.encoding.take());
        let Some(mut encoding) = encoding else {
            return Ok(content);
        };
        // The head with its Content-Encoding is sent, so uncompressed content must not follow a failure.
        let failed = |error| {
            self.end(py, Ending::Failed);
            no_memory(error)
        };
        if ends {
            let coded = encoding.encoder.finish(&content).map_err(failed)?;
            return Ok(coded.into());
        }
        let coded = match content.is_empty() {
            true => Vec::new(),
            false => encoding.encoder.write(&content, flushes).map_err(failed)?,
        };
        self.state
            .with(py, |state| state.response.encoding = Some(encoding));
        Ok(coded.into())
    }

    /// True if content of the response is being compressed.
    pub(super) fn is_encoding(&self, py: Python<'_>) -> bool {
        self.state
            .with(py, |state| state.response.encoding.is_some())
    }
}

impl Head {
    /// Adds Accept-Encoding to Vary.
    fn add_vary(&mut self, py: Python<'_>) {
        let mut lines = self.fields.iter();
        if lines.any(|(name, value)| Plan::is_stated_by(name.as_bytes(py), value.as_bytes(py))) {
            return;
        }
        self.add(py, b"vary", b"accept-encoding");
    }

    /// Changes the fields to those of compressed content with this length, if the response announces one.
    fn set_coding(&mut self, py: Python<'_>, coding: Coding, length: Option<usize>) {
        // Ranges of the compressed content are not available.
        self.fields.retain(|(name, _)| {
            let name = name.as_bytes(py);
            name != b"content-length" && name != b"accept-ranges"
        });
        for (name, value) in &mut self.fields {
            if name.as_bytes(py) == b"etag"
                && let Some(weak) = weakened(value.as_bytes(py))
            {
                *value = PyBytes::new(py, &weak).unbind();
            }
        }
        self.add(py, b"content-encoding", coding.name().as_bytes());
        if let Some(length) = length {
            self.add(py, b"content-length", length.to_string().as_bytes());
        }
    }

    fn add(&mut self, py: Python<'_>, name: &[u8], value: &[u8]) {
        let line = (PyBytes::new(py, name), PyBytes::new(py, value));
        self.fields.push((line.0.unbind(), line.1.unbind()));
    }
}

#[expect(clippy::needless_pass_by_value)] // For `map_err`.
fn no_memory(error: std::io::Error) -> PyErr {
    PyMemoryError::new_err(format!("a response could not be compressed: {error}"))
}

/// The largest number of bytes of content that are compressed in one iteration of the loop.
pub(super) const COMPRESSED_BYTES_PER_ITERATION: usize = 1 << 20;
