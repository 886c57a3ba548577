//! Python buffers held as `Bytes`. Only this file and `py_buffer` keep a pointer into a Python object.
//!
//! **Ownership of the memory.** A buffer view keeps its object from freeing or moving the memory, but does not
//! prevent writes to it. `bytes` objects never change. The memory of other objects cannot change while this code
//! reads it, because the interpreter lock is held. A free-threaded interpreter has no such lock: if threads of a
//! program write to an object while a call reads it, the program has a data race, as it would have with CPython's
//! sockets. So mutable memory is only copied or passed to a system call. Both take each byte as they find it, and no
//! decision depends on the contents.

use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

use bytes::Bytes;
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyString};
use uringcore_io::net;

use crate::capi::fresh_bytes::FreshBytes;
use crate::capi::py_buffer::BufferView;

/// A `bytes` or `str` object that stays alive for as long as the kernel or a queue needs its contents. Those of a `str`
/// are its UTF-8 form, which the object keeps until its end.
struct HeldBytes {
    data: *const u8,
    len: usize,
    _owner: Py<PyAny>,
}

// SAFETY: `bytes` and `str` objects are immutable and their storage never moves, so any thread may read it, attached
// to the interpreter or not; the reference keeps it alive, and PyO3 defers the drop of a `Py` on a thread
// that is not attached.
unsafe impl Send for HeldBytes {}
// SAFETY: several threads may read the memory at once, because it never changes.
unsafe impl Sync for HeldBytes {}

impl HeldBytes {
    /// Holds the contents of an exact `bytes` or `str` object.
    fn of(contents: &[u8], owner: &Bound<'_, PyAny>) -> Bytes {
        Bytes::from_owner(Self {
            data: contents.as_ptr(),
            len: contents.len(),
            _owner: owner.clone().unbind(),
        })
    }
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `data` and `len` were taken from `_owner`, which is alive and immutable.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

/// Returns the contents of a `bytes` object: a copy if it is smaller than [`REFERENCED_FROM_BYTES`], otherwise a
/// reference to the object.
pub fn hold_bytes(bytes: &Bound<'_, PyBytes>) -> Bytes {
    let slice = bytes.as_bytes();
    if !is_held(bytes) {
        return Bytes::copy_from_slice(slice);
    }
    HeldBytes::of(slice, bytes.as_any())
}

/// Returns the contents of a `str` object as UTF-8: a copy if they are smaller than [`REFERENCED_FROM_BYTES`],
/// otherwise a reference to the object.
///
/// # Errors
///
/// `UnicodeEncodeError` if the string has a surrogate.
pub fn hold_text(text: &Bound<'_, PyString>) -> PyResult<Bytes> {
    let slice = text.to_str()?.as_bytes();
    if slice.len() < REFERENCED_FROM_BYTES || !text.is_exact_instance_of::<PyString>() {
        return Ok(Bytes::copy_from_slice(slice));
    }
    Ok(HeldBytes::of(slice, text.as_any()))
}

/// True if the object is kept instead of copied. A subclass may have a `__del__`, which must not run when the engine
/// drops the bytes that it has sent, so only exact `bytes` are kept.
fn is_held(bytes: &Bound<'_, PyBytes>) -> bool {
    bytes.as_bytes().len() >= REFERENCED_FROM_BYTES && bytes.is_exact_instance_of::<PyBytes>()
}

/// Bytes that a stream is about to send.
pub enum Outgoing<'a> {
    /// The contents of a `bytes` object, which the send queue copies.
    Copied(&'a [u8]),
    /// A `bytes` object that stays alive until its contents are sent.
    Object(&'a Py<PyBytes>, &'a [u8]),
    /// A copy of the contents of another object.
    Kept(Bytes),
}

/// Joins `pieces`, which have `len` bytes in total, with one copy.
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
    /// Reads the argument of `write()`. It accepts the types of [`bytes_like`].
    pub fn bytes_like(data: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        match data.cast::<PyBytes>() {
            Ok(bytes) => Ok(Self::bytes(bytes)),
            Err(_) => bytes_like(data).map(Self::Kept),
        }
    }

    /// Reads an item of the argument of `writelines()`. It accepts the types of [`any_buffer`].
    pub fn any_buffer(data: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        match data.cast::<PyBytes>() {
            Ok(bytes) => Ok(Self::bytes(bytes)),
            Err(_) => any_buffer(data).map(Self::Kept),
        }
    }

    pub fn bytes(bytes: &'a Bound<'_, PyBytes>) -> Self {
        match is_held(bytes) {
            true => Self::Object(bytes.as_unbound(), bytes.as_bytes()),
            false => Self::Copied(bytes.as_bytes()),
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Self::Copied(bytes) | Self::Object(_, bytes) => bytes.is_empty(),
            Self::Kept(bytes) => bytes.is_empty(),
        }
    }
}

/// Reads a `bytes`, `bytearray` or `memoryview`, the types that asyncio's transports accept. Mutable objects are
/// copied, because they may change before the bytes are sent.
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

/// Reads any C-contiguous buffer of any item format as bytes. `bytes` are kept or copied as by [`hold_bytes`], other
/// objects are copied.
///
/// # Errors
///
/// `TypeError` for an object without the buffer protocol, `BufferError` for a buffer that is not contiguous. Both
/// messages contain `name`, the name of the argument.
pub fn contiguous(data: &Bound<'_, PyAny>, name: &str) -> PyResult<Bytes> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(hold_bytes(bytes));
    }
    match BufferView::get(data, ffi::PyBUF_SIMPLE) {
        Ok(view) => Ok(view.copy()?.into()),
        Err(error) => Err(not_contiguous(data, name, error)),
    }
}

/// Raises the errors that [`contiguous`] would raise for this object, without reading it.
pub fn check_contiguous(data: &Bound<'_, PyAny>, name: &str) -> PyResult<()> {
    match BufferView::get(data, ffi::PyBUF_SIMPLE) {
        Ok(_) => Ok(()),
        Err(error) => Err(not_contiguous(data, name, error)),
    }
}

/// Makes the error for an argument `name` that has no contiguous buffer. An exception that the program's own buffer
/// class has raised is returned unchanged.
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

/// Reads any object with the buffer protocol, contiguous or not, as asyncio's `writelines` does.
pub fn any_buffer(data: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(hold_bytes(bytes));
    }
    match BufferView::get(data, ffi::PyBUF_SIMPLE) {
        Ok(view) => Ok(view.copy()?.into()),
        // The buffer is not contiguous. asyncio sends the bytes that `memoryview.tobytes()` returns for it.
        Err(_) => {
            let shown = PyMemoryView::from(data)?.call_method0("tobytes")?;
            Ok(hold_bytes(shown.cast::<PyBytes>()?))
        }
    }
}

/// Fails with the error of `memoryview(data)` if the object has no buffer protocol.
pub fn check(data: &Bound<'_, PyAny>) -> PyResult<()> {
    // SAFETY: this thread is attached and the object is alive. The call reads its type and runs no code of it.
    if unsafe { ffi::PyObject_CheckBuffer(data.as_ptr()) } != 0 {
        return Ok(());
    }
    let kind = data.get_type().name()?;
    let message = format!("a bytes-like object is required, not '{kind}'");
    Err(PyTypeError::new_err(message))
}

/// Copies as much of `data` as fits into `target`, a writable Python buffer of any item format that a protocol's
/// `get_buffer()` has returned. Returns the number of copied bytes.
pub fn copy_into(target: &Bound<'_, PyAny>, data: &[u8]) -> PyResult<usize> {
    let view = buffer_of_protocol(target)?;
    let count = view.len().min(data.len());
    // SAFETY: the view is held, writable and contiguous, and `count` is within its length. `data` is
    // memory of Rust's or of a `bytes` object, which a writable buffer cannot overlap.
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), view.data(), count) };
    Ok(count)
}

/// Receives from the socket into the buffer `target`, without waiting. There are three kinds of results: the number of
/// received bytes, the errno of recv(2) (the inner `Err`), and a Python exception because `target` is empty or is no
/// writable buffer (the outer `Err`; nothing was received). The first two come with the size of the buffer, so that the
/// caller sees if the buffer was filled.
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

/// Receives up to `size` bytes from a socket, without waiting, into a new `bytes` object.
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

/// Runs `work`, a system call or a copy, on the contents of a bytes-like object. Returns `None` for an object that is
/// not bytes-like.
pub fn with_readable<R>(data: &Bound<'_, PyAny>, work: impl FnOnce(&[u8]) -> R) -> Option<R> {
    let view = BufferView::get(data, ffi::PyBUF_SIMPLE).ok()?;
    // SAFETY: the view is held until the end of this function and gives address and length. The head of this file says
    // which code may change the bytes meanwhile.
    let bytes = unsafe { std::slice::from_raw_parts(view.data(), view.len()) };
    Some(work(bytes))
}

/// Runs `work`, a system call or a copy, on the memory of a writable bytes-like object. Returns `None` for any other
/// object.
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

/// The contents of a bytes-like object from byte `start` on. Immutable contents are referenced, others copied.
pub fn rest_of(data: &Bound<'_, PyAny>, start: usize) -> PyResult<Bytes> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(hold_bytes(bytes).slice(start..));
    }
    with_readable(data, |bytes| {
        Bytes::copy_from_slice(bytes.get(start..).unwrap_or(&[]))
    })
    .ok_or_else(|| PyTypeError::new_err("a bytes-like object is required"))
}

/// The smallest size in bytes from which a `bytes` object is referenced. Below it, a copy costs less than the two
/// changes of the object's reference count. The queues below may copy all the same: that of a TCP transport below
/// `write_coalescer::BLOCK_BYTES`, that of a QUIC stream below `send_queue::PIECE_MIN`. TLS (`tls::ssl_object`) and
/// WebSocket messages (`asgi::websocket`) use the same size.
pub const REFERENCED_FROM_BYTES: usize = 4096;
