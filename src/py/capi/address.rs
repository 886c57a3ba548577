//! Converts socket addresses to and from Python, in the shapes and with the errors of the `socket` module.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::unix::ffi::OsStrExt;

use pyo3::exceptions::{PyOSError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString, PyTuple};
use pyo3::{ffi, intern};
use uringcore_io::SockAddr;

use crate::capi::buffer;

/// `(host, port)`, `(host, port, flowinfo, scope_id)`, a path, the bytes of an abstract name, or `None` if there is
/// no address (an unnamed sender).
pub fn to_python(py: Python<'_>, addr: &SockAddr) -> PyResult<Py<PyAny>> {
    if addr.len() == 0 {
        return Ok(py.None());
    }
    if let Some(inet) = from_kernel(addr) {
        return Ok(inet_to_python(py, inet)?.into_any().unbind());
    }
    if addr.is_unix() {
        if let Some(path) = addr.as_pathname() {
            return Ok(path.as_os_str().into_pyobject(py)?.into_any().unbind());
        }
        if let Some(name) = addr.as_abstract_namespace() {
            let mut bytes = vec![0];
            bytes.extend_from_slice(name);
            return Ok(PyBytes::new(py, &bytes).into_any().unbind());
        }
        return Ok(PyString::new(py, "").into_any().unbind());
    }
    Ok(py.None())
}

pub fn inet_to_python(py: Python<'_>, addr: SocketAddr) -> PyResult<Bound<'_, PyTuple>> {
    match addr {
        SocketAddr::V4(v4) => (v4.ip().to_string(), v4.port()).into_pyobject(py),
        SocketAddr::V6(v6) => {
            (v6.ip().to_string(), v6.port(), v6.flowinfo(), v6.scope_id()).into_pyobject(py)
        }
    }
}

/// An address that needs no look-up and no special rule of its family. `None` for all others, valid or not: the
/// socket module handles those.
pub fn plain(family: i32, addr: &Bound<'_, PyAny>) -> Option<SockAddr> {
    let usable = if family == libc::AF_UNIX {
        is_ordinary_path(addr)
    } else {
        is_literal(addr)
    };
    usable.then(|| from_python(family, addr).ok()).flatten()
}

/// True for a path or an abstract name. False for an empty one, which binds automatically, and for a path with a zero
/// byte inside, which is an error.
fn is_ordinary_path(addr: &Bound<'_, PyAny>) -> bool {
    if let Ok(path) = addr.cast::<PyString>() {
        return path
            .to_str()
            .is_ok_and(|path| !path.is_empty() && !path.contains('\0'));
    }
    addr.cast::<PyBytes>().is_ok_and(|path| {
        let path = path.as_bytes();
        !path.is_empty() && (path[0] == 0 || !path.contains(&0))
    })
}

/// The destination of a socket of `family` (AF_INET, AF_INET6 or AF_UNIX) for the Python address `addr`. A host name
/// is looked up, which blocks, as in asyncio's own `sendto`.
pub fn from_python(family: i32, addr: &Bound<'_, PyAny>) -> PyResult<SockAddr> {
    match family {
        libc::AF_UNIX => unix_from_python(addr),
        libc::AF_INET6 => Ok(to_kernel(inet6_from_python(addr)?.into())),
        _ => inet4_from_python(addr).map(to_kernel),
    }
}

/// An internet address in the kernel's structure, whose flow label is in network order.
pub fn to_kernel(mut addr: SocketAddr) -> SockAddr {
    if let SocketAddr::V6(v6) = &mut addr {
        v6.set_flowinfo(v6.flowinfo().to_be());
    }
    SockAddr::from(addr)
}

/// The inverse of `to_kernel`. `None` for another family.
pub fn from_kernel(addr: &SockAddr) -> Option<SocketAddr> {
    let mut inet = addr.as_socket()?;
    if let SocketAddr::V6(v6) = &mut inet {
        v6.set_flowinfo(u32::from_be(v6.flowinfo()));
    }
    Some(inet)
}

/// An internet address of either family. The shape of the tuple selects the family, or else the address of the host
/// name.
pub fn inet_from_python(addr: &Bound<'_, PyAny>) -> PyResult<SocketAddr> {
    let tuple = tuple_of(addr, "internet")?;
    let host = tuple.get_item(0)?;
    if host.extract::<&str>().is_ok_and(str::is_empty) {
        return Err(PyValueError::new_err("address: the host is empty"));
    }
    if tuple.len() > 2 || host.extract::<&str>().is_ok_and(|host| host.contains(':')) {
        return inet6_from_python(addr).map(SocketAddr::V6);
    }
    let port = port(&tuple)?;
    match host.extract::<&str>().map(str::parse::<IpAddr>) {
        Ok(Ok(ip)) => Ok(SocketAddr::new(ip, port)),
        _ => Ok(SocketAddr::new(look_up(&host, libc::AF_UNSPEC)?, port)),
    }
}

fn inet4_from_python(addr: &Bound<'_, PyAny>) -> PyResult<SocketAddr> {
    let tuple = tuple_of(addr, "AF_INET")?;
    if tuple.len() != 2 {
        return Err(PyTypeError::new_err(
            "AF_INET address must be a pair (host, port)",
        ));
    }
    let host = tuple.get_item(0)?;
    let port = port(&tuple)?;
    let ip = match host.extract::<&str>() {
        Ok("") => Ipv4Addr::UNSPECIFIED,
        Ok("<broadcast>") => Ipv4Addr::BROADCAST,
        Ok(text) => match text.parse() {
            Ok(ip) => ip,
            Err(_) => match look_up(&host, libc::AF_INET)? {
                IpAddr::V4(ip) => ip,
                IpAddr::V6(_) => return Err(family_mismatch()),
            },
        },
        Err(_) => match look_up(&host, libc::AF_INET)? {
            IpAddr::V4(ip) => ip,
            IpAddr::V6(_) => return Err(family_mismatch()),
        },
    };
    Ok(SocketAddr::from((ip, port)))
}

fn inet6_from_python(addr: &Bound<'_, PyAny>) -> PyResult<SocketAddrV6> {
    let tuple = tuple_of(addr, "AF_INET6")?;
    if !(2..=4).contains(&tuple.len()) {
        return Err(PyTypeError::new_err(
            "AF_INET6 address must be a tuple (host, port[, flowinfo[, scopeid]])",
        ));
    }
    let host = tuple.get_item(0)?;
    let port = port(&tuple)?;
    let item = |index: usize| match tuple.get_item(index) {
        Ok(item) => item.extract::<u32>(),
        Err(_) => Ok(0),
    };
    let (flowinfo, scope_id) = (item(2)?, item(3)?);
    if flowinfo > 0xf_ffff {
        return Err(PyOverflowError::new_err(
            "sendto(): flowinfo must be 0-1048575.",
        ));
    }
    let ip = match host.extract::<&str>() {
        Ok("") => Ipv6Addr::UNSPECIFIED,
        Ok("<broadcast>" | "255.255.255.255") => return Err(family_mismatch()),
        Ok(text) => match text.parse() {
            Ok(ip) => ip,
            Err(_) => look_up_v6(&host)?,
        },
        Err(_) => look_up_v6(&host)?,
    };
    // As in the socket module, the scope comes from the tuple, not from a "%eth0" in the host.
    Ok(SocketAddrV6::new(ip, port, flowinfo, scope_id))
}

fn look_up_v6(host: &Bound<'_, PyAny>) -> PyResult<Ipv6Addr> {
    match look_up(host, libc::AF_INET6)? {
        IpAddr::V6(ip) => Ok(ip),
        IpAddr::V4(_) => Err(family_mismatch()),
    }
}

/// The first result of getaddrinfo(), with the `socket.gaierror` of the socket module.
fn look_up(host: &Bound<'_, PyAny>, family: i32) -> PyResult<IpAddr> {
    let py = host.py();
    let host = match host.cast::<PyByteArray>() {
        Ok(array) => PyBytes::new(py, &array.to_vec()).into_any(),
        Err(_) if host.is_instance_of::<PyString>() || host.is_instance_of::<PyBytes>() => {
            host.clone()
        }
        Err(_) => {
            return Err(PyTypeError::new_err(format!(
                "str, bytes or bytearray expected, not {}",
                host.get_type().name()?
            )));
        }
    };
    let found = py
        .import(intern!(py, "_socket"))?
        .call_method1(intern!(py, "getaddrinfo"), (host, py.None(), family))?;
    let address: String = found.get_item(0)?.get_item(4)?.get_item(0)?.extract()?;
    let address = address.split('%').next().unwrap_or_default();
    address
        .parse()
        .map_err(|_| PyOSError::new_err(format!("not an address: {address}")))
}

fn unix_from_python(addr: &Bound<'_, PyAny>) -> PyResult<SockAddr> {
    let py = addr.py();
    let path = if addr.is_instance_of::<PyString>() {
        // SAFETY: this thread is attached (`py`) and `addr` is a str, which never changes; the call returns
        // a new reference or NULL with an exception set.
        let encoded = unsafe {
            Bound::from_owned_ptr_or_err(py, ffi::PyUnicode_EncodeFSDefault(addr.as_ptr()))?
        };
        buffer::any_buffer(&encoded)?
    } else {
        buffer::any_buffer(addr)?
    };
    SockAddr::unix(OsStr::from_bytes(&path))
        .map_err(|_| PyOSError::new_err("AF_UNIX path too long"))
}

fn tuple_of<'py>(addr: &Bound<'py, PyAny>, family: &str) -> PyResult<Bound<'py, PyTuple>> {
    match addr.cast::<PyTuple>() {
        Ok(tuple) => Ok(tuple.clone()),
        Err(_) => Err(PyTypeError::new_err(format!(
            "sendto(): {family} address must be tuple, not {}",
            addr.get_type().name()?
        ))),
    }
}

fn port(tuple: &Bound<'_, PyTuple>) -> PyResult<u16> {
    let port: i64 = tuple.get_item(1)?.extract()?;
    u16::try_from(port).map_err(|_| PyOverflowError::new_err("sendto(): port must be 0-65535."))
}

fn family_mismatch() -> PyErr {
    PyOSError::new_err("address family mismatched")
}

/// True for an internet address without a host name, made of objects that cannot change.
pub fn is_literal(addr: &Bound<'_, PyAny>) -> bool {
    addr.cast_exact::<PyTuple>().is_ok_and(|tuple| {
        tuple.get_item(0).is_ok_and(|host| {
            host.is_exact_instance_of::<PyString>()
                && host
                    .extract::<&str>()
                    .is_ok_and(|host| host.parse::<IpAddr>().is_ok())
        })
    })
}
