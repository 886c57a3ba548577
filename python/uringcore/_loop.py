"""``UringEventLoop``: the event loop, as far as it differs from asyncio's unix loop class.

Its base classes are the Rust core (:class:`uringcore._uringcore.LoopCore`: scheduling, timers, watchers,
transports), a class for each Python part (``sock_*``, TLS, child processes, signals, debug mode), and then
:class:`asyncio.SelectorEventLoop`. All other methods (happy eyeballs, name lookups, executors) are CPython's
code of the running version, with its behaviour and its newest arguments.

A running loop imports no modules. Since it was made, the program may have changed its root directory or its
user, or used up its descriptors, so that an import would fail.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import errno
import importlib
import logging
import os
import selectors
import socket
import sys
import threading
import weakref
from asyncio import events, format_helpers, trsock
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, cast

from . import _isinstance_classes as _isinstance_classes

# The extension looks these modules up by name while a loop runs, when it must not import anything.
from . import _rust_coroutine_frames as _rust_coroutine_frames
from . import _transport_extra_info as _transport_extra_info
from . import _uringcore
from ._child_processes import ProcessMixin
from ._debug_mode import DebugHandles
from ._fork_handlers import open_loops
from ._overridden_socket_methods import (
    DATAGRAM_METHODS,
    STREAM_METHODS,
    TRANSPORTS_TAKE_A_CONTEXT,
    AsyncioTransports,
    accepts_otherwise,
    are_replaced,
)
from ._read_ahead_sockets import ExclusiveSockets
from ._selector_views import ReadyView, WatchersView
from ._sock_calls import SocketCalls
from ._tls_transports import SSL_HANDSHAKE_TIMEOUT, SSL_SHUTDOWN_TIMEOUT, TlsTransports
from ._unix_signals import SignalMixin

if TYPE_CHECKING:
    import contextvars
    import ssl

    from .quic.configuration import QuicConfiguration

__all__ = ["BACKENDS", "UringEventLoop"]

BACKENDS = ("uring", "epoll")

logger = logging.getLogger("uringcore")
_asyncio_logger = logging.getLogger("asyncio")

_SERVER_KNOWS_ITS_CLIENTS = sys.version_info >= (3, 13)
_TIMEOUTS_OF_A_SERVER = 2 if sys.version_info >= (3, 11) else 1
_ACCEPT_RETRY_SECONDS = 1.0
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_DATAGRAM_FAMILIES = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)

# The modules that `create_quic_endpoint` uses: the first one in each call, the second one to open the
# endpoint.
_QUIC_CONFIGURATION = "uringcore.quic.configuration"
_QUIC_ENDPOINT = "uringcore.quic._open_endpoint"

# The class is read at import, because programs may replace asyncio's name by this loop's class.
_StockLoop = asyncio.SelectorEventLoop
_own_iteration = _uringcore.LoopCore._run_once


class UringEventLoop(  # type: ignore[misc]
    AsyncioTransports,
    ExclusiveSockets,
    SocketCalls,
    TlsTransports,
    ProcessMixin,
    SignalMixin,
    DebugHandles,
    _uringcore.LoopCore,
    asyncio.SelectorEventLoop,
):
    """An asyncio event loop on io_uring, or on epoll where io_uring is not available.

    Args:
        backend: ``"uring"`` or ``"epoll"`` to require one. ``None`` uses the environment variable
            ``URINGCORE_BACKEND`` and, without one, io_uring if this host allows it.
        busy_poll_us: microseconds for which a loop without work polls before it sleeps; at most one second,
            0 for never. ``None`` uses the environment variable ``URINGCORE_BUSY_POLL_US``. Polling
            saves a single request the sleep and the wake-up, tens of microseconds, and keeps the
            processor busy: use it for a loop with a core of its own. Without a number the loop polls
            as long as its recent waits were (25 to 200 microseconds), while polling finds work clearly
            sooner than a sleep would, and hardly polls under constant load. The interpreter lock is
            released meanwhile.

    Raises:
        RuntimeError: ``backend="uring"`` was given and io_uring cannot be set up. The message
            names the cause and the remedy.
        OSError: the process has no descriptor left (``EMFILE``), or epoll cannot be set up.
        ValueError: ``backend`` or ``busy_poll_us`` (or the variable) has another value.
    """

    # A slot for each attribute that asyncio's classes and ours set on a loop. An attribute without a slot
    # would create the instance dictionary, in which each method call would then look first. Only attributes
    # that a program sets create one.
    __slots__ = (
        "_asyncgens",
        "_asyncgens_shutdown_called",
        "_children_starting",
        "_children_waiting",
        "_clock_resolution",
        "_coroutine_origin_tracking_enabled",
        "_coroutine_origin_tracking_saved_depth",
        "_csock",
        "_current_handle",
        "_default_executor",
        "_exception_handler",
        "_executor_shutdown_called",
        "_internal_fds",
        "_listening_sockets",
        "_old_agen_hooks",
        "_own_listeners",
        "_pidfds",
        "_protocol_of_own_socket",
        "_ready",
        "_scheduled",
        "_selector",
        "_signal_handlers",
        "_ssock",
        "_timer_cancelled_count",
        "_transports",
        "_unix_server_sockets",
        "_wakeup_is_ours",
        "_watcher",
        "slow_callback_duration",
    )

    if TYPE_CHECKING:
        # Attributes of asyncio's classes that typeshed omits.
        _csock: socket.socket
        _signal_handlers: dict[int, events.Handle]
        _transports: Any
        _check_closed: Callable[[], None]
        if sys.version_info >= (3, 13):
            _run_forever_setup: Callable[[], None]
            _run_forever_cleanup: Callable[[], None]
        _set_coroutine_origin_tracking: Callable[[bool], None]
        _asyncgen_firstiter_hook: Any
        _asyncgen_finalizer_hook: Any
        _check_running: Callable[[], None]

    # asyncio sends empty datagrams from CPython 3.13 on; older versions drop them silently.
    _sends_empty_datagrams = sys.version_info >= (3, 13)

    def __new__(
        cls, backend: Literal["uring", "epoll"] | None = None, *, busy_poll_us: int | None = None
    ) -> UringEventLoop:
        if busy_poll_us is None:
            busy_poll_us = _busy_poll_from_environment()
        # These imports come before the loop is made, because they trigger garbage collections. A loop that
        # survives more collections than its sockets may be finalised after them.
        _import_late_modules()
        loop = super().__new__(cls, backend or _backend_from_environment(), busy_poll_us)
        return cast(UringEventLoop, loop)

    def __init__(
        self, backend: Literal["uring", "epoll"] | None = None, *, busy_poll_us: int | None = None
    ) -> None:
        self._old_agen_hooks: Any = None
        self._wakeup_is_ours = False
        # `asyncio.SelectorEventLoop` may be this class by now, so the stock class was read at import.
        try:
            _StockLoop.__init__(self, WatchersView(self))
        except BaseException:
            # The wake-up sockets could not be made for lack of descriptors, so the finaliser must close
            # nothing.
            self._closed = True
            self._core_close()
            raise
        self._ready = ReadyView(self)
        self._prepare_children()
        self._listening_sockets: dict[int, socket.socket] = {}
        self._protocol_of_own_socket: asyncio.BaseProtocol | None = None
        self._own_listeners: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        if self._fallback_reason is not None:
            logger.info("io_uring is not available, using epoll: %s", self._fallback_reason)
        else:
            logger.debug("event loop backend: %s", self.backend)
        open_loops.add(self)

    def stats(self) -> dict[str, int]:
        """Counters and gauges of this loop.

        Counters since the loop was made: ``turns`` (iterations); ``syscalls``, of which ``enters`` waited or
        polled for completions; ``submissions`` and ``completions`` of operations; ``rearms`` of
        receives; ``enobufs`` (a receive found no buffer); ``wakes`` by other threads;
        ``bytes_held`` and ``datagrams_held`` (received for paused readers);
        ``quic_connections_opened`` (as a client), ``quic_connections_accepted`` and
        ``quic_connections_closed``; UDP datagrams and bytes of QUIC ``quic_datagrams_received``,
        ``quic_datagrams_sent``, ``quic_bytes_received`` and ``quic_bytes_sent``;
        ``busy_polls`` (work arrived while the loop was polling, see ``busy_poll_us``).

        Gauges: ``ops_in_flight`` (all operations in the kernel) in ``slots`` that grow on
        demand; ``ops`` (operations that a coroutine awaits); receive buffers ``buffers_total``, of
        which ``buffers_out`` hold unread bytes; ``buffers_bytes``, the memory of these buffers,
        and ``memory_bytes``, all memory that the loop shares with the kernel;
        ``write_queue_bytes`` accepted by transports and not yet passed to the kernel; ``backlog_bytes``
        received for paused readers; ``streams``, ``listeners``, ``datagrams``, ``readers`` (one
        is the loop's own), ``writers``, ``quic_endpoints``, ``quic_connections``, ``timers`` and
        ``ready`` callbacks.

        Raises:
            RuntimeError: the loop is closed, or is running in another thread.
        """
        return self._core_stats()

    # Running ------------------------------------------------------------------------------------

    def run_forever(self) -> None:
        """Run until :meth:`stop` is called."""
        # Checked here, because CPython 3.13.0 cleans up after a refused set-up as if the loop had stopped.
        self._check_closed()
        self._check_running()
        self._leave_self_pipe_to_parent()
        try:
            self._run_forever_setup()
            # True unless the program has replaced `_run_once`: bound methods are equal if their functions and
            # objects are identical.
            if self._run_once == _own_iteration.__get__(self):
                self._run_until_stopped()
            else:
                self._run_replaced_iterations()
        finally:
            try:
                self._run_forever_cleanup()
            finally:
                if self._wakeup_is_ours:
                    self._release_wakeup_fd()

    def _run_replaced_iterations(self) -> None:
        self._prepare_to_sleep()
        while True:
            self._run_once()
            if self._stopping:
                return

    if sys.version_info < (3, 13):
        # From CPython 3.13 on asyncio defines these two methods. In earlier versions they are part of its
        # `run_forever`.

        def _run_forever_setup(self) -> None:
            self._set_coroutine_origin_tracking(self._debug)
            self._old_agen_hooks = sys.get_asyncgen_hooks()
            self._thread_id = threading.get_ident()
            sys.set_asyncgen_hooks(
                firstiter=self._asyncgen_firstiter_hook, finalizer=self._asyncgen_finalizer_hook
            )
            events._set_running_loop(self)

        def _run_forever_cleanup(self) -> None:
            self._stopping = False
            self._thread_id = None
            events._set_running_loop(None)
            self._set_coroutine_origin_tracking(False)
            if self._old_agen_hooks is not None:
                sys.set_asyncgen_hooks(*self._old_agen_hooks)
                self._old_agen_hooks = None

    def close(self) -> None:
        """Close the loop for good. Idempotent.

        Raises:
            RuntimeError: the loop is running.
        """
        if self.is_closed():
            return
        super().close()
        open_loops.discard(self)
        self._core_close()

    # Transports ---------------------------------------------------------------------------------

    def _make_socket_transport(
        self,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None = None,
        *,
        extra: dict[str, Any] | None = None,
        server: Any = None,
        context: contextvars.Context | None = None,
    ) -> Any:
        self._ensure_fd_no_transport(sock)
        if are_replaced(sock, STREAM_METHODS):
            options: dict[str, Any] = {"extra": extra, "server": server}
            if TRANSPORTS_TAKE_A_CONTEXT:
                options["context"] = context
            base: Any = super()
            return base._make_socket_transport(sock, protocol, waiter, **options)
        return _uringcore.StreamTransport(self, sock, protocol, waiter, extra, server, context)

    def _make_datagram_transport(
        self,
        sock: socket.socket,
        protocol: asyncio.DatagramProtocol,
        address: Any = None,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> Any:
        self._ensure_fd_no_transport(sock)
        if (
            are_replaced(sock, DATAGRAM_METHODS)
            or sock.type != socket.SOCK_DGRAM
            or sock.family not in _DATAGRAM_FAMILIES
        ):
            # Sockets of other kinds (raw, netlink) use asyncio's transport, on the loop's watchers.
            base: Any = super()
            return base._make_datagram_transport(sock, protocol, address, waiter, extra)
        is_shared = self._is_shared_datagram_socket(protocol)
        return _uringcore.DatagramTransport(
            self, sock, protocol, address, waiter, extra, is_shared=is_shared
        )

    def _start_serving(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        sock: socket.socket,
        sslcontext: ssl.SSLContext | None = None,
        server: Any = None,
        backlog: int = 100,
        ssl_handshake_timeout: float | None = SSL_HANDSHAKE_TIMEOUT,
        ssl_shutdown_timeout: float | None = SSL_SHUTDOWN_TIMEOUT,
        context: contextvars.Context | None = None,
    ) -> None:
        timeouts = (ssl_handshake_timeout, ssl_shutdown_timeout)[:_TIMEOUTS_OF_A_SERVER]
        if server is not None and not getattr(server, "_clients", None):
            # A plain set instead of asyncio's WeakSet, which takes 100 bytes more for each client. The loop
            # removes a transport when it ends. Servers of CPython before 3.13 have no such set; programs that
            # stop a server need it to find connections with an incomplete TLS handshake.
            server._clients = set()
        if accepts_otherwise(sock):
            given = (protocol_factory, sock, sslcontext, server, backlog, *timeouts)
            base: Any = super()
            if TRANSPORTS_TAKE_A_CONTEXT:
                base._start_serving(*given, context=context)
            else:
                base._start_serving(*given)
            return
        tls = None if sslcontext is None else (sslcontext, timeouts)
        # If the object has no descriptor, this raises the ValueError that asyncio raises.
        fd: int = selectors._fileobj_to_fd(sock)  # type: ignore[attr-defined]
        is_shared = self._is_shared_listener(sock)
        self._listen(fd, is_shared, protocol_factory, tls, server, context)
        self._listening_sockets[fd] = sock

    def _stop_serving(self, sock: socket.socket) -> None:
        # The socket is found by identity. If the program has closed it, it has no number any more while the
        # kernel still accepts on it, and its old number may belong to another server.
        fd = next((fd for fd, one in self._listening_sockets.items() if one is sock), None)
        try:
            if fd is not None:
                del self._listening_sockets[fd]
                if not self.is_closed():
                    self._unlisten(fd)
        finally:
            # asyncio's method closes the socket and, from 3.13 on, removes the path of a Unix server.
            base: Any = super()
            base._stop_serving(sock)

    async def _sendfile_native(self, transp: Any, file: Any, offset: int, count: int) -> int:
        # asyncio's method does not undo its first steps if it is cancelled at its first wait
        # (cpython#157025). So this method handles asyncio's own transports, too.
        emptied = transp._make_empty_waiter()
        resume_reading = transp.is_reading()
        transp.pause_reading()
        self._let_others_watch(transp, True)
        try:
            await emptied
            return await self.sock_sendfile(transp._sock, file, offset, count, fallback=False)
        finally:
            self._let_others_watch(transp, False)
            transp._reset_empty_waiter()
            if resume_reading:
                transp.resume_reading()

    def _let_others_watch(self, transport: Any, allowed: bool) -> None:
        """Allows or forbids ``sock_*`` calls and watchers on a transport's descriptor."""
        fd = transport._sock_fd
        if isinstance(transport, _uringcore.BaseTransport):
            self._set_watchable(fd, allowed)
        elif allowed:
            self._transports.pop(fd, None)
        elif not transport.is_closing():
            self._transports[fd] = transport

    # Methods that the core calls ----------------------------------------------------------------

    def _accept_failed(self, fd: int, exc: OSError) -> None:
        sock = self._listening_sockets.get(fd)
        if sock is None:  # the listener was stopped in the meantime
            return
        message = "socket.accept() failed"
        if exc.errno in _OUT_OF_RESOURCES:
            message = "socket.accept() out of system resource"
        shown = trsock.TransportSocket(sock)
        self.call_exception_handler({"message": message, "exception": exc, "socket": shown})
        self.call_later(_ACCEPT_RETRY_SECONDS, self._relisten, fd)

    def _server_attach(self, server: Any, transport: Any) -> None:
        if _SERVER_KNOWS_ITS_CLIENTS:
            server._attach(transport)
        else:
            server._attach()
            if (clients := _clients_of(server)) is not None:
                clients.add(transport)

    def _server_detach(self, server: Any, transport: Any) -> None:
        if _SERVER_KNOWS_ITS_CLIENTS:
            server._detach(transport)
        else:
            if (clients := _clients_of(server)) is not None:
                clients.discard(transport)
            server._detach()

    def _handle_raised(self, handle: Any, exc: BaseException) -> None:
        source = format_helpers._format_callback_source(handle._callback, handle._args or ())
        self.call_exception_handler(
            {"message": f"Exception in callback {source}", "exception": exc, "handle": handle}
        )

    def _report(
        self, message: str, exc: BaseException, transport: Any = None, protocol: Any = None
    ) -> None:
        context: dict[str, Any] = {"message": message, "exception": exc}
        if transport is not None:
            context["transport"] = transport
        if protocol is not None:
            context["protocol"] = protocol
        self.call_exception_handler(context)

    def _log_transport_error(self, transport: Any, message: str, exc: BaseException) -> None:
        _asyncio_logger.debug("%r: %s", transport, message, exc_info=exc)

    def _log_debug(self, message: str, *args: Any) -> None:
        _asyncio_logger.debug(message, *args)

    def _log_warning(self, message: str) -> None:
        _asyncio_logger.warning(message)

    # QUIC ---------------------------------------------------------------------------------------

    async def create_quic_endpoint(
        self,
        protocol_factory: Callable[..., Any],
        local_addr: tuple[str, int] | None = None,
        remote_addr: tuple[str, int] | None = None,
        *,
        configuration: QuicConfiguration,
        sock: socket.socket | None = None,
        **options: Any,
    ) -> tuple[Any, Any]:
        """Open a QUIC endpoint on this loop, as ``create_datagram_endpoint`` opens a UDP one.

        With ``remote_addr`` the endpoint is a client and connects. Without it the endpoint accepts
        connections, and ``protocol_factory`` makes one protocol for each.

        Args:
            protocol_factory: called with the :class:`~uringcore.quic.connection.QuicConnection`.
            local_addr: ``(host, port)`` to bind to.
            remote_addr: ``(host, port)`` to connect to. If a name has several addresses, the endpoint uses
                the first one that completes a handshake, and waits for that.
            configuration: certificates, ALPN, limits.
            sock: an existing UDP socket to use instead of ``local_addr``.

        Returns:
            ``(transport, protocol)``; the protocol is ``None`` for an endpoint that accepts connections.
        """
        from .quic._open_endpoint import create_quic_endpoint

        return await create_quic_endpoint(
            self,
            protocol_factory,
            local_addr=local_addr,
            remote_addr=remote_addr,
            configuration=configuration,
            sock=sock,
            **options,
        )


_uringcore._add_quick_methods(UringEventLoop)


def _clients_of(server: Any) -> set[Any] | None:
    """The set of a server's transports. Server objects that a program has made itself may have none."""
    return getattr(server, "_clients", None)


def _import_late_modules() -> None:
    """Import modules that running loops need and ``import uringcore`` omits, because they take time.

    CPython imports the first two at the first call of an executor, and when a name is first looked up or
    checked against a certificate.
    """
    _import_if_possible("concurrent.futures.thread")
    with contextlib.suppress(ImportError, LookupError, OSError):
        codecs.lookup("idna")
    if _QUIC_CONFIGURATION in sys.modules:
        _import_if_possible(_QUIC_ENDPOINT)


def _import_if_possible(name: str) -> None:
    """Imports a module that the loop can do without: asyncio's code then imports it when it is needed.

    The import fails in a changed root directory, without a free descriptor, and, with a RuntimeError of
    ``concurrent.futures.thread``, after the end of the main thread.
    """
    with contextlib.suppress(ImportError, OSError, RuntimeError):
        importlib.import_module(name)


def _backend_from_environment() -> str | None:
    name = os.environ.get("URINGCORE_BACKEND") or None
    if name not in (None, "auto", *BACKENDS):
        raise ValueError(f"URINGCORE_BACKEND must be 'uring', 'epoll' or 'auto', not {name!r}")
    return name


def _busy_poll_from_environment() -> int | None:
    text = os.environ.get("URINGCORE_BUSY_POLL_US")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(
            f"URINGCORE_BUSY_POLL_US must be a number of microseconds, not {text!r}"
        ) from None
