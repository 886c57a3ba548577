//! Datagrams: addresses, GRO, GSO, ECN, packet info, truncation, the error queue.

mod common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use bytes::Bytes;
use common::*;
use uringcore_io::net::{self, QuicSocketOptions};
use uringcore_io::{Backend, Datagram, DriverConfig, Errno, OpId, Outcome, SendMsg, SockAddr};

both_backends!(
    datagrams_arrive_with_their_sender,
    gso_splits_a_batch_and_gro_joins_it,
    ecn_and_local_address_round_trip_v4,
    ecn_and_local_address_round_trip_v6,
    a_dual_stack_socket_serves_both,
    a_chosen_source_address_is_used,
    a_datagram_longer_than_its_buffer_is_truncated_and_marked,
    empty_datagrams_are_reported,
    a_burst_into_few_buffers_is_received,
    the_error_queue_reports_a_closed_port,
    a_connected_socket_is_refused,
    an_oversized_datagram_is_refused,
    submitted_datagrams_leave_before_the_driver_is_entered,
    unix_datagrams_carry_their_path,
    closing_with_datagrams_armed,
);

fn message(data: impl Into<Bytes>, to: impl Into<SockAddr>) -> SendMsg {
    SendMsg {
        data: data.into(),
        to: Some(to.into()),
        segment_size: None,
        ecn: None,
        src_ip: None,
    }
}

impl Rig {
    fn datagram(&mut self, op: OpId) -> Datagram {
        match self.next_of(op).outcome {
            Outcome::Datagram(Ok(datagram)) => datagram,
            other => panic!("{other:?}"),
        }
    }
}

fn quic_socket(address: &str) -> (std::os::fd::OwnedFd, SocketAddr) {
    let options = QuicSocketOptions {
        dual_stack: true,
        ..QuicSocketOptions::default()
    };
    let socket = net::udp_quic_socket(address.parse().unwrap(), options).unwrap();
    let address = net::local_addr(socket.as_raw_fd())
        .unwrap()
        .as_socket()
        .unwrap();
    (socket, address)
}

fn datagrams_arrive_with_their_sender(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, address) = udp_socket();
    let recv = rig.driver.recv_msg(ours.as_raw_fd(), 5);
    let (peer, peer_address) = udp_socket();
    for length in [1, 1200, 9000, 65_507] {
        let sent = pattern(length);
        peer.send_to(&sent, address).unwrap();
        let completion = rig.next_of(recv);
        assert_eq!((completion.token, completion.more()), (5, true));
        let Outcome::Datagram(Ok(datagram)) = completion.outcome else {
            panic!()
        };
        assert!(datagram.payload() == sent);
        assert_eq!(datagram.remote(), Some(peer_address));
        assert_eq!(datagram.raw_remote().as_socket(), Some(peer_address));
        assert_eq!(
            (datagram.segment_size(), datagram.truncated()),
            (None, false)
        );
        // The driver sends a datagram back.
        let send = rig
            .driver
            .send_msg(ours.as_raw_fd(), message(sent.clone(), peer_address), 6);
        assert_eq!(rig.result_of(send), Ok(length as u32));
        let mut back = vec![0; 70_000];
        assert_eq!(peer.recv(&mut back).unwrap(), length);
        assert!(back[..length] == sent);
    }
    rig.close(ours);
    rig.assert_idle();
}

fn gso_splits_a_batch_and_gro_joins_it(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (receiver, to) = quic_socket("127.0.0.1:0");
    let (sender, from) = quic_socket("127.0.0.1:0");
    let recv = rig.driver.recv_msg(receiver.as_raw_fd(), 1);
    rig.iterate(Duration::ZERO);
    // 20 segments of full size and a shorter one.
    let sent = pattern(20 * 1200 + 77);
    let batch = SendMsg {
        segment_size: Some(1200),
        ecn: Some(2),
        ..message(sent.clone(), to)
    };
    let send = rig.driver.send_msg(sender.as_raw_fd(), batch, 2);
    assert_eq!(rig.result_of(send), Ok(sent.len() as u32));
    let mut got = Vec::new();
    let mut joined = 0;
    while got.len() < sent.len() {
        let datagram = rig.datagram(recv);
        assert_eq!(datagram.remote(), Some(from));
        assert_eq!(datagram.ecn(), Some(2));
        if let Some(size) = datagram.segment_size() {
            assert_eq!(size, 1200);
            joined += 1;
        } else {
            assert!(datagram.payload().len() <= 1200);
        }
        got.extend_from_slice(datagram.payload());
    }
    assert!(got == sent);
    assert!(joined > 0, "GRO never joined anything");
    rig.close(receiver);
    rig.close(sender);
    rig.assert_idle();
}

fn ecn_and_local_address_round_trip_v4(backend: Backend) {
    round_trip(backend, "127.0.0.1:0");
}

fn ecn_and_local_address_round_trip_v6(backend: Backend) {
    round_trip(backend, "[::1]:0");
}

fn round_trip(backend: Backend, local: &str) {
    let mut rig = Rig::new(backend);
    let (receiver, to) = quic_socket(local);
    let (sender, _) = quic_socket(local);
    let recv = rig.driver.recv_msg(receiver.as_raw_fd(), 1);
    for ecn in [Some(0), Some(1), Some(2), Some(3), None] {
        let send = rig.driver.send_msg(
            sender.as_raw_fd(),
            SendMsg {
                ecn,
                ..message("x", to)
            },
            2,
        );
        assert_eq!(rig.result_of(send), Ok(1));
        let datagram = rig.datagram(recv);
        assert_eq!(datagram.ecn(), Some(ecn.unwrap_or(0)));
        assert_eq!(datagram.local_ip(), Some(to.ip()));
    }
    // On a connected socket the message has no destination family.
    net::send_to(sender.as_raw_fd(), b"y", Some(&to.into())).unwrap();
    assert_eq!(rig.datagram(recv).payload(), b"y");
    socket2::SockRef::from(&sender).connect(&to.into()).unwrap();
    let unnamed = SendMsg {
        to: None,
        ecn: Some(1),
        ..message("z", to)
    };
    let send = rig.driver.send_msg(sender.as_raw_fd(), unnamed, 2);
    assert_eq!(rig.result_of(send), Ok(1));
    assert_eq!(rig.datagram(recv).ecn(), Some(1));
    rig.close(receiver);
    rig.close(sender);
    rig.assert_idle();
}

fn a_dual_stack_socket_serves_both(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (server, address) = quic_socket("[::]:0");
    let recv = rig.driver.recv_msg(server.as_raw_fd(), 1);
    for (client, ip) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1")] {
        let ip: IpAddr = ip.parse().unwrap();
        let (client, client_address) = quic_socket(client);
        let to = SocketAddr::new(ip, address.port());
        let send = rig.driver.send_msg(
            client.as_raw_fd(),
            SendMsg {
                ecn: Some(1),
                ..message("hi", to)
            },
            2,
        );
        assert_eq!(rig.result_of(send), Ok(2));
        let datagram = rig.datagram(recv);
        assert_eq!(datagram.ecn(), Some(1));
        assert_eq!(datagram.local_ip().map(|ip| ip.to_canonical()), Some(ip));
        let remote = datagram.remote().unwrap();
        assert_eq!(remote.ip().to_canonical(), client_address.ip());
        // The answer has the requested source address and ECN bits. Its destination may be a mapped address.
        let answer = rig.driver.recv_msg(client.as_raw_fd(), 3);
        let reply = SendMsg {
            ecn: Some(2),
            src_ip: datagram.local_ip(),
            ..message("ho", remote)
        };
        let send = rig.driver.send_msg(server.as_raw_fd(), reply, 4);
        assert_eq!(rig.result_of(send), Ok(2));
        let datagram = rig.datagram(answer);
        assert_eq!(datagram.ecn(), Some(2));
        assert_eq!(datagram.remote(), Some(to));
        rig.close(client);
        rig.next_of(answer);
    }
}

fn a_chosen_source_address_is_used(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (server, address) = quic_socket("0.0.0.0:0");
    let (client, client_address) = udp_socket();
    let recv = rig.driver.recv_msg(client.as_raw_fd(), 1);
    for last in [1, 2, 77] {
        let source = Ipv4Addr::new(127, 0, 0, last);
        let reply = SendMsg {
            src_ip: Some(source.into()),
            ..message("from", client_address)
        };
        let send = rig.driver.send_msg(server.as_raw_fd(), reply, 2);
        assert_eq!(rig.result_of(send), Ok(4));
        let remote = rig.datagram(recv).remote().unwrap();
        assert_eq!(remote, SocketAddr::from((source, address.port())));
    }
}

fn a_datagram_longer_than_its_buffer_is_truncated_and_marked(backend: Backend) {
    let mut rig = Rig::with(DriverConfig {
        backend: Some(backend),
        datagram_buffer_size: 1000,
        ..DriverConfig::default()
    });
    let (ours, address) = udp_socket();
    let recv = rig.driver.recv_msg(ours.as_raw_fd(), 5);
    let (peer, _) = udp_socket();
    let sent = pattern(5000);
    for length in [1000, 1001, 5000] {
        peer.send_to(&sent[..length], address).unwrap();
        let datagram = rig.datagram(recv);
        assert!(datagram.payload() == &sent[..1000]);
        assert_eq!(datagram.truncated(), length > 1000);
    }
}

fn empty_datagrams_are_reported(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, address) = udp_socket();
    let recv = rig.driver.recv_msg(ours.as_raw_fd(), 5);
    let (peer, peer_address) = udp_socket();
    for _ in 0..3 {
        peer.send_to(&[], address).unwrap();
        let completion = rig.next_of(recv);
        assert!(completion.more());
        let Outcome::Datagram(Ok(datagram)) = completion.outcome else {
            panic!()
        };
        assert_eq!(datagram.payload(), b"");
        assert_eq!(datagram.remote(), Some(peer_address));
    }
    let send = rig
        .driver
        .send_msg(ours.as_raw_fd(), message("", peer_address), 6);
    assert_eq!(rig.result_of(send), Ok(0));
    assert_eq!(peer.recv(&mut [0; 10]).unwrap(), 0);
}

fn a_burst_into_few_buffers_is_received(backend: Backend) {
    let mut rig = Rig::with(DriverConfig {
        backend: Some(backend),
        datagram_buffers: 2,
        ..DriverConfig::default()
    });
    let (ours, address) = udp_socket();
    socket2::SockRef::from(&ours)
        .set_recv_buffer_size(4 << 20)
        .unwrap();
    let recv = rig.driver.recv_msg(ours.as_raw_fd(), 5);
    let (peer, _) = udp_socket();
    for round in 0..20u32 {
        for number in 0..50u32 {
            peer.send_to(&(round * 50 + number).to_ne_bytes(), address)
                .unwrap();
        }
        let mut held = Vec::new();
        for number in 0..50u32 {
            let datagram = rig.datagram(recv);
            assert_eq!(datagram.payload(), (round * 50 + number).to_ne_bytes());
            held.push(datagram);
            if held.len() == 2 {
                rig.iterate(Duration::from_micros(10));
                held.clear();
            }
        }
    }
    assert!(rig.driver.stats().enobufs > 0);
    rig.close(ours);
    rig.assert_idle();
}

fn dead_port() -> SocketAddr {
    let (socket, address) = udp_socket();
    drop(socket);
    address
}

fn the_error_queue_reports_a_closed_port(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, address) = quic_socket("127.0.0.1:0");
    let fd = ours.as_raw_fd();
    let mut recv = rig.driver.recv_msg(fd, 1);
    rig.iterate(Duration::ZERO);
    for _ in 0..3 {
        let dead = dead_port();
        let send = rig.driver.send_msg(fd, message("anybody there?", dead), 2);
        assert_eq!(rig.result_of(send), Ok(14));
        let completion = rig.next_of(recv);
        assert!(!completion.more());
        assert!(
            matches!(
                completion.outcome,
                Outcome::Datagram(Err(Errno(libc::ECONNREFUSED)))
            ),
            "{completion:?}"
        );
        let errors = net::read_error_queue(fd).unwrap();
        assert_eq!(
            errors,
            [net::SocketError {
                remote: dead,
                errno: Errno(libc::ECONNREFUSED)
            }]
        );
        assert_eq!(net::read_error_queue(fd).unwrap(), []);
        recv = rig.driver.recv_msg(fd, 1);
        // The socket is not in an error loop: datagrams of other peers still arrive, and a wait for them sleeps.
        let (peer, _) = udp_socket();
        peer.send_to(b"alive", address).unwrap();
        assert_eq!(rig.datagram(recv).payload(), b"alive");
        let enters = rig.driver.stats().enters;
        rig.iterate(Duration::from_millis(20));
        assert!(rig.driver.stats().enters <= enters + 1);
        assert!(rig.done.is_empty());
    }
    rig.close(ours);
    rig.assert_idle();
}

fn a_connected_socket_is_refused(backend: Backend) {
    let mut rig = Rig::new(backend);
    let dead = dead_port();
    let ours = UdpSocket::bind(loopback()).unwrap();
    ours.set_nonblocking(true).unwrap();
    let connect = rig.driver.connect(ours.as_raw_fd(), dead.into(), 0);
    assert_eq!(rig.result_of(connect), Ok(0));
    let recv = rig.driver.recv_msg(ours.as_raw_fd(), 1);
    rig.iterate(Duration::ZERO);
    let send = rig.driver.send_msg(
        ours.as_raw_fd(),
        SendMsg {
            to: None,
            ..message("x", dead)
        },
        2,
    );
    assert_eq!(rig.result_of(send), Ok(1));
    assert!(matches!(
        rig.next_of(recv).outcome,
        Outcome::Datagram(Err(Errno(libc::ECONNREFUSED)))
    ));
    rig.close(ours);
    rig.assert_idle();
}

fn an_oversized_datagram_is_refused(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, address) = udp_socket();
    let send = rig
        .driver
        .send_msg(ours.as_raw_fd(), message(vec![0; 65_508], address), 2);
    assert_eq!(rig.result_of(send), Err(libc::EMSGSIZE));
    rig.close(ours);
    rig.assert_idle();
}

fn submitted_datagrams_leave_before_the_driver_is_entered(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, address) = udp_socket();
    // Before the first loop iteration no thread is bound to the ring, so nothing can be submitted.
    let first = rig
        .driver
        .send_msg(ours.as_raw_fd(), message(&b"first"[..], address), 1);
    assert_eq!(rig.result_of(first), Ok(5));
    let (peer, _) = udp_socket();
    peer.set_nonblocking(false).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let to = peer.local_addr().unwrap();
    let send = rig
        .driver
        .send_msg(ours.as_raw_fd(), message(&b"early"[..], to), 2);
    rig.driver.submit();
    let mut room = [0; 16];
    assert_eq!(peer.recv(&mut room).unwrap(), 5);
    assert_eq!(rig.result_of(send), Ok(5));
    rig.close(ours);
    rig.assert_idle();
}

fn unix_datagrams_carry_their_path(backend: Backend) {
    let mut rig = Rig::new(backend);
    let directory =
        std::env::temp_dir().join(format!("uringcore-io-{}-{backend:?}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (ours_path, theirs_path) = (directory.join("ours"), directory.join("theirs"));
    let ours = UnixDatagram::bind(&ours_path).unwrap();
    ours.set_nonblocking(true).unwrap();
    let recv = rig.driver.recv_msg(ours.as_raw_fd(), 1);
    let named = UnixDatagram::bind(&theirs_path).unwrap();
    named.send_to(b"named", &ours_path).unwrap();
    let datagram = rig.datagram(recv);
    assert_eq!(datagram.payload(), b"named");
    assert_eq!(datagram.remote(), None);
    assert_eq!(
        datagram.raw_remote().as_pathname(),
        Some(theirs_path.as_path())
    );
    drop(datagram);
    UnixDatagram::unbound()
        .unwrap()
        .send_to(b"nameless", &ours_path)
        .unwrap();
    let datagram = rig.datagram(recv);
    assert_eq!(datagram.payload(), b"nameless");
    assert_eq!(datagram.raw_remote().as_pathname(), None);
    drop(datagram);
    let to = SockAddr::unix(&theirs_path).unwrap();
    let send = rig
        .driver
        .send_msg(ours.as_raw_fd(), message("back", to), 2);
    assert_eq!(rig.result_of(send), Ok(4));
    let mut back = [0; 10];
    assert_eq!(named.recv(&mut back).unwrap(), 4);
    rig.close(ours);
    rig.assert_idle();
    std::fs::remove_dir_all(&directory).unwrap();
}

fn closing_with_datagrams_armed(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, address) = udp_socket();
    let recv = rig.driver.recv_msg(ours.as_raw_fd(), 1);
    rig.iterate(Duration::ZERO);
    rig.close(ours);
    assert!(matches!(
        rig.next_of(recv).outcome,
        Outcome::Datagram(Err(Errno::CANCELED))
    ));
    // After the close the port is free at once.
    UdpSocket::bind(address).unwrap();
    rig.assert_idle();
}
