//! What happens to a stream: engine events into protocol calls, in the transport's context.
//!
//! `dispatch` calls these. What a protocol method raises is reported, and for received data it also
//! ends the connection, as in asyncio.
//!
//! A buffer of the kernel's ring goes back before the callback with its bytes runs: `data_received`,
//! `buffer_updated`, `datagram_received`, those of TLS and QUIC. Only `get_buffer()`, which has to say where the
//! bytes go, and callbacks of OpenSSL's that decrypting calls (a server name at a renegotiation) run while one is out.
//!
//! Calls scheduled by `buffer_updated` may be the ones that empty the buffer, so they run before the next bytes are
//! delivered, as with asyncio, where each receive is a turn of its own (`wait_a_turn`).

use std::cell::Cell;
use std::io;
use std::ops::Deref;
use std::os::fd::RawFd;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use uringcore_engine::{Direction, NextReceive, StreamBytes};
use uringcore_io::{Errno, net};

use super::StreamTransport;
use crate::capi::buffer;
use crate::capi::context::Inside;
use crate::capi::error;
use crate::sock::plain_socket;
use crate::tls::TlsProtocol;
use crate::transport::base::{BaseTransport, Descriptor, Receiver, fail_waiter};

impl StreamTransport {
    pub fn data_received(base: &Bound<'_, BaseTransport>, data: StreamBytes) -> PyResult<()> {
        let py = base.py();
        match base.get().state.with(py, |state| state.receiver) {
            Receiver::Bytes => Self::deliver(base, data),
            Receiver::Buffer => Self::buffer_updated(base, data),
            Receiver::Tls => Self::give_records(base, data, drop),
        }
    }

    /// `give_back` gets the memory of the bytes before Python code runs.
    fn give_records<D: Deref<Target = [u8]>>(
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

    /// The socket has bytes, or has come to its end: they go straight to where the protocol finds them.
    pub fn readable(base: &Bound<'_, BaseTransport>, fd: RawFd) -> PyResult<()> {
        let py = base.py();
        if !Self::still_has(base.get(), py, fd)? {
            // As asyncio, which asks the socket.
            let closed = io::Error::from_raw_os_error(libc::EBADF);
            let next = NextReceive::WhenReadable;
            return Self::note_received(base.get(), py, Err(&closed), next).map(drop);
        }
        match base.get().state.with(py, |state| state.receiver) {
            Receiver::Buffer => return Self::receive_into_buffer(base, fd),
            Receiver::Tls => return Self::receive_records(base, fd),
            Receiver::Bytes => {}
        }
        let received = buffer::received(py, fd, RECEIVE_MAX);
        let received = received.map(|bytes| bytes.into_bound(py));
        let count = received.as_ref().map(|bytes| bytes.as_bytes().len());
        Self::note_received(base.get(), py, count, next_receive(count))?;
        match received {
            Ok(bytes) if bytes.as_bytes().is_empty() => Ok(()),
            Ok(bytes) => Self::give(base, bytes),
            // The engine reports it in its place.
            Err(_) => Ok(()),
        }
    }

    /// The same for TLS: into a buffer of this thread's, from which OpenSSL reads or copies.
    fn receive_records(base: &Bound<'_, BaseTransport>, fd: RawFd) -> PyResult<()> {
        let py = base.py();
        // A callback of OpenSSL's that gets here again finds none, and makes its own.
        let mut records = RECORDS.take();
        let result = net::recv_to(fd, &mut records, RECEIVE_MAX);
        let count = result.as_ref().copied();
        Self::note_received(base.get(), py, count, next_receive(count))?;
        match result {
            Ok(1..) => Self::give_records(base, records, |spent| RECORDS.set(spent)),
            _ => {
                RECORDS.set(records);
                Ok(())
            }
        }
    }

    /// The poll was the stream's, but the receive is by number, and that may be anybody's where a program has
    /// closed its socket under the transport.
    fn still_has(base: &BaseTransport, py: Python<'_>, fd: RawFd) -> PyResult<bool> {
        let socket = base.state.with(py, |state| match &state.descriptor {
            Descriptor::Socket(socket) => Ok(socket.clone_ref(py)),
            Descriptor::Owned(_) => Err(true),
            Descriptor::Gone => Err(false),
        });
        match socket {
            Ok(socket) => plain_socket::stands_for(socket.bind(py), fd),
            Err(known) => Ok(known),
        }
    }

    /// The same for a protocol with a buffer of its own.
    fn receive_into_buffer(base: &Bound<'_, BaseTransport>, fd: RawFd) -> PyResult<()> {
        let (py, this) = (base.py(), base.get());
        let Some((protocol, inside)) = this.enter(py)? else {
            return Ok(());
        };
        let target = protocol.call_method1(intern!(py, "get_buffer"), (-1,));
        let received = match &target {
            // It may have ended the connection.
            _ if this.shared.is_closing() => return Ok(()),
            Ok(target) => buffer::receive_into(target, fd),
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
            Ok(count @ 1..) => Self::filled(base, &protocol, inside, count).map(drop),
            _ => Ok(()),
        };
        let Some(key) = this.key(py).filter(|_| is_followed) else {
            return reported;
        };
        let is_due = this.command(py, |engine| engine.transports().receives_again(key))?;
        match reported {
            // By another protocol, perhaps.
            Ok(()) if is_due => Self::readable(base, fd),
            reported => reported,
        }
    }

    /// So much stands in the buffer that the protocol gave. True if it took that without an error.
    ///
    /// What it schedules then may be to empty the buffer, and comes before what it gets next.
    fn filled(
        base: &Bound<'_, BaseTransport>,
        protocol: &Bound<'_, PyAny>,
        inside: Inside<'_>,
        count: usize,
    ) -> PyResult<bool> {
        let (py, this) = (base.py(), base.get());
        let before = this.scheduled(py);
        let called = protocol.call_method1(intern!(py, "buffer_updated"), (count,));
        drop(inside);
        if this.scheduled(py) > before
            && let Some(key) = this.key(py)
        {
            this.command(py, |engine| engine.transports().wait_a_turn(key))?;
        }
        let took = called.is_ok();
        let message = "Fatal error: protocol.buffer_updated() call failed.";
        Self::end_if_failed(base, called, message).map(|()| took)
    }

    /// What a method of the protocol raised when it was given bytes ends the connection.
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

    /// Tells the engine what came of a receive; it says in an event what the protocol is to hear besides. True
    /// if another one follows at once.
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
        // The kernel's buffer goes back before Python code runs.
        drop(data);
        Self::give(base, bytes)
    }

    fn give(base: &Bound<'_, BaseTransport>, bytes: Bound<'_, PyBytes>) -> PyResult<()> {
        let py = base.py();
        let Some((protocol, inside)) = base.get().enter(py)? else {
            return Ok(());
        };
        let called = protocol.call_method1(intern!(py, "data_received"), (bytes,));
        drop(inside);
        let message = "Fatal error: protocol.data_received() call failed.";
        Self::end_if_failed(base, called, message)
    }

    /// One call of get_buffer() and buffer_updated() after the other, until the chunk is used up.
    /// With asyncio each is a turn of its own, so what the protocol does in between has its effect
    /// on the rest: it may pause, close, hand over to another protocol, or run the loop's next turns.
    ///
    /// The kernel's buffer is out while get_buffer() says where its bytes shall go, and goes back before
    /// anybody is told of them: what a small buffer left over waits in the engine meanwhile.
    fn buffer_updated(base: &Bound<'_, BaseTransport>, mut data: StreamBytes) -> PyResult<()> {
        let py = base.py();
        let this = base.get();
        while !data.is_empty() {
            let (receiver, key) = this.state.with(py, |state| (state.receiver, state.key));
            let (false, Some(key)) = (this.shared.is_closing(), key) else {
                return Ok(());
            };
            if receiver != Receiver::Buffer {
                return Self::deliver(base, data);
            }
            let Some((protocol, inside)) = this.enter(py)? else {
                return Ok(());
            };
            let copied = protocol
                .call_method1(intern!(py, "get_buffer"), (-1,))
                .and_then(|target| buffer::copy_into(&target, &data));
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
            if !Self::filled(base, &protocol, inside, count)? {
                return Ok(());
            }
            let Some(rest) = Self::take_back(this, py, waits)? else {
                return Ok(());
            };
            data = rest;
        }
        Ok(())
    }

    /// What waits for its reader, if there is any left, and it still reads.
    fn take_back(
        base: &BaseTransport,
        py: Python<'_>,
        waits: bool,
    ) -> PyResult<Option<StreamBytes>> {
        match base.key(py).filter(|_| waits) {
            Some(key) => base.command(py, |engine| engine.transports().take_back(key)),
            None => Ok(None),
        }
    }

    /// True if the next event of the engine is more data of this stream.
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
                error::os_error(errno).into_value(base.py()).into_any(),
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
        Ok(RECEIVE_MAX) => NextReceive::InTurn,
        _ => NextReceive::WhenReadable,
    }
}

thread_local! {
    /// What [`StreamTransport::receive_records`] receives into, empty while it is in use.
    static RECORDS: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A block of less than 128 KiB comes from the heap, whatever the C library has learned; a larger one may be
/// mapped anew each time.
const RECEIVE_MAX: usize = 120 * 1024;
const GET_BUFFER_FAILED: &str = "Fatal error: protocol.get_buffer() call failed.";
