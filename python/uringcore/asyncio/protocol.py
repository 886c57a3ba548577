"""``QuicConnectionProtocol``: the base class of programs' protocols.

``_stream_transport`` has the transports of its streams.

Two features are new compared with aioquic: flow control in both directions (``writer.drain()`` waits until
the send queue has fallen, and a slow reader stops the peer), and ``wait_connected`` raises the cause of a
failed connection. Packets are handled elsewhere.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, cast

from uringcore._uringcore import LoopCore
from uringcore.asyncio._held_first_flight import FirstFlight
from uringcore.asyncio._stream_transport import QuicStreamAdapter, StreamFlow
from uringcore.quic import events
from uringcore.quic._client_migration import DriverSockets
from uringcore.quic._close_argument_checks import check_code, check_reason
from uringcore.quic._connection_lifecycle import ConnectionLife
from uringcore.quic._endpoint_transport import QuicTransport
from uringcore.quic._errors import error_from_event
from uringcore.quic._foreign_loops import ForeignDriver, OwnConnection
from uringcore.quic.connection import NetworkAddress, QuicConnection
from uringcore.quic.packet import QuicErrorCode
from uringcore.quic.stats import QuicConnectionStats

__all__ = [
    "QuicConnectionIdHandler",
    "QuicConnectionProtocol",
    "QuicStreamAdapter",
    "QuicStreamHandler",
]

QuicConnectionIdHandler = Callable[[bytes], None]
QuicStreamHandler = Callable[
    [asyncio.StreamReader, asyncio.StreamWriter], "Coroutine[Any, Any, None] | None"
]


class _Life(ConnectionLife):
    """The lifecycle of a protocol's connection. It sends by the protocol's ``transmit``, because programs
    override that method."""

    __slots__ = ("_protocol",)

    def __init__(self, quic: QuicConnection, protocol: QuicConnectionProtocol) -> None:
        super().__init__(quic)
        # This reference forms a cycle. It is removed when the connection ends, because nothing is sent
        # afterwards.
        self._protocol: QuicConnectionProtocol | None = protocol

    def transmit(self) -> None:
        if self._protocol is not None:
            self._protocol.transmit()

    def terminated(self, event: events.ConnectionTerminated) -> None:
        super().terminated(event)
        self._protocol = None


class QuicConnectionProtocol(asyncio.DatagramProtocol):
    """The protocol of one QUIC connection. Override :meth:`quic_event_received` to handle the connection's
    events."""

    # aioquic's hooks.
    _connection_id_issued_handler: QuicConnectionIdHandler = staticmethod(lambda c: None)
    _connection_id_retired_handler: QuicConnectionIdHandler = staticmethod(lambda c: None)
    _connection_terminated_handler: Callable[[], None] = staticmethod(lambda: None)

    def __init__(
        self, quic: QuicConnection, stream_handler: QuicStreamHandler | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._quic = quic
        self._life = _Life(quic, self)
        self._transport: asyncio.BaseTransport | None = None
        self._drain_waiters: dict[int | None, list[asyncio.Future[None]]] = {}
        self._streams: dict[int, QuicStreamAdapter] = {}
        self._stream_handler = stream_handler
        self._tasks: set[asyncio.Task[None]] = set()
        self._first_flight: FirstFlight | None = None
        quic._set_receiver(self._quic_events_received)
        quic._is_on_socket = True
        if type(self).transmit is not QuicConnectionProtocol.transmit:
            # aioquic also calls `transmit` after it has handled received datagrams, and programs override it
            # to act at that moment. So an override is called after each batch of events.
            quic._set_on_batch(self)

    # Commands -----------------------------------------------------------------------------------

    def change_connection_id(self) -> None:
        """Switches to another connection ID of the peer."""
        self._quic.change_connection_id()
        self.transmit()

    def close(self, error_code: int = QuicErrorCode.NO_ERROR, reason_phrase: str = "") -> None:
        """Closes the connection with an application's error code and a reason.

        Queued data that is not sent yet is dropped: await ``writer.wait_closed()`` first, or
        :meth:`drain` and the peer's answer.

        Raises ``ValueError`` for a code that does not fit in 62 bits, and does not close then.
        """
        check_code(error_code, "error_code")
        check_reason(reason_phrase, "reason_phrase")
        if self._quic._is_started:
            self._quic.close(error_code=error_code, reason_phrase=reason_phrase)
            self.transmit()
        elif not self._life.is_closed:
            event = events.ConnectionTerminated(
                error_code=error_code, frame_type=None, reason_phrase=reason_phrase
            )
            self._quic_events_received([event])

    def connect(self, addr: NetworkAddress, transmit: bool = True) -> None:
        """Begins the TLS handshake with ``addr``, an ``(ip, port)`` tuple. Clients only, once.

        With ``transmit=False`` nothing is sent before the first :meth:`transmit`; see
        :func:`~uringcore.asyncio.connect`.
        """
        self._quic.connect(addr, now=self._loop.time())
        if transmit:
            self.transmit()
        else:
            self._first_flight = FirstFlight(self._loop, self._quic, self.transmit)

    async def create_stream(
        self, is_unidirectional: bool = False
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Opens a stream and returns its reader and writer.

        The stream ID is allocated at once, so two calls in a row give two streams.
        """
        stream_id = self._quic.get_next_available_stream_id(is_unidirectional=is_unidirectional)
        self._quic.send_stream_data(stream_id, b"")
        return self._create_stream(stream_id)

    async def drain(self, stream_id: int | None = None) -> None:
        """Waits if ``send_buffer_high`` bytes or more are queued on the stream, until at most
        ``send_buffer_low`` are left. Bytes stay queued while the peer gives no credit for them.

        Without ``stream_id`` it waits for all streams together, and for DATAGRAM frames, which may
        fill half of their queue of 1 MiB.

        Raises ``ConnectionResetError`` if either side resets the stream meanwhile, or the
        connection ends.
        """
        if self._life.is_closed:
            raise ConnectionResetError("the connection is closed") from self._life.error()
        self._begin()
        is_full = self._quic._is_full if stream_id is None else self._is_stream_full(stream_id)
        if not is_full:
            return
        waiter = self._loop.create_future()
        waiters = self._drain_waiters.setdefault(stream_id, [])
        waiters.append(waiter)
        try:
            await waiter
        finally:
            # A waiter that was woken is in the list no more, and a cancelled one is removed here.
            waiters.remove(waiter)
            if not waiters and self._drain_waiters.get(stream_id) is waiters:
                del self._drain_waiters[stream_id]

    def _is_stream_full(self, stream_id: int) -> bool:
        queued = self._quic.get_send_buffer_size(stream_id)
        return queued >= self._quic.configuration.send_buffer_high

    def get_send_buffer_size(self, stream_id: int) -> int:
        """The number of bytes that wait to be sent on the stream, before the congestion window."""
        return self._quic.get_send_buffer_size(stream_id)

    def set_stream_priority(self, stream_id: int, urgency: int, incremental: bool = False) -> None:
        """Sets the priority of a stream, in the terms of RFC 9218.

        ``urgency`` is 0 to 7, the lowest first, strictly. Streams of one urgency are served in the
        order of their IDs, before ``incremental`` ones, which are sent round robin. By default a stream has
        urgency 3 and shares.

        An urgent stream waits for no more than the bytes in the congestion window at the time of
        the write. Raises ``ValueError`` for another urgency, or a receive-only stream.
        """
        self._quic.set_stream_priority(stream_id, urgency, incremental)
        # A priority alone does not send first packets that wait for the program's data.
        if self._first_flight is None:
            self.transmit()

    async def migrate(
        self, local_addr: NetworkAddress | None = None, *, timeout: float = 3.0
    ) -> None:
        """Moves the connection to another network: to a new socket bound to ``local_addr``, an
        ``(ip, port)`` tuple, or to an address that the system chooses. Clients only, on any loop.

        Returns when packets of the server have arrived there. If none do within ``timeout``
        seconds (RFC 9000 section 8.2.4 recommends three probe timeouts of a new path,
        3 seconds) the connection returns to its old path and ``TimeoutError`` is raised.

        Raises ``RuntimeError`` on a server, if the server forbids it
        (``disable_active_migration``) or has provided no spare connection ID, and if another
        migration is under way; ``OSError`` if ``local_addr`` cannot be bound;
        :class:`~uringcore.quic.QuicConnectionError` if the connection ends.
        """
        await self.wait_connected()
        await self._life.migrate(local_addr, timeout)

    def request_key_update(self) -> None:
        """Changes the encryption keys (RFC 9001 section 6).

        It happens as soon as the peer has confirmed the keys of an earlier update.
        """
        self._quic.request_key_update()
        self.transmit()

    async def ping(self) -> None:
        """Pings the peer and waits for the acknowledgement.

        Raises :class:`~uringcore.quic.QuicConnectionError` if the connection ends first.
        """
        await self._life.ping()

    def stats(self) -> QuicConnectionStats:
        """Returns counters and estimates of the connection; see :class:`QuicConnectionStats`."""
        return cast(QuicConnectionStats, self._quic.stats())

    def transmit(self) -> None:
        """Sends queued data. On uringcore's loop that happens at the end of each iteration, and this
        call sends sooner only in long iterations.

        If a program overrides it, the override is also called after the events of a batch of datagrams, and
        after a timer.
        """
        if self._first_flight is not None:
            first, self._first_flight = self._first_flight, None
            first.release()
        self._life.flush()

    async def wait_closed(self) -> None:
        """Waits until the connection is closed. Never raises, however it ended."""
        self._begin()
        await self._life.wait_ended()

    async def wait_connected(self) -> None:
        """Waits until the TLS handshake is complete.

        Raises the cause of a failure as soon as it is detected:
        :class:`~uringcore.quic.QuicCertificateError`,
        :class:`~uringcore.quic.QuicAlpnError`,
        :class:`~uringcore.quic.QuicConnectionRefusedError`, or another
        :class:`~uringcore.quic.QuicConnectionError`.
        """
        self._life.raise_if_closed()
        self._begin()
        await self._life.wait_connected()

    # Called by the transport --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called with the connection's transport. An override must call this method."""
        self._transport = transport
        flush = getattr(transport, "flush", None)
        if flush is not None:
            sockets = transport if isinstance(transport, QuicTransport) else None
            self._life.opened(sockets, None if isinstance(self._loop, LoopCore) else flush)
        else:
            # The transport is the program's own UDP transport, whose datagrams pass through Python code.
            is_connected = transport.get_extra_info("peername") is not None
            driver = ForeignDriver(self._loop, OwnConnection(self._quic, is_connected))
            driver.connection_made(transport)
            self._own_driver = driver
            self._life.opened(DriverSockets(self._loop, driver), driver.flush)

    def datagram_received(self, data: bytes, addr: NetworkAddress) -> None:
        """Handles a datagram for a connection on a plain UDP transport."""
        self._own_driver.datagram_received(data, addr)

    def error_received(self, exc: Exception) -> None:
        """Handles a network error about a datagram on a plain UDP transport."""
        self._own_driver.error_received(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called once when the connection has ended for any reason, after ``ConnectionTerminated``.

        ``exc`` is ``None`` if a program on either side closed it, with any code, and else the
        error. On a program's own UDP transport the transport calls this.
        """
        if isinstance(self._life.sockets, DriverSockets):
            self._own_driver.connection_lost(exc)

    # Methods to override -------------------------------------------------------------------------

    def quic_event_received(self, event: events.QuicEvent) -> None:
        """Called for each event. The default feeds the readers of streams.

        Exceptions go to the loop's exception handler; later events still arrive.
        """
        if isinstance(event, events.StreamDataReceived):
            adapter = self._streams.get(event.stream_id)
            if adapter is None:
                # Without a handler nothing would reference the writer, and a StreamWriter that is
                # garbage-collected ends its stream. So no writer is made.
                if self._stream_handler is None:
                    return
                reader, writer = self._create_stream(event.stream_id)
                adapter = self._streams[event.stream_id]
                self._call_stream_handler(reader, writer)
            adapter.data_received(event.data, event.end_stream)
        elif isinstance(event, events.StreamReset):
            adapter = self._streams.get(event.stream_id)
            if adapter is not None:
                code = event.error_code
                adapter.read_failed(ConnectionResetError(f"the peer reset the stream: {code:#x}"))
        elif isinstance(event, events.ConnectionTerminated):
            for adapter in list(self._streams.values()):
                # A close with NO_ERROR, by the application or by QUIC, is an orderly end.
                if event.error_code == 0:
                    adapter.read_ended()
                else:
                    adapter.read_failed(error_from_event(event))

    # aioquic's private names ----------------------------------------------------------------------

    @functools.cached_property
    def _closed(self) -> asyncio.Event:
        """Set when the connection has ended. Created on first use: few programs need it."""
        closed = asyncio.Event()
        if self._life.is_closed:
            closed.set()
        return closed

    @property
    def _connected(self) -> bool:
        """True if the handshake was completed."""
        return self._life.completed is not None

    @property
    def _connected_waiter(self) -> asyncio.Future[None] | None:
        """Returns the oldest future that waits for the handshake."""
        return self._life.handshake_waiter()

    @property
    def _stream_readers(self) -> dict[int, asyncio.StreamReader]:
        """The readers of open streams, by stream ID."""
        found = {number: adapter.reader for number, adapter in self._streams.items()}
        return {number: reader for number, reader in found.items() if reader is not None}

    # Inside -------------------------------------------------------------------------------------

    def _quic_events_received(self, received: list[events.QuicEvent]) -> None:
        """Handles the events of one loop iteration."""
        trace = self._quic._quic_logger
        for event in received:
            try:
                if trace is not None:
                    self._quic._log(event)
                kind = type(event)
                if kind is not _STREAM_DATA and (handle := _HANDLERS.get(kind)) is not None:
                    handle(self, event)
                self.quic_event_received(event)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as exc:  # noqa: BLE001 - the program's code may raise anything
                self._report("Exception in quic_event_received", exc)
        if self._life.is_closed:
            # This breaks the reference cycle between the connection and this object.
            self._quic._set_receiver(None)
            self._quic._set_on_batch(None)
            self._streams.clear()
            if not isinstance(self._life.sockets, DriverSockets):
                error = self._life.error()
                is_closed = error.frame_type is None or error.error_code == 0
                self._loop.call_soon(self.connection_lost, None if is_closed else error)

    def _begin(self) -> None:
        """Sends first packets that are held back, because the caller is about to wait for the peer."""
        if self._first_flight is not None:
            self.transmit()

    def _stream_writable(self, event: events.StreamWritable) -> None:
        self._wake_drainers(event.stream_id, None)

    def _connection_writable(self, event: events.ConnectionWritable) -> None:
        self._wake_drainers(None, None)

    def _stream_finished(self, event: events.StreamFinished) -> None:
        adapter = self._streams.get(event.stream_id)
        if adapter is not None:
            adapter.write_finished()

    def _stream_stopped(self, event: events.StopSendingReceived) -> None:
        self._write_failed(event.stream_id, f"the peer stopped the stream: {event.error_code:#x}")

    def _stream_abandoned(self, event: events.StreamAbandoned) -> None:
        # The stream was reset on this side: by the program, an abort() of another task, or the HTTP layer.
        self._write_failed(event.stream_id, f"stream {event.stream_id} was reset")

    def _write_failed(self, stream_id: int, reason: str) -> None:
        reset = ConnectionResetError(reason)
        self._wake_drainers(stream_id, reset)
        adapter = self._streams.get(stream_id)
        if adapter is not None:
            adapter.write_failed(reset)

    def _terminated(self, event: events.ConnectionTerminated) -> None:
        self._life.terminated(event)
        self._quic._note_close(event, is_pending=False)
        reason = str(self._life.error())
        for stream_id in list(self._drain_waiters):
            self._wake_drainers(stream_id, ConnectionResetError(reason))
        for adapter in list(self._streams.values()):
            adapter.write_failed(ConnectionResetError(reason))
        if "_closed" in self.__dict__:
            self._closed.set()
        self._connection_terminated_handler()

    def _wake_drainers(self, stream_id: int | None, error: Exception | None) -> None:
        for waiter in list(self._drain_waiters.pop(stream_id, ())):
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    def _create_stream(self, stream_id: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not self._streams:
            self._quic._notify_finished()
        adapter = QuicStreamAdapter(self, stream_id)
        self._streams[stream_id] = adapter
        reader = asyncio.StreamReader(limit=_READER_LIMIT, loop=self._loop)
        # StreamReader pauses this transport when it holds twice its limit, and resumes it at the limit.
        reader.set_transport(adapter)
        if not self._quic._stream_can_receive(stream_id):
            reader.feed_eof()
            adapter.reading = False
        adapter.reader = reader
        # StreamWriter uses only `_drain_helper` and `_get_close_waiter` of its protocol.
        flow = cast(asyncio.StreamReaderProtocol, StreamFlow(adapter))
        writer = asyncio.StreamWriter(adapter, flow, reader, self._loop)
        return reader, writer

    def _call_stream_handler(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._stream_handler is None:
            return
        result = self._stream_handler(reader, writer)
        if asyncio.iscoroutine(result):
            task = self._loop.create_task(result)
            self._tasks.add(task)
            task.add_done_callback(self._stream_handler_done)

    def _stream_handler_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            exc = task.exception()
            if exc is not None:
                self._report("Unhandled exception in a QUIC stream handler", exc)

    def _report(self, message: str, exc: BaseException) -> None:
        context = {"message": message, "exception": exc, "protocol": self}
        if self._transport is not None:
            context["transport"] = self._transport
        self._loop.call_exception_handler(context)


# The class of the most frequent events, which have no handler.
_STREAM_DATA = events.StreamDataReceived
# The handler of each event class, which runs before the program's. DATAGRAM frames have none, either. A
# chain of `isinstance` would cost more for them than all other Python code.
_HANDLERS: dict[type[events.QuicEvent], Callable[[QuicConnectionProtocol, Any], None]] = {
    events.StreamWritable: QuicConnectionProtocol._stream_writable,
    events.ConnectionWritable: QuicConnectionProtocol._connection_writable,
    events.StreamFinished: QuicConnectionProtocol._stream_finished,
    events.StopSendingReceived: QuicConnectionProtocol._stream_stopped,
    events.StreamAbandoned: QuicConnectionProtocol._stream_abandoned,
    events.HandshakeCompleted: lambda protocol, event: protocol._life.handshake_completed(event),
    events.PingAcknowledged: lambda protocol, event: protocol._life.ping_acknowledged(event),
    events.MigrationFinished: lambda protocol, event: protocol._life.migration_finished(event),
    events.ConnectionTerminated: QuicConnectionProtocol._terminated,
    events.ConnectionIdIssued: lambda protocol, event: protocol._connection_id_issued_handler(
        event.connection_id
    ),
    events.ConnectionIdRetired: lambda protocol, event: protocol._connection_id_retired_handler(
        event.connection_id
    ),
}

_READER_LIMIT = 256 * 1024
