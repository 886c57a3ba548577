//! UDP sockets for QUIC: ECN, packet info, GRO, errors, path MTU probing, large buffers.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::{local_addr, option, set_option, with_socket};

/// Options of a [`udp_quic_socket`].
#[derive(Copy, Clone, Default, Debug)]
pub struct QuicSocketOptions {
    /// An IPv6 wildcard socket also accepts IPv4, with mapped addresses.
    pub dual_stack: bool,
    /// `SO_REUSEPORT`, for several workers on one port.
    pub reuse_port: bool,
}

/// The options that the kernel granted.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct QuicSocketInfo {
    /// The kernel joins received datagrams of one peer.
    pub gro: bool,
    /// Batches of equal datagrams can be sent in one message.
    pub gso: bool,
    /// The receive buffer as the kernel counts it (twice the requested bytes, including overhead).
    pub recv_buffer: usize,
    /// The send buffer, likewise.
    pub send_buffer: usize,
}

/// Opens and binds a UDP socket for QUIC: non-blocking, close-on-exec, and prepared by
/// [`prepare_quic_socket`].
pub fn udp_quic_socket(local: SocketAddr, options: QuicSocketOptions) -> io::Result<OwnedFd> {
    let socket = Socket::new(
        Domain::for_address(local),
        Type::DGRAM.nonblocking().cloexec(),
        Some(Protocol::UDP),
    )?;
    if local.is_ipv6() {
        socket.set_only_v6(!options.dual_stack)?;
    }
    if options.reuse_port {
        socket.set_reuse_port(true)?;
    }
    prepare_quic_socket(socket.as_raw_fd())?;
    socket.bind(&SockAddr::from(local))?;
    Ok(socket.into())
}

/// Sets QUIC's options on an existing UDP socket and returns those that the kernel granted. `EINVAL` if the socket
/// is not an IP one; a rejection of optional settings (GRO, buffer sizes) is ignored.
pub fn prepare_quic_socket(fd: RawFd) -> io::Result<QuicSocketInfo> {
    let family = i32::from(local_addr(fd)?.family());
    match family {
        libc::AF_INET => prepare_v4(fd)?,
        libc::AF_INET6 => {
            prepare_v6(fd)?;
            // IPv4 peers of a dual-stack socket; rejected on hosts without IPv4.
            let _ = prepare_v4(fd);
        }
        _ => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
    let gro = set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
    let gso = option(fd, libc::SOL_UDP, libc::UDP_SEGMENT).is_ok();
    let (recv_buffer, send_buffer) = with_socket(fd, |socket| {
        // The kernel silently limits the size to net.core.rmem_max: the caller compares and reports it.
        let _ = socket.set_recv_buffer_size(BUFFER_WANTED);
        let _ = socket.set_send_buffer_size(BUFFER_WANTED);
        Ok((socket.recv_buffer_size()?, socket.send_buffer_size()?))
    })?;
    Ok(QuicSocketInfo {
        gro,
        gso,
        recv_buffer,
        send_buffer,
    })
}

fn prepare_v4(fd: RawFd) -> io::Result<()> {
    set_option(fd, libc::SOL_IP, libc::IP_RECVERR, 1)?;
    set_option(fd, libc::SOL_IP, libc::IP_RECVTOS, 1)?;
    set_option(fd, libc::SOL_IP, libc::IP_PKTINFO, 1)?;
    // Don't fragment, and don't let the kernel's estimate of the path MTU block our probes: QUIC does its own
    // discovery (RFC 9000 section 14.3).
    set_option(
        fd,
        libc::SOL_IP,
        libc::IP_MTU_DISCOVER,
        libc::IP_PMTUDISC_PROBE,
    )
}

fn prepare_v6(fd: RawFd) -> io::Result<()> {
    set_option(fd, libc::SOL_IPV6, libc::IPV6_RECVERR, 1)?;
    set_option(fd, libc::SOL_IPV6, libc::IPV6_RECVTCLASS, 1)?;
    set_option(fd, libc::SOL_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
    set_option(
        fd,
        libc::SOL_IPV6,
        libc::IPV6_MTU_DISCOVER,
        libc::IP_PMTUDISC_PROBE,
    )
}

const BUFFER_WANTED: usize = 4 * 1024 * 1024;
