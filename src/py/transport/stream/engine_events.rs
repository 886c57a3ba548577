//! Converts the engine's events of a stream to calls of its protocol, in the transport's context.
//!
//! `event_dispatch` calls these functions. An exception of the protocol is reported. If the protocol was getting
//! received data, the exception also ends the connection, as in asyncio.
//!
//! A buffer of the ring returns to the ring before the callback that gets its bytes runs: `data_received`,
//! `buffer_updated`, `datagram_received`, and the callbacks of TLS and QUIC. Two kinds of Python code run while a
//! buffer is in use: `get_buffer()`, which returns the memory for the bytes, and callbacks of OpenSSL during
//! decryption (a server name at a renegotiation).
//!
//! A callback that `buffer_updated` schedules may be the one that empties the protocol's buffer. So it runs before the
//! next bytes are delivered (`wait_for_next_iteration`), as in asyncio, where each receive is a loop iteration of its
//! own.

use std::cell::Cell;
use std::io;
use std::ops::Deref;
use std::os::fd::RawFd;

use bytes::{Bytes, BytesMut};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use uringcore_engine::{Direction, NextReceive, StreamBytes};
use uringcore_io::{Errno, net};

use super::StreamTransport;
use crate::capi::bytes_like_objects;
use crate::capi::contextvars_context::Inside;
use crate::capi::exception_conversion;
use crate::sock::plain_sockets;
use crate::tls::TlsProtocol;
use crate::transport::base_transport::{BaseTransport, Descriptor, Receiver, fail_waiter};
use crate::transport::native_protocol::NativeReceive;

impl StreamTransport {
    pub fn data_received(base: &Bound<'_, BaseTransport>, data: StreamBytes) -> PyResult<()> {
        let py = base.py();
        match base.get().state.with(py, |state| state.receiver) {
            Receiver::Bytes => Self::deliver(base, data),
            Receiver::Buffer => Self::buffer_updated(base, data),
            Receiver::Tls => Self::deliver_records(base, data, drop),
            Receiver::Native(receive) => {
                let bytes = BytesMut::from(&data[..]);
                // The buffer of the ring returns before Python code runs.
                drop(data);
                Self::deliver_natively(base, bytes, receive)
            }
        }
    }

    /// Passes TLS records to TLS, which decrypts them. Then returns the memory of the records by `give_back`, before
    /// Python code runs.
    fn deliver_records<D: Deref<Target = [u8]>>(
        base: &Bound<'_, BaseTransport>,
        data: D,
        give_back: impl FnOnce(D),
    ) -> PyResult<()> {
        let py = base.py();
        let Some((protocol, _inside)) = base.get().enter(py)? else {
            return Ok(());
        };
        let tls = protocol.cast_exact::<TlsProtocol>()?;
        let more_follow = Self::data_follows(base.get(), py)?;
        let taken = TlsProtocol::take(tls, &data, more_follow);
        give_back(data);
        TlsProtocol::taken(tls, taken, more_follow)
    }

    /// Receives from a readable socket directly into the object that the protocol gets.
    pub fn readable(base: &Bound<'_, BaseTransport>, fd: RawFd) -> PyResult<()> {
        let py = base.py();
        if !Self::owns_descriptor(base.get(), py, fd)? {
            // EBADF is the error that asyncio's receive raises in this case.
            let closed = io::Error::from_raw_os_error(libc::EBADF);
            let next = NextReceive::WhenReadable;
            return Self::note_received(base.get(), py, Err(&closed), next).map(drop);
        }
        match base.get().state.with(py, |state| state.receiver) {
            Receiver::Buffer => return Self::receive_into_buffer(base, fd),
            Receiver::Tls => return Self::receive_records(base, fd),
            Receiver::Native(receive) => return Self::receive_natively_from(base, fd, receive),
            Receiver::Bytes => {}
        }
        let received = bytes_like_objects::received(py, fd, RECEIVE_MAX);
        let received = received.map(|bytes| bytes.into_bound(py));
        let count = received.as_ref().map(|bytes| bytes.as_bytes().len());
        Self::note_received(base.get(), py, count, next_receive(count))?;
        match received {
            Ok(bytes) if bytes.as_bytes().is_empty() => Ok(()),
            Ok(bytes) => Self::deliver_bytes(base, bytes),
            // The engine has queued the event of this error, which ends the connection.
            Err(_) => Ok(()),
        }
    }

    /// Receives TLS records into a buffer that belongs to this thread. OpenSSL reads the records there or copies them.
    fn receive_records(base: &Bound<'_, BaseTransport>, fd: RawFd) -> PyResult<()> {
        let py = base.py();
        // A callback of OpenSSL may call this function again. The nested call finds no buffer and allocates another.
        let mut records = RECEIVE_BUFFER.take();
        let result = net::recv_to(fd, &mut records, RECEIVE_MAX);
        let count = result.as_ref().copied();
        Self::note_received(base.get(), py, count, next_receive(count))?;
        match result {
            Ok(1..) => Self::deliver_records(base, records, |spent| RECEIVE_BUFFER.set(spent)),
            _ => {
                RECEIVE_BUFFER.set(records);
                Ok(())
            }
        }
    }

    /// Receives for a protocol of this extension. The protocol may keep the bytes of an incomplete message for long, so
    /// a small piece gets memory of its own size. A large piece keeps the buffer and is not copied.
    fn receive_natively_from(
        base: &Bound<'_, BaseTransport>,
        fd: RawFd,
        receive: NativeReceive,
    ) -> PyResult<()> {
        let mut buffer = RECEIVE_BUFFER.take();
        let result = net::recv_to(fd, &mut buffer, RECEIVE_MAX);
        let count = result.as_ref().copied();
        let bytes = match count {
            Ok(LARGE_PIECE..) => Bytes::from(std::mem::take(&mut buffer)).into(),
            _ => BytesMut::from(&buffer[..]),
        };
        RECEIVE_BUFFER.set(buffer);
        Self::note_received(base.get(), base.py(), count, next_receive(count))?;
        match result {
            Ok(1..) => Self::deliver_natively(base, bytes, receive),
            _ => Ok(()),
        }
    }

    fn deliver_natively(
        base: &Bound<'_, BaseTransport>,
        bytes: BytesMut,
        receive: NativeReceive,
    ) -> PyResult<()> {
        let Some((protocol, inside)) = base.get().enter(base.py())? else {
            return Ok(());
        };
        let received = receive(&protocol, bytes);
        drop(inside);
        let message = "Fatal error: protocol.data_received() call failed.";
        match received {
            Ok(()) => Ok(()),
            Err(error) => BaseTransport::fatal(base, error, message),
        }
    }

    /// True if the descriptor still belongs to the stream. If the program has closed its socket object under the
    /// transport, the descriptor's number may belong to another file, from which this stream must not receive.
    fn owns_descriptor(base: &BaseTransport, py: Python<'_>, fd: RawFd) -> PyResult<bool> {
        let socket = base.state.with(py, |state| match &state.descriptor {
            Descriptor::Socket(socket) => Ok(socket.clone_ref(py)),
            Descriptor::Owned(_) => Err(true),
            Descriptor::Gone => Err(false),
        });
        match socket {
            Ok(socket) => plain_sockets::has_descriptor(socket.bind(py), fd),
            Err(known) => Ok(known),
        }
    }

    /// Receives into the buffer of the protocol's `get_buffer()`.
    fn receive_into_buffer(base: &Bound<'_, BaseTransport>, fd: RawFd) -> PyResult<()> {
        let (py, this) = (base.py(), base.get());
        let Some((protocol, inside)) = this.enter(py)? else {
            return Ok(());
        };
        let target = protocol.call_method1(intern!(py, "get_buffer"), (-1,));
        let received = match &target {
            // The protocol has ended the connection in get_buffer().
            _ if this.shared.is_closing() => return Ok(()),
            Ok(target) => bytes_like_objects::receive_into(target, fd),
            Err(error) => Err(error.clone_ref(py)),
        };
        let (result, room) = match received {
            Ok(received) => received,
            Err(error) => {
                drop(inside);
                return BaseTransport::fatal(base, error, GET_BUFFER_FAILED);
            }
        };
        let next = match result {
            Ok(count) if count == room => NextReceive::AtOnce,
            _ => NextReceive::WhenReadable,
        };
        let is_followed = Self::note_received(this, py, result.as_ref().copied(), next)?;
        let reported = match result {
            Ok(count @ 1..) => Self::notify_filled(base, &protocol, inside, count).map(drop),
            _ => Ok(()),
        };
        let Some(key) = this.key(py).filter(|_| is_followed) else {
            return reported;
        };
        let is_due = this.command(py, |engine| engine.transports().receives_again(key))?;
        match reported {
            // The next receive starts anew, because the program may have replaced the protocol.
            Ok(()) if is_due => Self::readable(base, fd),
            reported => reported,
        }
    }

    /// Calls `buffer_updated` for `count` bytes in the protocol's buffer. Returns true if it raised no exception.
    ///
    /// If `buffer_updated` schedules a callback, no more bytes are delivered before that callback has run: it may be
    /// the one that empties the protocol's buffer.
    fn notify_filled(
        base: &Bound<'_, BaseTransport>,
        protocol: &Bound<'_, PyAny>,
        inside: Inside<'_>,
        count: usize,
    ) -> PyResult<bool> {
        let (py, this) = (base.py(), base.get());
        // The number of callbacks that wait to run. If it has grown afterwards, `buffer_updated` has scheduled one.
        let before = this.scheduled(py);
        let called = protocol.call_method1(intern!(py, "buffer_updated"), (count,));
        drop(inside);
        if this.scheduled(py) > before
            && let Some(key) = this.key(py)
        {
            this.command(py, |engine| {
                engine.transports().wait_for_next_iteration(key)
            })?;
        }
        let took = called.is_ok();
        let message = "Fatal error: protocol.buffer_updated() call failed.";
        Self::end_if_failed(base, called, message).map(|()| took)
    }

    /// Ends the connection if a method of the protocol that gets bytes has raised an exception.
    fn end_if_failed(
        base: &Bound<'_, BaseTransport>,
        called: PyResult<Bound<'_, PyAny>>,
        message: &str,
    ) -> PyResult<()> {
        match called {
            Ok(_) => Ok(()),
            Err(error) => BaseTransport::fatal(base, error, message),
        }
    }

    /// Reports the result of a receive to the engine, which queues an event for the end of the stream or an error.
    /// Returns true if another receive follows at once.
    fn note_received(
        base: &BaseTransport,
        py: Python<'_>,
        result: Result<usize, &io::Error>,
        next: NextReceive,
    ) -> PyResult<bool> {
        let errno = |error: &io::Error| Errno(error.raw_os_error().unwrap_or(libc::EIO));
        match base.key(py) {
            Some(key) => base.command(py, |engine| {
                engine
                    .transports()
                    .received(key, result.map_err(errno), next)
            }),
            None => Ok(false),
        }
    }

    fn deliver(base: &Bound<'_, BaseTransport>, data: StreamBytes) -> PyResult<()> {
        let bytes = PyBytes::new(base.py(), &data);
        // The buffer returns to the ring before Python code runs.
        drop(data);
        Self::deliver_bytes(base, bytes)
    }

    fn deliver_bytes(base: &Bound<'_, BaseTransport>, bytes: Bound<'_, PyBytes>) -> PyResult<()> {
        let py = base.py();
        let Some((protocol, inside)) = base.get().enter(py)? else {
            return Ok(());
        };
        let called = protocol.call_method1(intern!(py, "data_received"), (bytes,));
        drop(inside);
        let message = "Fatal error: protocol.data_received() call failed.";
        Self::end_if_failed(base, called, message)
    }

    /// Calls `get_buffer()` and `buffer_updated()` until all of `data` is delivered. In asyncio each pair of calls is a
    /// loop iteration of its own, so a command of the protocol between two pairs affects the bytes that are left: the
    /// protocol may pause or close, the program may set another protocol or run the next iterations of the loop.
    ///
    /// The buffer of the ring is in use during `get_buffer()` and returns to the ring before `buffer_updated()`. Bytes
    /// that do not fit into the protocol's buffer wait in the engine meanwhile.
    fn buffer_updated(base: &Bound<'_, BaseTransport>, mut data: StreamBytes) -> PyResult<()> {
        let py = base.py();
        let this = base.get();
        while !data.is_empty() {
            let (receiver, key) = this.state.with(py, |state| (state.receiver, state.key));
            let (false, Some(key)) = (this.shared.is_closing(), key) else {
                return Ok(());
            };
            match receiver {
                Receiver::Buffer => {}
                Receiver::Native(_) => return Self::data_received(base, data),
                Receiver::Bytes | Receiver::Tls => return Self::deliver(base, data),
            }
            let Some((protocol, inside)) = this.enter(py)? else {
                return Ok(());
            };
            let copied = protocol
                .call_method1(intern!(py, "get_buffer"), (-1,))
                .and_then(|target| bytes_like_objects::copy_into(&target, &data));
            let count = match copied {
                Ok(count) => count,
                Err(error) => {
                    drop((data, inside));
                    return BaseTransport::fatal(base, error, GET_BUFFER_FAILED);
                }
            };
            let rest = data.into_rest(count);
            let waits = !rest.is_empty();
            if waits {
                this.command(py, |engine| engine.transports().put_back(key, rest))?;
            }
            if !Self::notify_filled(base, &protocol, inside, count)? {
                return Ok(());
            }
            let Some(rest) = Self::take_waiting(this, py, waits)? else {
                return Ok(());
            };
            data = rest;
        }
        Ok(())
    }

    /// Takes back the bytes that wait in the engine, if the transport is still reading.
    fn take_waiting(
        base: &BaseTransport,
        py: Python<'_>,
        waits: bool,
    ) -> PyResult<Option<StreamBytes>> {
        match base.key(py).filter(|_| waits) {
            Some(key) => base.command(py, |engine| engine.transports().take_back(key)),
            None => Ok(None),
        }
    }

    /// True if the engine's next event is more data of this stream.
    fn data_follows(base: &BaseTransport, py: Python<'_>) -> PyResult<bool> {
        match base.key(py) {
            Some(key) => base.command(py, |engine| engine.next_is_data_of(key)),
            None => Ok(false),
        }
    }

    pub fn eof_received(base: &Bound<'_, BaseTransport>) -> PyResult<()> {
        let py = base.py();
        BaseTransport::log_debug(base, "%r received EOF")?;
        let Some((protocol, inside)) = base.get().enter(py)? else {
            return Ok(());
        };
        let keep_open = protocol
            .call_method0(intern!(py, "eof_received"))
            .and_then(|keep_open| keep_open.is_truthy());
        match keep_open {
            Ok(true) => Ok(()),
            Ok(false) => BaseTransport::close(base),
            Err(error) => {
                drop(inside);
                let message = "Fatal error: protocol.eof_received() call failed.";
                BaseTransport::fatal(base, error, message)
            }
        }
    }

    pub fn failed(base: &Bound<'_, BaseTransport>, side: Direction, errno: Errno) -> PyResult<()> {
        let message = match side {
            Direction::Read => "Fatal read error on socket transport",
            Direction::Write => "Fatal write error on socket transport",
        };
        BaseTransport::socket_failed(base, errno, message)?;
        match base.get().empty_waiter(base.py()) {
            Some(waiter) if side == Direction::Write => fail_waiter(
                &waiter,
                exception_conversion::os_error(errno)
                    .into_value(base.py())
                    .into_any(),
            ),
            _ => Ok(()),
        }
    }

    pub fn flushed(base: &Bound<'_, BaseTransport>) -> PyResult<()> {
        let py = base.py();
        if let Some(waiter) = base.get().empty_waiter(py)
            && !waiter.call_method0(intern!(py, "done"))?.is_truthy()?
        {
            waiter.call_method1(intern!(py, "set_result"), (py.None(),))?;
        }
        Ok(())
    }
}

fn next_receive(result: Result<usize, &io::Error>) -> NextReceive {
    match result {
        Ok(RECEIVE_MAX) => NextReceive::AfterOthers,
        _ => NextReceive::WhenReadable,
    }
}

thread_local! {
    /// The buffer of `receive_records` and `receive_natively_from`. Empty while it is in use.
    static RECEIVE_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The largest receive in bytes. Blocks below 128 KiB always come from the heap; glibc may map a larger one anew each
/// time.
const RECEIVE_MAX: usize = 120 * 1024;
/// From this size on, a received piece keeps the buffer of [`RECEIVE_MAX`] bytes, of which it then fills at least half.
const LARGE_PIECE: usize = RECEIVE_MAX / 2;
const GET_BUFFER_FAILED: &str = "Fatal error: protocol.get_buffer() call failed.";
