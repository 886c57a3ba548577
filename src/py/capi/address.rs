//! Converts socket addresses to and from Python, in the shapes and with the errors of the `socket` module.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::unix::ffi::OsStrExt;

use pyo3::exceptions::{PyOSError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString, PyTuple};
use pyo3::{ffi, intern};
use uringcore_io::SockAddr;

use crate::capi::bytes_like_objects;

/// Converts a kernel address to Python's form: `(host, port)` for IPv4, `(host, port, flowinfo, scope_id)` for IPv6,
/// a `str` for the path and `bytes` for the abstract name of a Unix socket, `None` for an unnamed sender.
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

/// Converts a Python address that needs no name look-up and no special rule of its family. Returns `None` for every
/// other address, valid or not: the caller passes those to the `socket` module.
pub fn plain(family: i32, addr: &Bound<'_, PyAny>) -> Option<SockAddr> {
    let usable = if family == libc::AF_UNIX {
        is_ordinary_path(addr)
    } else {
        is_literal(addr)
    };
    usable.then(|| from_python(family, addr).ok()).flatten()
}

/// True for the path or the abstract name of a Unix socket. False for an empty address, to which the kernel assigns a
/// name (autobind, unix(7)), and for a path that contains a zero byte, which is an error.
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

/// Converts the destination `addr` for a socket of `family` (AF_INET, AF_INET6 or AF_UNIX). If the host is a name,
/// the call blocks in getaddrinfo(), as asyncio's own `sendto` does.
pub fn from_python(family: i32, addr: &Bound<'_, PyAny>) -> PyResult<SockAddr> {
    match family {
        libc::AF_UNIX => unix_from_python(addr),
        libc::AF_INET6 => Ok(to_kernel(inet6_from_python(addr)?.into())),
        _ => inet4_from_python(addr).map(to_kernel),
    }
}

/// Converts an internet address to the kernel's structure, in which the flow label has network byte order.
pub fn to_kernel(mut addr: SocketAddr) -> SockAddr {
    if let SocketAddr::V6(v6) = &mut addr {
        v6.set_flowinfo(v6.flowinfo().to_be());
    }
    SockAddr::from(addr)
}

/// The inverse of [`to_kernel`]. `None` for an address that is not an internet address.
pub fn from_kernel(addr: &SockAddr) -> Option<SocketAddr> {
    let mut inet = addr.as_socket()?;
    if let SocketAddr::V6(v6) = &mut inet {
        v6.set_flowinfo(u32::from_be(v6.flowinfo()));
    }
    Some(inet)
}

/// Converts an IPv4 or IPv6 address. A tuple of four items is IPv6; with two items the family is that of the address
/// to which the host name resolves.
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
    // As in the socket module, the scope ID is the fourth item of the tuple, and a "%eth0" at the end of the host is
    // ignored.
    Ok(SocketAddrV6::new(ip, port, flowinfo, scope_id))
}

fn look_up_v6(host: &Bound<'_, PyAny>) -> PyResult<Ipv6Addr> {
    match look_up(host, libc::AF_INET6)? {
        IpAddr::V6(ip) => Ok(ip),
        IpAddr::V4(_) => Err(family_mismatch()),
    }
}

/// Returns the first address that getaddrinfo() finds for `host`. Fails with `socket.gaierror`, as the socket module
/// does.
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
        bytes_like_objects::any_buffer(&encoded)?
    } else {
        bytes_like_objects::any_buffer(addr)?
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

/// True for a tuple whose host is a literal IP address in an exact `str`. Such an address needs no name look-up, and
/// its tuple may be kept and recognised by its identity.
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
