//! Decides whether a `sock_*` call may use the ring ("plain" sockets) or asyncio's own code serves the socket: fast
//! reads of a socket object's class, descriptor, family, type and protocol, and a check for replaced methods of
//! `socket.socket`.
//!
//! Tests replace such methods, to forbid the network or to make it fail. The ring does not call them, so asyncio's
//! own code serves the sockets then. Socket objects are made in `socket_object_creation`.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};
use pyo3::{ffi, intern};

use crate::capi::class_version;
use crate::event_loop::loop_core::LoopCore;
use crate::sock::cancelled_results;

/// The descriptor of a `socket.socket` of an ordinary family, and true if it is a stream socket. `None` for every
/// other object, and if the program has replaced one of `methods`: asyncio's own code serves these sockets.
///
/// Fails with asyncio's error for a blocking socket in debug mode.
pub fn plain(
    slf: &Bound<'_, LoopCore>,
    socket: &Bound<'_, PyAny>,
    methods: Methods,
) -> PyResult<Option<(RawFd, bool)>> {
    let py = slf.py();
    let types = socket_types(py)?;
    if !socket.get_type().is(&types.class) {
        return Ok(None);
    }
    // A cancelled call has left a result, which must be returned first even if methods are replaced now.
    if replaced_methods(py)? & methods != 0 && !cancelled_results::has(slf.get(), socket) {
        return Ok(None);
    }
    if slf.get().is_debug() {
        let timeout = socket.call_method0(intern!(py, "gettimeout"))?;
        if timeout.is_none() || timeout.extract::<f64>()? != 0.0 {
            return Err(PyValueError::new_err("the socket must be non-blocking"));
        }
    }
    let fd = fileno(socket)?;
    let family = match types.family_at {
        // SAFETY: the object's class is `socket.socket`, as checked above.
        Some(offset) => unsafe { int_at(socket, offset) },
        None => member(socket, "family")?,
    };
    if fd < 0 || ![libc::AF_INET, libc::AF_INET6, libc::AF_UNIX].contains(&family) {
        return Ok(None);
    }
    let kind = match types.kind_at {
        // SAFETY: as for `family_at`.
        Some(offset) => unsafe { int_at(socket, offset) },
        None => member(socket, "type")?,
    };
    Ok(Some((fd, kind == libc::SOCK_STREAM)))
}

pub struct SocketTypes {
    /// The class `socket.socket`.
    pub class: Py<PyType>,
    /// The member descriptors of the C class `_socket.socket`. The properties of `socket.socket` make enumerations,
    /// which takes ten times as long.
    family: Py<PyAny>,
    kind: Py<PyAny>,
    proto: Py<PyAny>,
    /// The offsets of `family` and `type` in a socket object, which their descriptors state. `None` if a descriptor reads
    /// another kind of member.
    family_at: Option<isize>,
    kind_at: Option<isize>,
    /// `_socket.socket.detach`. After a call of this method the caller owns the descriptor.
    pub detach: Py<PyAny>,
    /// `_socket.socket.fileno`, which runs no code of the program.
    fileno: Py<PyAny>,
    /// The original methods of `socket.socket`, in the order of `NAMES`.
    methods: Vec<Py<PyAny>>,
    /// The result of the last check, as `version tag of the class:32 | replaced methods:32`.
    last_look: AtomicU64,
}

/// A set of methods, with one bit for each of `NAMES`.
pub type Methods = u32;

/// The methods with which asyncio transfers bytes, connects and accepts.
const NAMES: [&str; 10] = [
    "recv",
    "recv_into",
    "recvfrom",
    "recvfrom_into",
    "send",
    "sendmsg",
    "sendto",
    "shutdown",
    "accept",
    "connect",
];
pub const NO_METHODS: Methods = 0;
pub const RECEIVING: Methods = 0b1111;
pub const SENDING: Methods = 0b111 << 4;
pub const ACCEPTING: Methods = 1 << 8;
pub const CONNECTING: Methods = 1 << 9;
/// The methods that asyncio's stream transports call.
pub const STREAMING: Methods = 0b1011_0011;

/// The methods of `socket.socket` that the program has replaced.
///
/// The interpreter changes the version tag of a class with each change of the class. While the tag is the same, a
/// check costs two reads.
pub fn replaced_methods(py: Python<'_>) -> PyResult<Methods> {
    let types = socket_types(py)?;
    let tag = || class_version::of(types.class.bind(py));
    let last = types.last_look.load(Ordering::Relaxed);
    let now = tag();
    if now != 0 && last >> 32 == u64::from(now) {
        return Ok(last as Methods);
    }
    let mut replaced = 0;
    for (bit, (name, own)) in NAMES.iter().zip(&types.methods).enumerate() {
        let found = types.class.bind(py).getattr_opt(name)?;
        replaced |= Methods::from(!found.is_some_and(|found| found.is(own))) << bit;
    }
    // An interpreter that has no free version tags leaves the tag at 0. The methods are looked up each time then.
    let looked = u64::from(tag()) << 32 | u64::from(replaced);
    types.last_look.store(looked, Ordering::Relaxed);
    Ok(replaced)
}

/// The names of the methods of `socket.socket` that the program has replaced.
#[pyfunction]
#[pyo3(name = "_replaced_socket_methods")]
fn names_of_replaced(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
    let replaced = replaced_methods(py)?;
    let names = NAMES.iter().enumerate();
    let names = names.filter_map(|(bit, name)| (replaced >> bit & 1 == 1).then_some(*name));
    PyTuple::new(py, names.collect::<Vec<_>>())
}

/// Stores the original methods at import, before the program can replace them.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    socket_types(m.py())?;
    m.add_function(wrap_pyfunction!(names_of_replaced, m)?)
}

pub fn socket_types(py: Python<'_>) -> PyResult<&SocketTypes> {
    static TYPES: PyOnceLock<SocketTypes> = PyOnceLock::new();
    TYPES.get_or_try_init(py, || {
        let class = py.import("socket")?.getattr("socket")?;
        let base = py.import("_socket")?.getattr("socket")?;
        let own = |name: &str| match name {
            // `socket.accept` is written in Python, because it makes a `socket.socket`. The other methods are those of
            // the C class.
            "accept" => class.getattr(name),
            _ => base.getattr(name),
        };
        let methods = NAMES.iter().map(|name| Ok(own(name)?.unbind()));
        let (family, kind) = (base.getattr("family")?, base.getattr("type")?);
        Ok(SocketTypes {
            family_at: offset_of_int(&family),
            kind_at: offset_of_int(&kind),
            methods: methods.collect::<PyResult<_>>()?,
            last_look: AtomicU64::new(0),
            class: class.cast_into::<PyType>()?.unbind(),
            family: family.unbind(),
            kind: kind.unbind(),
            proto: base.getattr("proto")?.unbind(),
            detach: base.getattr("detach")?.unbind(),
            fileno: base.getattr("fileno")?.unbind(),
        })
    })
}

/// The offset of the C `int` that a member descriptor reads. `None` for a descriptor of another kind.
fn offset_of_int(descriptor: &Bound<'_, PyAny>) -> Option<isize> {
    // SAFETY: only the address of the static is taken.
    let is_member =
        unsafe { ffi::Py_TYPE(descriptor.as_ptr()) == &raw mut ffi::PyMemberDescr_Type };
    if !is_member {
        return None;
    }
    // SAFETY: an object of exactly this type is a `PyMemberDescrObject`, whose definition lives as long as its class.
    let member = unsafe {
        let descriptor = descriptor.as_ptr().cast::<ffi::PyMemberDescrObject>();
        // Before CPython 3.11, pyo3-ffi declares the field with the type of another definition.
        &*(*descriptor).d_member.cast::<ffi::PyMemberDef>()
    };
    let is_plain = member.type_code == ffi::Py_T_INT && member.flags & ffi::Py_RELATIVE_OFFSET == 0;
    is_plain.then_some(member.offset)
}

/// Reads a C `int` of an object, as `PyMember_GetOne` does, without making a Python number of it.
///
/// # Safety
///
/// `offset` is that of [`offset_of_int`] for a descriptor of the object's class, or of one of its bases.
unsafe fn int_at(object: &Bound<'_, PyAny>, offset: isize) -> i32 {
    // SAFETY: the caller guarantees that an aligned `int` is at this offset, and the borrowed object keeps it alive. A
    // second call of `socket.__init__` writes to it, in an interpreter without the GIL also during this read, so the read
    // is atomic.
    unsafe {
        let address = object.as_ptr().byte_offset(offset).cast::<i32>();
        AtomicI32::from_ptr(address).load(Ordering::Relaxed)
    }
}

/// Reads `family`, `type` or `proto` of a socket object as a plain number.
pub fn member(socket: &Bound<'_, PyAny>, name: &str) -> PyResult<i32> {
    let py = socket.py();
    let types = socket_types(py)?;
    let descriptor = match name {
        "family" => &types.family,
        "type" => &types.kind,
        _ => &types.proto,
    };
    // SAFETY: this thread is attached (`py`). A member descriptor of the socket class has `tp_descr_get`, which returns
    // a new reference, or NULL with an exception if the object has another class.
    let value = unsafe {
        let class = ffi::Py_TYPE(descriptor.as_ptr());
        let Some(get) = (*class).tp_descr_get else {
            return socket.getattr(name)?.extract();
        };
        let value = get(descriptor.as_ptr(), socket.as_ptr(), std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(py, value)?
    };
    value.extract()
}

/// The descriptor of a socket object. -1 if the object is closed.
pub fn fileno(socket: &Bound<'_, PyAny>) -> PyResult<RawFd> {
    socket
        .call_method0(intern!(socket.py(), "fileno"))?
        .extract()
}

/// True if `fd` is still the descriptor of a socket object, which was neither closed nor detached. True also for an
/// object that is not a socket, because that cannot be checked.
pub fn has_descriptor(socket: &Bound<'_, PyAny>, fd: RawFd) -> PyResult<bool> {
    let py = socket.py();
    let number = socket_types(py)?.fileno.bind(py).call1((socket,));
    number.map_or(Ok(true), |number| Ok(number.extract::<RawFd>()? == fd))
}
