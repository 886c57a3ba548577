//! The base class of protocols in this extension, which get bytes without a Python object.

use std::net::IpAddr;
use std::os::fd::RawFd;

use bytes::BytesMut;
use pyo3::prelude::*;
use uringcore_io::net;

use crate::capi::address;

/// The function to which a stream passes received bytes, for a protocol of this extension.
pub type NativeReceive = fn(&Bound<'_, PyAny>, BytesMut) -> PyResult<()>;

/// The function of a server's protocol that decides about a new connection by the address of its client. If the
/// function returns false, the connection is closed before it costs anything, such as a TLS handshake.
pub type Admit = fn(&Bound<'_, PyAny>, Option<IpAddr>) -> bool;

/// The base class of protocols in this extension.
#[pyclass(frozen, subclass, weakref, module = "uringcore._uringcore")]
pub struct NativeProtocol {
    admit: Admit,
}

impl NativeProtocol {
    pub fn new(admit: Admit) -> Self {
        Self { admit }
    }
}

/// True if `protocol` accepts the connection `fd`. Protocols of a program accept all connections.
pub fn is_admitted(protocol: &Bound<'_, PyAny>, fd: RawFd) -> bool {
    let Ok(native) = protocol.cast::<NativeProtocol>() else {
        return true;
    };
    // A socket without a peer address belongs to a client that has left.
    net::peer_addr(fd).is_ok_and(|peer| {
        let address = address::from_kernel(&peer).map(|inet| inet.ip());
        (native.get().admit)(protocol, address)
    })
}

/// True if `protocol` accepts a connection of this client. A protocol above another one is asked by that.
pub fn is_admitted_by(protocol: &Bound<'_, PyAny>, address: Option<IpAddr>) -> bool {
    protocol
        .cast::<NativeProtocol>()
        .is_ok_and(|native| (native.get().admit)(protocol, address))
}
