//! Streams: echo, end of stream, half-close, cancel, close, many connections, short sends.

mod common;

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use common::*;
use uringcore_io::{Backend, DriverConfig, Errno, OpId, Outcome, SockAddr, net};

both_backends!(
    echo,
    end_of_stream_is_an_empty_buffer,
    half_close_still_receives,
    connect_and_accept_exchange_data,
    connect_to_a_dead_port_is_refused,
    a_large_send_completes_whole,
    a_cancelled_send_reports_what_was_sent,
    vectored_send_keeps_the_order,
    send_to_a_closed_peer_is_an_error_and_no_signal,
    cancel_ends_with_one_completion_and_frees_the_slot,
    a_stale_cancel_has_no_effect,
    cancel_fd_ends_every_operation_of_the_descriptor,
    close_sends_fin_with_a_multishot_armed,
    a_close_completes_after_all_operations_of_its_descriptor,
    a_send_queued_before_a_close_is_sent,
    close_of_an_idle_descriptor,
    a_listener_address_is_free_after_close,
    a_full_operation_table_refuses_with_enobufs,
    bad_descriptors_complete_with_ebadf,
);

fn echo(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let recv = rig.driver.recv(ours.as_raw_fd(), 7);
    for length in [1, 100, 70_000] {
        let sent = pattern(length);
        theirs.write_all(&sent).unwrap();
        let got = rig.read_exactly(recv, length);
        let send = rig.driver.send(ours.as_raw_fd(), Bytes::from(got), 8);
        assert_eq!(rig.result_of(send), Ok(length as u32));
        let mut back = vec![0; length];
        theirs.read_exact(&mut back).unwrap();
        assert!(back == sent);
    }
    rig.close(ours);
    rig.assert_idle();
}

fn end_of_stream_is_an_empty_buffer(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let recv = rig.driver.recv(ours.as_raw_fd(), 7);
    theirs.write_all(b"last words").unwrap();
    drop(theirs);
    assert_eq!(rig.read_to_end(recv), b"last words");
    assert_eq!(rig.driver.stats().in_flight, 0);
    // After the end of the stream there is no further completion, and another receive reports the end again.
    let again = rig.driver.recv(ours.as_raw_fd(), 7);
    assert_ne!(again, recv);
    assert_eq!(rig.read_to_end(again), b"");
    rig.assert_idle();
}

fn half_close_still_receives(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let recv = rig.driver.recv(ours.as_raw_fd(), 7);
    let send = rig
        .driver
        .send(ours.as_raw_fd(), Bytes::from_static(b"question"), 8);
    assert_eq!(rig.result_of(send), Ok(8));
    net::shutdown_write(ours.as_raw_fd()).unwrap();
    let mut question = String::new();
    theirs.read_to_string(&mut question).unwrap();
    assert_eq!(question, "question");
    theirs.write_all(b"answer").unwrap();
    drop(theirs);
    assert_eq!(rig.read_to_end(recv), b"answer");
    let send = rig
        .driver
        .send(ours.as_raw_fd(), Bytes::from_static(b"late"), 8);
    assert_eq!(rig.result_of(send), Err(libc::EPIPE));
    rig.close(ours);
    rig.assert_idle();
}

fn connect_and_accept_exchange_data(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (listener, address) = listener();
    let accept = rig.driver.accept(listener.as_raw_fd(), 1);
    let client = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    client.set_nonblocking(true).unwrap();
    let connect = rig
        .driver
        .connect(client.as_raw_fd(), SockAddr::from(address), 2);
    assert_eq!(rig.result_of(connect), Ok(0));
    let server = rig.accepted(accept);
    assert_eq!(
        net::peer_addr(server.as_raw_fd()).unwrap(),
        client.local_addr().unwrap()
    );
    let from_client = rig.driver.recv(server.as_raw_fd(), 3);
    let from_server = rig.driver.recv(client.as_raw_fd(), 4);
    let data = Bytes::from(pattern(100_000));
    let up = rig.driver.send(client.as_raw_fd(), data.clone(), 5);
    let down = rig.driver.send(server.as_raw_fd(), data.slice(1..), 6);
    assert!(rig.read_exactly(from_client, 100_000) == data);
    assert!(rig.read_exactly(from_server, 99_999) == data[1..]);
    assert_eq!(rig.result_of(up), Ok(100_000));
    assert_eq!(rig.result_of(down), Ok(99_999));
    rig.close(client);
    assert_eq!(rig.read_to_end(from_client), b"");
    rig.close(server);
    rig.close(listener);
    rig.assert_idle();
}

fn connect_to_a_dead_port_is_refused(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (listener, address) = listener();
    drop(listener);
    let client = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    client.set_nonblocking(true).unwrap();
    let connect = rig
        .driver
        .connect(client.as_raw_fd(), SockAddr::from(address), 2);
    assert_eq!(rig.result_of(connect), Err(libc::ECONNREFUSED));
    rig.close(client);
    rig.assert_idle();
}

fn a_send_queued_before_a_close_is_sent(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let recv = rig.driver.recv(ours.as_raw_fd(), 1);
    rig.iterate(Duration::ZERO);
    let send = rig
        .driver
        .send(ours.as_raw_fd(), Bytes::from_static(b"last words"), 2);
    rig.close(ours);
    assert_eq!(rig.result_of(send), Ok(10));
    rig.next_of(recv);
    let mut got = String::new();
    theirs.read_to_string(&mut got).unwrap();
    assert_eq!(got, "last words");
    rig.assert_idle();
}

fn a_large_send_completes_whole(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let sent = pattern(8 << 20);
    let send = rig
        .driver
        .send(ours.as_raw_fd(), Bytes::from(sent.clone()), 8);
    rig.iterate(Duration::from_millis(10));
    let reader = thread::spawn(move || {
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).unwrap();
        got
    });
    assert_eq!(rig.result_of(send), Ok(8 << 20));
    rig.close(ours);
    assert!(reader.join().unwrap() == sent);
    rig.assert_idle();
}

fn a_cancelled_send_reports_what_was_sent(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let sent = pattern(16 << 20);
    let send = rig
        .driver
        .send(ours.as_raw_fd(), Bytes::from(sent.clone()), 8);
    rig.iterate(Duration::from_millis(20));
    assert!(
        rig.take(send).is_none(),
        "without a reader the send cannot complete"
    );
    rig.driver.cancel(send);
    let count = rig.result_of(send).expect("a part was sent") as usize;
    assert!(count > 0 && count < sent.len());
    rig.close(ours);
    let mut got = Vec::new();
    theirs.read_to_end(&mut got).unwrap();
    assert!(got == sent[..count], "{} of {count}", got.len());
    rig.assert_idle();
}

fn vectored_send_keeps_the_order(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = unix_pair();
    let sent = Bytes::from(pattern(3 << 20));
    let mut pieces = vec![Bytes::new()];
    let mut rest = sent.clone();
    for size in (1..).map(|i| i * 7_001 % 60_000) {
        if rest.is_empty() {
            break;
        }
        pieces.push(rest.split_to(size.min(rest.len())));
    }
    assert!(pieces.len() < 1024);
    let send = rig.driver.send_vectored(ours.as_raw_fd(), pieces, 8);
    let reader = thread::spawn(move || {
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).unwrap();
        got
    });
    assert_eq!(rig.result_of(send), Ok(3 << 20));
    rig.close(ours);
    assert!(reader.join().unwrap() == sent);
    rig.assert_idle();
}

fn send_to_a_closed_peer_is_an_error_and_no_signal(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, theirs) = unix_pair();
    drop(theirs);
    let send = rig
        .driver
        .send(ours.as_raw_fd(), Bytes::from_static(b"hello?"), 8);
    assert_eq!(rig.result_of(send), Err(libc::EPIPE));
    let pieces = vec![Bytes::from_static(b"a"), Bytes::from_static(b"b")];
    let send = rig.driver.send_vectored(ours.as_raw_fd(), pieces, 8);
    assert_eq!(rig.result_of(send), Err(libc::EPIPE));
    rig.assert_idle();
}

fn cancel_ends_with_one_completion_and_frees_the_slot(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, _theirs) = tcp_pair();
    let (listener, _) = listener();
    let fd = ours.as_raw_fd();
    // In the first round the operation is cancelled before it is submitted, in the second round afterwards.
    for settle in [false, true] {
        let recv = rig.driver.recv(fd, 1);
        let accept = rig.driver.accept(listener.as_raw_fd(), 2);
        if settle {
            rig.iterate(Duration::ZERO);
        }
        rig.driver.cancel(recv);
        rig.driver.cancel(recv);
        rig.driver.cancel(accept);
        let completion = rig.next_of(recv);
        assert!(!completion.more());
        assert!(matches!(
            completion.outcome,
            Outcome::Received(Err(Errno::CANCELED))
        ));
        assert!(matches!(
            rig.next_of(accept).outcome,
            Outcome::Accepted(Err(Errno::CANCELED))
        ));
        assert_eq!(rig.driver.stats().in_flight, 0);
        rig.iterate(Duration::from_millis(5));
        assert!(rig.done.is_empty(), "{:?}", rig.done);
    }
}

fn a_stale_cancel_has_no_effect(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let old = rig.driver.recv(ours.as_raw_fd(), 1);
    rig.driver.cancel(old);
    rig.next_of(old);
    // The new operation uses the slot of the cancelled one, with another generation.
    let new = rig.driver.recv(ours.as_raw_fd(), 2);
    assert_eq!(new.as_u64() as u32, old.as_u64() as u32);
    rig.driver.cancel(old);
    rig.driver.discard(old);
    rig.driver.cancel(OpId::NONE);
    theirs.write_all(b"alive").unwrap();
    assert_eq!(rig.read_exactly(new, 5), b"alive");
    rig.close(ours);
    rig.assert_idle();
}

fn cancel_fd_ends_every_operation_of_the_descriptor(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let (other, mut beyond) = tcp_pair();
    let fd = ours.as_raw_fd();
    let recv = rig.driver.recv(fd, 1);
    let poll = rig.driver.poll(fd, uringcore_io::Interest::Read, 2);
    let send = rig.driver.send(fd, Bytes::from(pattern(16 << 20)), 3);
    let spared = rig.driver.recv(other.as_raw_fd(), 4);
    rig.iterate(Duration::from_millis(10));
    rig.driver.cancel_fd(fd);
    assert!(matches!(
        rig.next_of(recv).outcome,
        Outcome::Received(Err(Errno::CANCELED))
    ));
    assert_eq!(rig.result_of(poll), Err(libc::ECANCELED));
    assert!(rig.result_of(send).unwrap() > 0);
    beyond.write_all(b"x").unwrap();
    assert_eq!(rig.read_exactly(spared, 1), b"x");
    // The descriptor can still be used.
    theirs.write_all(b"still open").unwrap();
    let recv = rig.driver.recv(fd, 1);
    assert_eq!(rig.read_exactly(recv, 10), b"still open");
    rig.close(ours);
    rig.close(other);
    rig.assert_idle();
}

fn close_sends_fin_with_a_multishot_armed(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let recv = rig.driver.recv(ours.as_raw_fd(), 1);
    rig.iterate(Duration::ZERO);
    rig.close(ours);
    assert!(matches!(
        rig.next_of(recv).outcome,
        Outcome::Received(Err(Errno::CANCELED))
    ));
    let mut rest = Vec::new();
    assert_eq!(theirs.read_to_end(&mut rest).unwrap(), 0);
    rig.assert_idle();
}

fn a_close_completes_after_all_operations_of_its_descriptor(backend: Backend) {
    let mut rig = Rig::new(backend);
    for round in 0..20 {
        let (ours, mut theirs) = tcp_pair();
        let fd = ours.as_raw_fd();
        let mut ops = vec![
            rig.driver.recv(fd, 1),
            rig.driver.poll(fd, uringcore_io::Interest::Read, 2),
            rig.driver.send(fd, Bytes::from(pattern(8 << 20)), 3),
        ];
        if round % 2 == 0 {
            rig.iterate(Duration::ZERO);
        }
        theirs.write_all(b"data in flight").unwrap();
        let close = rig.driver.close(OwnedFd::from(ours), 4);
        let mut order = Vec::new();
        rig.until("the close", |rig| {
            for completion in rig.done.drain(..) {
                if !completion.more() {
                    order.push(completion.op());
                }
            }
            order.contains(&close)
        });
        assert_eq!(order.pop(), Some(close));
        order.sort_by_key(|op| op.as_u64());
        ops.sort_by_key(|op| op.as_u64());
        assert_eq!(order, ops);
    }
    rig.assert_idle();
}

fn close_of_an_idle_descriptor(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    rig.close(ours);
    assert_eq!(theirs.read(&mut [0; 1]).unwrap(), 0);
    let (reader, writer) = pipe();
    rig.close(reader);
    rig.close(writer);
    rig.assert_idle();
}

fn a_listener_address_is_free_after_close(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (listener, address) = listener();
    let accept = rig.driver.accept(listener.as_raw_fd(), 1);
    rig.iterate(Duration::ZERO);
    rig.close(listener);
    assert!(matches!(
        rig.next_of(accept).outcome,
        Outcome::Accepted(Err(Errno::CANCELED))
    ));
    // std's listeners have SO_REUSEADDR. This socket has not, so binding fails while a socket uses the address.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&address.into()).unwrap();
    socket.listen(1).unwrap();
}

fn a_full_operation_table_refuses_with_enobufs(backend: Backend) {
    let mut rig = Rig::with(DriverConfig {
        backend: Some(backend),
        operations_max: 2,
        ..DriverConfig::default()
    });
    let (ours, _theirs) = tcp_pair();
    let fd = ours.as_raw_fd();
    let first = rig.driver.recv(fd, 1);
    let second = rig.driver.poll(fd, uringcore_io::Interest::Read, 2);
    let third = rig.driver.send(fd, Bytes::from_static(b"x"), 3);
    assert_eq!(third, OpId::NONE);
    let refused = rig.next_of(OpId::NONE);
    assert_eq!((refused.token, refused.more()), (3, false));
    assert!(matches!(
        refused.outcome,
        Outcome::Done(Err(Errno::NO_BUFFERS))
    ));
    // A close gets a slot although the table is full.
    rig.close(ours);
    rig.next_of(first);
    rig.next_of(second);
    rig.assert_idle();
}

fn bad_descriptors_complete_with_ebadf(backend: Backend) {
    let mut rig = Rig::new(backend);
    for fd in [-1, 900_000, i32::MAX] {
        let recv = rig.driver.recv(fd, 1);
        assert!(
            matches!(
                rig.next_of(recv).outcome,
                Outcome::Received(Err(Errno(libc::EBADF)))
            ),
            "{fd}"
        );
        let send = rig.driver.send(fd, Bytes::from_static(b"x"), 1);
        assert_eq!(rig.result_of(send), Err(libc::EBADF), "{fd}");
        let poll = rig.driver.poll(fd, uringcore_io::Interest::Write, 1);
        assert_eq!(rig.result_of(poll), Err(libc::EBADF), "{fd}");
    }
    rig.assert_idle();
}
