//! Python buffers held as `Bytes`. Except for `view`, no other file keeps a pointer into a Python object.
//!
//! **Ownership of the memory.** While a view is held, its object can neither free the memory nor move it. That does
//! not prevent writes. `bytes` never change. For other objects an interpreter lock prevents writes, because nothing
//! here releases it while it reads a buffer. A free-threaded interpreter has no such lock: a program whose threads
//! write to an object that a call is reading has a race of its own, as it has with CPython's sockets. So mutable
//! memory is only copied or passed to a system call. Both take each byte as they find it, and no decision depends on
//! its contents.

use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

use bytes::Bytes;
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView};
use uringcore_io::net;

use crate::capi::buffer_view::BufferView;
use crate::capi::fresh_bytes::FreshBytes;

/// A `bytes` object that lives as long as the kernel or a queue needs its contents.
struct HeldBytes {
    data: *const u8,
    len: usize,
    _owner: Py<PyBytes>,
}

// SAFETY: a `bytes` object is immutable and its storage never moves, so any thread may read it, attached
// to the interpreter or not; the reference keeps it alive, and PyO3 defers the drop of a `Py` on a thread
// that is not attached.
unsafe impl Send for HeldBytes {}
// SAFETY: as for `Send`: only shared reads of immutable memory.
unsafe impl Sync for HeldBytes {}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `data` and `len` were taken from `_owner`, which is alive and immutable.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

/// A `bytes` object as `Bytes`: copied while small, referenced above that.
pub fn hold_bytes(bytes: &Bound<'_, PyBytes>) -> Bytes {
    let slice = bytes.as_bytes();
    if !is_held(bytes) {
        return Bytes::copy_from_slice(slice);
    }
    Bytes::from_owner(HeldBytes {
        data: slice.as_ptr(),
        len: slice.len(),
        _owner: bytes.clone().unbind(),
    })
}

/// A subclass may have a `__del__`, which must not run when the engine drops what it has sent.
fn is_held(bytes: &Bound<'_, PyBytes>) -> bool {
    bytes.as_bytes().len() >= HOLD_FROM_BYTES && bytes.is_exact_instance_of::<PyBytes>()
}

/// Bytes that a stream is to send.
pub enum Outgoing<'a> {
    /// The contents of a `bytes` object. They are copied into the queue.
    Copied(&'a [u8]),
    /// The contents of a `bytes` object, which is kept until they are sent, or a copy of any other object's.
    Kept(Bytes),
}

/// Joins pieces with `len` bytes in total, in one copy.
pub fn bytes_of<'py, P: AsRef<[u8]>>(
    py: Python<'py>,
    pieces: impl Iterator<Item = P> + Clone,
    len: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut filled = pieces.clone().filter(|piece| !piece.as_ref().is_empty());
    match (filled.next(), filled.next()) {
        (None, _) => Ok(PyBytes::new(py, b"")),
        (Some(only), None) => Ok(PyBytes::new(py, only.as_ref())),
        _ => PyBytes::new_with_writer(py, len, |writer| {
            for piece in pieces {
                writer.write_all(piece.as_ref())?;
            }
            Ok(())
        }),
    }
}

impl<'a> Outgoing<'a> {
    /// The bytes of an argument of `write()`, as [`bytes_like`].
    pub fn bytes_like(data: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        match data.cast::<PyBytes>() {
            Ok(bytes) => Ok(Self::bytes(bytes)),
            Err(_) => bytes_like(data).map(Self::Kept),
        }
    }

    /// The bytes of an argument of `writelines()`, as [`any_buffer`].
    pub fn any_buffer(data: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        match data.cast::<PyBytes>() {
            Ok(bytes) => Ok(Self::bytes(bytes)),
            Err(_) => any_buffer(data).map(Self::Kept),
        }
    }

    pub fn bytes(bytes: &'a Bound<'_, PyBytes>) -> Self {
        match is_held(bytes) {
            true => Self::Kept(hold_bytes(bytes)),
            false => Self::Copied(bytes.as_bytes()),
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Self::Copied(bytes) => bytes.is_empty(),
            Self::Kept(bytes) => bytes.is_empty(),
        }
    }
}

/// The types that asyncio's transports accept: bytes, bytearray or memoryview. A mutable one is copied, because it
/// may change before it is sent.
pub fn bytes_like(data: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(hold_bytes(bytes));
    }
    if data.is_instance_of::<PyByteArray>() || data.is_instance_of::<PyMemoryView>() {
        return any_buffer(data);
    }
    Err(PyTypeError::new_err(format!(
        "data argument must be a bytes-like object, not {}",
        data.get_type().name()?.repr()?
    )))
}

/// Any C-contiguous buffer of any item format, as bytes. `bytes` are held as by [`hold_bytes`], others
/// copied.
///
/// # Errors
///
/// `TypeError` for an object without the buffer protocol, `BufferError` for a buffer that is not contiguous;
/// both name the argument.
pub fn contiguous(data: &Bound<'_, PyAny>, name: &str) -> PyResult<Bytes> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(hold_bytes(bytes));
    }
    match BufferView::get(data, ffi::PyBUF_SIMPLE) {
        Ok(view) => Ok(view.copy()?.into()),
        Err(error) => Err(not_contiguous(data, name, error)),
    }
}

/// Raises the error that [`contiguous`] would raise for this object.
pub fn check_contiguous(data: &Bound<'_, PyAny>, name: &str) -> PyResult<()> {
    match BufferView::get(data, ffi::PyBUF_SIMPLE) {
        Ok(_) => Ok(()),
        Err(error) => Err(not_contiguous(data, name, error)),
    }
}

/// The error for an argument of that name without a contiguous buffer. Exceptions that a program's own buffer raised
/// are passed on.
fn not_contiguous(data: &Bound<'_, PyAny>, name: &str, error: PyErr) -> PyErr {
    let py = data.py();
    if error.is_instance_of::<PyBufferError>(py) {
        return PyBufferError::new_err(format!("{name}: {}", error.value(py)));
    }
    match (check(data), data.get_type().name()) {
        (Err(_), Ok(kind)) => {
            let text = format!("{name}: a bytes-like object is required, not '{kind}'");
            PyTypeError::new_err(text)
        }
        _ => error,
    }
}

/// Any object with the buffer protocol, as `memoryview()` takes it (asyncio's `writelines`).
pub fn any_buffer(data: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(hold_bytes(bytes));
    }
    match BufferView::get(data, ffi::PyBUF_SIMPLE) {
        Ok(view) => Ok(view.copy()?.into()),
        // Not contiguous: asyncio sends the bytes that it shows nevertheless.
        Err(_) => {
            let shown = PyMemoryView::from(data)?.call_method0("tobytes")?;
            Ok(hold_bytes(shown.cast::<PyBytes>()?))
        }
    }
}

/// Raises the error of `memoryview()` for an object without the buffer protocol.
pub fn check(data: &Bound<'_, PyAny>) -> PyResult<()> {
    // SAFETY: this thread is attached and the object is alive. The call reads its type and runs no code of it.
    if unsafe { ffi::PyObject_CheckBuffer(data.as_ptr()) } != 0 {
        return Ok(());
    }
    let kind = data.get_type().name()?;
    let message = format!("a bytes-like object is required, not '{kind}'");
    Err(PyTypeError::new_err(message))
}

/// Copies as much of `data` as fits into the result of `get_buffer()`, a writable Python buffer of any item format.
/// Returns the count.
pub fn copy_into(target: &Bound<'_, PyAny>, data: &[u8]) -> PyResult<usize> {
    let view = buffer_of_protocol(target)?;
    let count = view.len().min(data.len());
    // SAFETY: the view is held, writable and contiguous, and `count` is within its length. `data` is
    // memory of Rust's or of a `bytes` object, which a writable buffer cannot overlap.
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), view.data(), count) };
    Ok(count)
}

/// Receives into the buffer without waiting. Also returns its size. The outer error is one of the buffer's.
pub fn receive_into(target: &Bound<'_, PyAny>, fd: RawFd) -> PyResult<(io::Result<usize>, usize)> {
    let view = buffer_of_protocol(target)?;
    let received = in_memory(&view, |memory| net::recv(fd, memory));
    Ok((received, view.len()))
}

fn buffer_of_protocol<'py>(target: &Bound<'py, PyAny>) -> PyResult<BufferView<'py>> {
    let view = BufferView::get(target, ffi::PyBUF_WRITABLE)?;
    match view.len() {
        0 => Err(PyRuntimeError::new_err(
            "get_buffer() returned an empty buffer",
        )),
        _ => Ok(view),
    }
}

/// A new `bytes` object of up to `size` bytes that are received from a socket without waiting.
pub fn received(py: Python<'_>, fd: RawFd, size: usize) -> io::Result<Py<PyBytes>> {
    let no_memory = |error: PyErr| {
        drop(error);
        io::Error::from_raw_os_error(libc::ENOMEM)
    };
    let mut fresh = FreshBytes::with_capacity(py, size).map_err(no_memory)?;
    fresh.receive(fd)?;
    let made = fresh.finish(py).map_err(no_memory)?;
    Ok(made.unbind())
}

/// Runs `work`, a system call or a copy, on the bytes of a bytes-like object; `None` if it is none.
pub fn with_readable<R>(data: &Bound<'_, PyAny>, work: impl FnOnce(&[u8]) -> R) -> Option<R> {
    let view = BufferView::get(data, ffi::PyBUF_SIMPLE).ok()?;
    // SAFETY: the view is held until the end of this function and gives address and length. The head of this file says
    // which code may change the bytes meanwhile.
    let bytes = unsafe { std::slice::from_raw_parts(view.data(), view.len()) };
    Some(work(bytes))
}

/// Runs `work`, a system call or a copy, on the memory of a writable bytes-like object; `None` if it is
/// none.
pub fn with_writable<R>(
    data: &Bound<'_, PyAny>,
    work: impl FnOnce(&mut [MaybeUninit<u8>]) -> R,
) -> Option<R> {
    let view = BufferView::get(data, ffi::PyBUF_WRITABLE).ok()?;
    Some(in_memory(&view, work))
}

/// Runs `work` on the memory of a view that was requested as writable.
fn in_memory<R>(view: &BufferView<'_>, work: impl FnOnce(&mut [MaybeUninit<u8>]) -> R) -> R {
    // SAFETY: the view is held until the end of this function, writable and contiguous, and gives address and length.
    // The head of this file says which code may change the bytes meanwhile.
    work(unsafe {
        std::slice::from_raw_parts_mut(view.data().cast::<MaybeUninit<u8>>(), view.len())
    })
}

/// The bytes of a bytes-like object from `start` on: referenced if they can't change, else copied.
pub fn rest_of(data: &Bound<'_, PyAny>, start: usize) -> PyResult<Bytes> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(hold_bytes(bytes).slice(start..));
    }
    with_readable(data, |bytes| {
        Bytes::copy_from_slice(bytes.get(start..).unwrap_or(&[]))
    })
    .ok_or_else(|| PyTypeError::new_err("a bytes-like object is required"))
}

/// Below this a copy is cheaper than keeping the object alive through two reference counts.
pub const HOLD_FROM_BYTES: usize = 4096;
