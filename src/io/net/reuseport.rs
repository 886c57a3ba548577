//! Several sockets on one UDP port (SO_REUSEPORT): the choice of the socket that receives a datagram.
//!
//! By default the kernel selects the socket by a hash of the addresses. A QUIC client that changes its address would
//! then reach another socket, whose process does not have the connection. So a classic BPF program, which needs no
//! privilege, selects the socket by the connection ID.

use std::io;
use std::mem::size_of;
use std::os::fd::RawFd;

/// Selects the socket of each datagram by the first byte of its destination connection ID, modulo the number of
/// places. `sockets` has an entry for each place: the number of the socket that receives its datagrams. The kernel
/// numbers the sockets of a port from 0, in the order in which they were bound.
///
/// `fd` is any socket of the port. The program replaces the port's previous one at once. If the selected socket does
/// not exist, the kernel selects one by its hash.
pub fn steer_by_connection_id(fd: RawFd, sockets: &[u8]) -> io::Result<()> {
    if !(1..=PLACES_MAX).contains(&sockets.len()) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut program = steering(sockets);
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the option reads a `sock_fprog`, whose instructions live until the call returns.
    let set = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes the BPF program. It reads the UDP payload; a read beyond its end ends the program and selects socket 0.
fn steering(sockets: &[u8]) -> Vec<libc::sock_filter> {
    let load_byte = |at| instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, at);
    let branch = |test, k, jt, jf| libc::sock_filter {
        jt,
        jf,
        ..instruction(libc::BPF_JMP | test | libc::BPF_K, k)
    };
    let mut program = vec![
        load_byte(0),
        branch(libc::BPF_JSET, LONG_HEADER, 0, 2),
        // RFC 9000 section 17.2: the version and the length precede the ID.
        load_byte(6),
        instruction(libc::BPF_JMP | libc::BPF_JA, 1),
        // RFC 9000 section 17.3: in a short header, the connection ID follows the first byte.
        load_byte(1),
        instruction(
            libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K,
            sockets.len() as u32,
        ),
    ];
    // A place whose datagrams are received by another socket costs one comparison in the program. There are few such
    // places.
    for (place, socket) in (0_u32..).zip(sockets) {
        let socket = u32::from(*socket);
        if socket != place {
            program.push(branch(libc::BPF_JEQ, place, 0, 1));
            program.push(instruction(libc::BPF_RET | libc::BPF_K, socket));
        }
    }
    program.push(instruction(libc::BPF_RET | libc::BPF_A, 0));
    program
}

fn instruction(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

/// The maximum number of places. One byte of the connection ID selects the place.
const PLACES_MAX: usize = 255;
const LONG_HEADER: u32 = 0x80;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use socket2::{Domain, Socket, Type};

    use super::*;

    fn sharing(port: u16) -> UdpSocket {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        socket.set_reuse_port(true).unwrap();
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        socket.bind(&address.into()).unwrap();
        let socket = UdpSocket::from(socket);
        socket
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        socket
    }

    #[test]
    fn datagrams_go_to_the_socket_that_their_connection_id_names() {
        let first = sharing(0);
        let address = first.local_addr().unwrap();
        let sockets: Vec<_> = std::iter::once(first)
            .chain((1..3).map(|_| sharing(address.port())))
            .collect();
        steer_by_connection_id(sockets[1].as_raw_fd(), &[0, 1, 2]).unwrap();
        for id in 0..=255_u8 {
            // A new source port for each datagram: the kernel's hash would select sockets at random.
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            let long = [0xc3, 0, 0, 0, 1, 8, id, 1, 2, 3];
            let short = [0x43, id, 1, 2, 3, 4, 5, 6, 7, 8];
            for datagram in [long, short] {
                client.send_to(&datagram, address).unwrap();
                let mut received = [0; 16];
                let length = sockets[usize::from(id % 3)].recv(&mut received).unwrap();
                assert_eq!(received[..length], datagram);
            }
        }
    }

    #[test]
    fn another_socket_receives_for_a_place_and_returns_it() {
        let first = sharing(0);
        let address = first.local_addr().unwrap();
        let sockets: Vec<_> = std::iter::once(first)
            .chain((1..3).map(|_| sharing(address.port())))
            .collect();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for places in [[0, 2, 2], [1, 1, 2], [0, 1, 2], [2, 0, 1]] {
            steer_by_connection_id(sockets[0].as_raw_fd(), &places).unwrap();
            for id in [0, 1, 2, 253, 254, 255_u8] {
                let long = [0xc3, 0, 0, 0, 1, 8, id, 1, 2, 3];
                let short = [0x43, id, 1, 2, 3, 4, 5, 6, 7, 8];
                for datagram in [long, short] {
                    client.send_to(&datagram, address).unwrap();
                    let mut received = [0; 16];
                    let socket = &sockets[usize::from(places[usize::from(id % 3)])];
                    let length = socket.recv(&mut received).unwrap();
                    assert_eq!(received[..length], datagram);
                }
            }
        }
        // The maximal number of places.
        let moved: Vec<u8> = (0..255).map(|place| 254 - place).collect();
        steer_by_connection_id(sockets[0].as_raw_fd(), &moved).unwrap();
        client.send_to(&[0x43, 252, 0, 0, 0, 0], address).unwrap();
        assert_eq!(sockets[2].recv(&mut [0; 16]).unwrap(), 6);
    }

    #[test]
    fn short_datagrams_reach_some_socket_and_an_empty_group_is_an_error() {
        let socket = sharing(0);
        assert!(steer_by_connection_id(socket.as_raw_fd(), &[]).is_err());
        assert!(steer_by_connection_id(socket.as_raw_fd(), &[0; 256]).is_err());
        steer_by_connection_id(socket.as_raw_fd(), &[0]).unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for length in 0..8 {
            client
                .send_to(&[0xc0; 8][..length], socket.local_addr().unwrap())
                .unwrap();
            assert_eq!(socket.recv(&mut [0; 16]).unwrap(), length);
        }
    }
}
