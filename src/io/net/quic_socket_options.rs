//! UDP sockets with the options that QUIC needs: ECN, the local address of datagrams, GRO, ICMP errors, probes of the
//! path MTU, large buffers.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::{local_addr, option, set_option, with_socket};

/// Options of a [`udp_quic_socket`].
#[derive(Copy, Clone, Default, Debug)]
pub struct QuicSocketOptions {
    /// True if an IPv6 wildcard socket also receives IPv4 datagrams, from mapped addresses.
    pub dual_stack: bool,
    /// `SO_REUSEPORT`, for several workers on one port.
    pub reuse_port: bool,
}

/// The options that the kernel granted.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct QuicSocketInfo {
    /// True if the kernel joins received datagrams of one peer to a batch.
    pub gro: bool,
    /// True if a batch of datagrams of one size can be sent as one message.
    pub gso: bool,
    /// The size of the receive buffer in bytes as the kernel reports it: twice the requested size, because of its
    /// overhead.
    pub recv_buffer: usize,
    /// The size of the send buffer in bytes as the kernel reports it: twice the requested size, because of its
    /// overhead.
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

/// Sets the options for QUIC on a UDP socket, and returns those that the kernel granted. `EINVAL` if the socket's
/// family is neither IPv4 nor IPv6. GRO and buffer sizes are optional, so their rejection is no error.
pub fn prepare_quic_socket(fd: RawFd) -> io::Result<QuicSocketInfo> {
    let family = i32::from(local_addr(fd)?.family());
    match family {
        libc::AF_INET => prepare_v4(fd)?,
        libc::AF_INET6 => {
            prepare_v6(fd)?;
            // A dual-stack socket needs IPv4's options too. A kernel without IPv4 rejects them.
            let _ = prepare_v4(fd);
        }
        _ => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
    let gro = set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
    let gso = option(fd, libc::SOL_UDP, libc::UDP_SEGMENT).is_ok();
    let (recv_buffer, send_buffer) = with_socket(fd, |socket| {
        // The kernel silently limits the size to net.core.rmem_max. The caller compares the granted size with the
        // wanted one and logs it.
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
    // Forbids fragmentation. With the PROBE value the kernel also sends datagrams that are larger than its estimate of
    // the path MTU, because QUIC probes the path itself (RFC 9000 section 14.3).
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
