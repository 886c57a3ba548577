"""WSGI applications (PEP 3333) such as those of Flask and Django, as ASGI applications.

Each request runs on a thread of a bounded pool; further requests wait for a thread. The thread and the
task of the request alternate: the thread requests one step (more of the request's content, or sending a
part of the response) and waits until the task has done it. So the content of both directions is streamed,
with the backpressure of ``receive`` and ``send``.

A file that ``wsgi.file_wrapper`` wraps is sent by the server (``http.response.zerocopysend``). When the
client has gone, the next step raises :class:`ClientDisconnectedError` in the application; code that takes
no step cannot be interrupted.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import io
import logging
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from uvicorn.middleware.asgi2 import ASGI2Middleware
from uvicorn.middleware.message_logger import MessageLoggerMiddleware
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.middleware.wsgi import WSGIMiddleware  # type: ignore[attr-defined]

from uringcore.server._wsgi_environ import environ_of
from uringcore.server._wsgi_thread_pool import WorkerThreads

__all__ = ["ClientDisconnectedError", "FileWrapper", "WSGIApplication", "is_wsgi", "use_wsgi"]

BLOCK_BYTES = 64 * 1024

HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "upgrade"})
"""Fields that the server decides about. An application must not send them (PEP 3333)."""


logger = logging.getLogger("uvicorn.error")


class ClientDisconnectedError(ConnectionError):
    """The client has gone, or its request was ended."""


def is_wsgi(application: Any) -> bool:
    """True if an application is called as ``application(environ, start_response)``."""
    try:
        parameters = inspect.signature(application).parameters.values()
    except (TypeError, ValueError):
        return False
    required = [
        one
        for one in parameters
        if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    return len(required) == 2


def use_wsgi(config: Any, *, max_threads: int) -> None:
    """Replaces uvicorn's adapter for WSGI in a configuration whose application is imported.

    With ``interface="auto"`` uvicorn takes an application that is no coroutine function for one of ASGI
    2, which is called with the scope alone.
    """
    outer, found = None, config.loaded_app
    while isinstance(found, ProxyHeadersMiddleware | MessageLoggerMiddleware):
        outer, found = found, found.app
    if type(found) is WSGIMiddleware:
        application: Any = found.app
    elif type(found) is ASGI2Middleware and is_wsgi(found.app):
        application = found.app
    else:
        return
    multiprocess = config.workers > 1
    ours = WSGIApplication(application, max_threads=max_threads, multiprocess=multiprocess)
    if outer is None:
        config.loaded_app = ours
    else:
        outer.app = ours
    loaded = config.loaded_app
    if type(loaded) is MessageLoggerMiddleware:
        config.loaded_app = KnownClients(loaded)
    elif type(loaded) is ProxyHeadersMiddleware and type(loaded.app) is MessageLoggerMiddleware:
        loaded.app = KnownClients(loaded.app)
    config.interface = "wsgi"
    config.ws_protocol_class = None
    # Sessions need ASGI.
    config.http3_webtransport = False


CLIENT: contextvars.ContextVar[Any] = contextvars.ContextVar("CLIENT", default=None)
"""The server's object of the request, in the task of a request that :class:`KnownClients` has seen."""


class KnownClients:
    """Keeps the server's object of each request for :class:`Exchange`: uvicorn's log of messages (level
    ``trace``), which is inside of this middleware, replaces ``receive``."""

    def __init__(self, application: Any) -> None:
        self.app = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Runs as an ASGI application."""
        token = CLIENT.set(getattr(receive, "__self__", None))
        try:
            await self.app(scope, receive, send)
        finally:
            CLIENT.reset(token)


def log_late(error: BaseException | None) -> None:
    """Logs an exception of an application whose request was cancelled before."""
    if error is not None and not isinstance(error, ClientDisconnectedError):
        logger.error(
            "Exception in a WSGI application after its request was cancelled\n", exc_info=error
        )


class FileWrapper:
    """``wsgi.file_wrapper``: an open file as content of a response."""

    def __init__(self, filelike: Any, block_size: int = BLOCK_BYTES) -> None:
        self.filelike = filelike
        self._block_size = block_size

    def __iter__(self) -> Iterator[bytes]:
        while block := self.filelike.read(self._block_size):
            yield block

    def close(self) -> None:
        if hasattr(self.filelike, "close"):
            self.filelike.close()


def plain_file(file: Any) -> io.FileIO | io.BufferedReader | io.BufferedRandom | None:
    """Returns the object of :mod:`io` that reads exactly the bytes of a descriptor; ``None`` for others, such
    as ``GzipFile``, whose ``fileno`` is that of the compressed file."""
    if isinstance(file, tempfile._TemporaryFileWrapper):
        file = file.file
    raw = file.raw if type(file) in (io.BufferedReader, io.BufferedRandom) else file
    return file if type(raw) is io.FileIO else None


class WSGIApplication:
    """An ASGI application that runs a WSGI application on at most ``max_threads`` threads."""

    def __init__(self, application: Any, *, max_threads: int, multiprocess: bool) -> None:
        self._application = application
        self._max_threads = max_threads
        self._multiprocess = multiprocess
        self._threads: WorkerThreads | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Runs as an ASGI application."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
            return
        if scope["type"] != "http":
            raise RuntimeError(f"WSGI serves HTTP requests, not {scope['type']!r}")
        threads = self._threads
        if threads is None or threads.loop is not asyncio.get_running_loop():
            # The server has no lifespan, and serves for the first time in this loop.
            threads = self._renew_threads()
        await threads.permits.acquire()
        try:
            exchange = Exchange(scope, receive, send, self._application, threads.permits.release)
            if exchange.client_has_gone:
                # It has left while its request waited for a thread.
                threads.permits.release()
                return
            exchange.environ = environ_of(
                scope, exchange.stream, FileWrapper, multiprocess=self._multiprocess
            )
            exchange.start(threads)
        except BaseException:
            # From its start on, the exchange releases the permit.
            threads.permits.release()
            raise
        await exchange.run()

    def _renew_threads(self) -> WorkerThreads:
        if self._threads is not None:
            self._threads.close()
        self._threads = WorkerThreads(self._max_threads)
        return self._threads

    async def _lifespan(self, receive: Any, send: Any) -> None:
        while True:
            kind = (await receive())["type"]
            if kind == "lifespan.startup":
                # A server may serve again, in another loop.
                self._renew_threads()
            await send({"type": kind + ".complete"})
            if kind == "lifespan.shutdown":
                if self._threads is not None:
                    self._threads.close()
                return


class Stream(io.RawIOBase):
    """The content of a request, for the thread."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._rest = memoryview(b"")
        self._has_ended = False

    def readable(self) -> bool:
        """True: the stream is for reading."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Waits for content, and copies a part of it to ``buffer``."""
        while not self._rest and not self._has_ended:
            message = self._exchange.step("receive", None)
            if message["type"] == "http.disconnect":
                raise ClientDisconnectedError("the client has gone before its request was complete")
            self._rest = memoryview(message.get("body", b""))
            self._has_ended = not message.get("more_body", False)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


class Exchange:
    """One request and its response, between the task and the thread.

    The thread calls :meth:`step`; everything else of the loop's side runs in the task.
    """

    def __init__(
        self, scope: Any, receive: Any, send: Any, application: Any, release: Callable[[], None]
    ) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._application = application
        self._release = release
        self._loop = asyncio.get_running_loop()
        self.stream = io.BufferedReader(Stream(self), BLOCK_BYTES)
        self.environ: dict[str, Any] = {}
        # The step that the thread has requested, and its result.
        self._requested: asyncio.Future[tuple[str, Any]] = self._loop.create_future()
        self._answer: Any = None
        self._error: BaseException | None = None
        self._answered = threading.Semaphore(0)
        self._is_over = False
        # The server's object of the request. Its attribute `disconnected` becomes true when the client has
        # gone, although content of the request is unread.
        client = CLIENT.get() or getattr(receive, "__self__", None)
        self._client = client if hasattr(client, "disconnected") else None
        # The response, on the thread.
        self._head: dict[str, Any] | None = None
        self._is_begun = False

    # In the task

    @property
    def client_has_gone(self) -> bool:
        """True if the client has gone, as far as the server's object of the request is available."""
        return self._client is not None and bool(self._client.disconnected)

    def start(self, threads: WorkerThreads) -> None:
        """Runs the application on a thread, which releases the permit at its end."""
        context = contextvars.copy_context()
        threads.submit(lambda: context.run(self._work))

    async def run(self) -> None:
        """Does the steps of the application, until it has ended."""
        try:
            while True:
                kind, value = await self._requested
                self._requested = self._loop.create_future()
                if kind == "end":
                    if isinstance(value, ClientDisconnectedError):
                        return
                    if value is not None:
                        raise value
                    return
                try:
                    self._answer = await self._do(kind, value)
                except Exception as error:  # noqa: BLE001 - raised in the application's thread
                    self._error = error
                self._answered.release()
        finally:
            # The thread may be waiting for a step, or request another one.
            self._is_over = True
            self._error = ClientDisconnectedError("the request was ended")
            self._answered.release()
            if self._requested.done() and not self._requested.cancelled():
                # The request was cancelled in the loop iteration in which the application has ended.
                kind, value = self._requested.result()
                if kind == "end":
                    log_late(value)

    async def _do(self, kind: str, value: Any) -> Any:
        if kind == "receive":
            return await self._receive()
        if self.client_has_gone:
            # `send` does nothing then, so the application would go on without an end.
            raise ClientDisconnectedError("the client has gone")
        for message in value:
            await self._send(message)
        return None

    # On the thread

    def step(self, kind: str, value: Any) -> Any:
        """Has the task do a step, and waits for its result."""
        if self._is_over:
            raise ClientDisconnectedError("the request was ended")
        try:
            self._loop.call_soon_threadsafe(self._request, kind, value)
        except RuntimeError:
            raise ClientDisconnectedError("the server has ended") from None
        self._answered.acquire()
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._answer

    def _request(self, kind: str, value: Any) -> None:
        if not self._requested.done():
            self._requested.set_result((kind, value))

    def _work(self) -> None:
        error: BaseException | None = None
        try:
            result = self._application(self.environ, self._start_response)
            try:
                self._respond(result)
            finally:
                if hasattr(result, "close"):
                    result.close()
        except BaseException as raised:  # noqa: BLE001 - raised in the task
            error = raised
        finally:
            try:
                self._loop.call_soon_threadsafe(self._end, error)
            except RuntimeError:
                self._release_nothing()

    def _release_nothing(self) -> None:
        """The loop is closed: there is nobody to whom the permit would matter."""

    def _end(self, error: BaseException | None) -> None:
        self._release()
        if self._is_over:
            log_late(error)
        self._request("end", error)

    def _start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], None]:
        if exc_info is not None:
            try:
                if self._is_begun:
                    raise exc_info[1].with_traceback(exc_info[2])
            finally:
                exc_info = None  # Without it the traceback would refer to this frame.
        elif self._head is not None:
            raise RuntimeError("start_response was called twice without exc_info")
        fields = []
        for name, value in headers:
            if name.lower() in HOP_BY_HOP:
                raise ValueError(f"{name}: an application must not send this field")
            fields.append((name.lower().encode("latin-1"), value.encode("latin-1")))
        self._head = {
            "type": "http.response.start",
            "status": int(status.split(" ", 1)[0]),
            "headers": fields,
        }
        return self._write

    def _write(self, data: bytes) -> None:
        self._send_messages({"type": "http.response.body", "body": data, "more_body": True})

    def _send_messages(self, message: dict[str, Any]) -> None:
        messages = [message]
        if not self._is_begun:
            if self._head is None:
                raise RuntimeError("the application has not called start_response")
            messages.insert(0, self._head)
        self.step("send", messages)
        self._is_begun = True

    def _respond(self, result: Iterable[bytes]) -> None:
        if isinstance(result, list | tuple) and len(result) == 1:
            self._send_messages({"type": "http.response.body", "body": result[0]})
            return
        if isinstance(result, FileWrapper) and (message := self._file_message(result.filelike)):
            self._send_messages(message)
            return
        for data in result:
            # The head is sent with the first content, so that the application may change its mind until then.
            if data:
                self._write(data)
        self._send_messages({"type": "http.response.body", "body": b""})

    def _file_message(self, file: Any) -> dict[str, Any] | None:
        """Returns the message with which the server sends a file; ``None`` if the server cannot, or if it is
        no plain regular file."""
        if "http.response.zerocopysend" not in (self._scope.get("extensions") or {}):
            return None
        plain = plain_file(file)
        if plain is None:
            return None
        try:
            found, offset = os.fstat(plain.fileno()), plain.tell()
        except (AttributeError, OSError, ValueError):
            return None
        if not stat.S_ISREG(found.st_mode) or self._head is None:
            return None
        count = max(found.st_size - offset, 0)
        for name, value in self._head["headers"]:
            if name == b"content-length":
                count = min(count, int(value))
        return {
            "type": "http.response.zerocopysend",
            "file": plain,
            "offset": offset,
            "count": count,
            "more_body": False,
        }
