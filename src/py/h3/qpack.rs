//! QPACK on its own (RFC 9204), for programs that frame HTTP/3 themselves and for tests against other
//! implementations.
//!
//! `uringcore.h3._qpack` has the documentation of these classes.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use uringcore_h3::qpack::{Decoded, Decoder, DecoderSettings, Encoder, EncoderSettings};

use super::field_conversion::{self, FieldLines};
use crate::capi::bounded_arguments::BytesLike;
use crate::capi::gil_cell::GilCell;

/// Encodes field lines to field sections.
#[pyclass(module = "uringcore.h3._qpack", frozen)]
pub struct QpackEncoder {
    encoder: GilCell<Encoder>,
}

#[pymethods]
impl QpackEncoder {
    #[new]
    #[pyo3(signature = (max_table_capacity = 4096, *, may_block = false))]
    fn new(max_table_capacity: usize, may_block: bool) -> Self {
        let settings = EncoderSettings {
            table_capacity: max_table_capacity,
            may_block,
        };
        Self {
            encoder: GilCell::new(Encoder::new(settings)),
        }
    }

    /// Applies the peer's SETTINGS. Returns bytes for the encoder stream.
    fn apply_settings<'py>(
        &self,
        py: Python<'py>,
        max_table_capacity: u64,
        blocked_streams: u64,
    ) -> Bound<'py, PyBytes> {
        let instructions = self.encoder.with(py, |encoder| {
            encoder.handle_settings(max_table_capacity, blocked_streams);
            encoder.take_instructions()
        });
        PyBytes::new(py, &instructions.unwrap_or_default())
    }

    /// Encodes a field section. Returns bytes for the encoder stream, and the section.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        stream_id: u64,
        headers: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let lines = FieldLines::extract(headers)?;
        let slices = lines.as_slices();
        let (instructions, section) = self.encoder.with(py, |encoder| {
            let mut body = Vec::new();
            let mut section = encoder.section(stream_id, &mut body);
            for (name, value) in &slices {
                section.field(name, value);
            }
            let prefix = section.finish();
            let mut out = body.split_off(prefix);
            out.extend_from_slice(&body);
            (encoder.take_instructions(), out)
        });
        Ok((
            PyBytes::new(py, &instructions.unwrap_or_default()),
            PyBytes::new(py, &section),
        ))
    }

    /// Reads bytes of the peer's decoder stream. Raises ``ValueError`` if they are invalid.
    #[expect(clippy::needless_pass_by_value)] // PyO3 passes the argument by value.
    fn feed_decoder(&self, py: Python<'_>, data: BytesLike<'_>) -> PyResult<()> {
        self.encoder
            .with(py, |encoder| encoder.handle_decoder_stream(&data))
            .map(drop)
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

/// Decodes field sections to field lines.
#[pyclass(module = "uringcore.h3._qpack", frozen)]
pub struct QpackDecoder {
    decoder: GilCell<Decoder>,
}

#[pymethods]
impl QpackDecoder {
    #[new]
    #[pyo3(signature = (
        max_table_capacity = 4096, blocked_streams = 16, max_field_section_size = 65536,
    ))]
    fn new(
        max_table_capacity: usize,
        blocked_streams: usize,
        max_field_section_size: usize,
    ) -> Self {
        let settings = DecoderSettings {
            max_table_capacity,
            blocked_streams,
            max_field_section_size,
            max_fields: usize::MAX,
        };
        Self {
            decoder: GilCell::new(Decoder::new(settings)),
        }
    }

    /// Reads bytes of the peer's encoder stream. Returns the number of insertions since the start. Raises
    /// ``ValueError`` if they are invalid.
    #[expect(clippy::needless_pass_by_value)] // PyO3 passes the argument by value.
    fn feed_encoder(&self, py: Python<'_>, data: BytesLike<'_>) -> PyResult<u64> {
        self.decoder
            .with(py, |decoder| {
                decoder
                    .handle_encoder_stream(&data)
                    .map(|_| decoder.insert_count())
            })
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Decodes a field section. Returns None if it needs more bytes of the encoder stream; the caller passes the
    /// section again later. Raises ``ValueError`` if the section is invalid or too large.
    #[expect(clippy::needless_pass_by_value)] // PyO3 passes the argument by value.
    fn decode<'py>(
        &self,
        py: Python<'py>,
        stream_id: u64,
        section: BytesLike<'_>,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        match self
            .decoder
            .with(py, |decoder| decoder.decode(stream_id, &section))
        {
            Ok(Decoded::Fields(list)) => field_conversion::to_list(py, &list).map(Some),
            Ok(Decoded::Blocked { .. }) => Ok(None),
            Err(error) => Err(PyValueError::new_err(error.into_inner().to_string())),
        }
    }

    /// Drops the sections of a stream that was cancelled.
    fn cancel_stream(&self, py: Python<'_>, stream_id: u64) {
        self.decoder
            .with(py, |decoder| decoder.cancel_stream(stream_id));
    }

    /// Returns the bytes for the decoder stream since the last call.
    fn take_instructions<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let instructions = self.decoder.with(py, Decoder::take_instructions);
        PyBytes::new(py, &instructions.unwrap_or_default())
    }
}
