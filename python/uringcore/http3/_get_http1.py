"""HTTP/1.1 for ``uringcore get --http1.1``: the standard library's client, in a thread.

It has the shape of :class:`~uringcore.http3._unpooled_connection.OriginConnection` as far as the command
needs it. Programs that need HTTP/1.1 use another client.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.client
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

from uringcore.http3._errors import InvalidRequestError
from uringcore.http3._request import Fields
from uringcore.http3._url import Origin, parse_url

__all__ = ["HTTP1Client", "HTTP1Response"]

READ_BYTES = 256 * 1024

T = TypeVar("T")


class HTTP1Response:
    """A response whose header section has arrived."""

    http_version = "HTTP/1.1"

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Fields = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in response.getheaders()
        ]
        # Always empty, because the standard library shows neither trailers nor interim responses.
        self.trailers: Fields = []

    def header(self, name: str) -> str | None:
        """A header field's value."""
        return self._response.getheader(name)

    @property
    def content_length(self) -> int | None:
        """The size of the body in bytes, as the server has announced it."""
        value = self.header("content-length")
        return int(value) if value is not None and value.isdecimal() else None

    async def iter_bytes(self) -> AsyncIterator[bytes]:
        """Yields the body in the parts in which it arrives."""
        while data := await on_a_thread(self._response.read1, READ_BYTES):
            yield data
        if self._response.length:
            raise http.client.IncompleteRead(b"", self._response.length)


class HTTP1Client:
    """One connection to one server."""

    def __init__(self, origin: Origin, context: ssl.SSLContext, timeout: float) -> None:
        self.origin = origin
        # The socket has a time limit, because a thread that waits for it cannot be cancelled.
        self._connection = http.client.HTTPSConnection(
            origin.host, origin.port, context=context, timeout=timeout
        )
        self._socket: socket.socket | None = None
        """Remembers the connection's socket, because ``HTTPSConnection`` drops its reference when the last
        response begins."""

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(
        cls, url: str, *, cafile: str | None, verify: bool, timeout: float
    ) -> AsyncIterator[HTTP1Client]:
        """Connects to the origin of a URL, in ``timeout`` seconds at most."""
        context = ssl.create_default_context(cafile=cafile)
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        client = cls(parse_url(url)[0], context, timeout)
        try:
            await on_a_thread(client._connection.connect)
            client._socket = client._connection.sock
            client._socket.settimeout(None)
            yield client
        finally:
            client.close()

    @contextlib.asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Iterable[tuple[str, str]],
        content: bytes | Iterable[bytes] | None,
        on_interim: object = None,
    ) -> AsyncIterator[HTTP1Response]:
        """Makes a request. The body is sent before the response is read."""
        given = list(headers)
        names = {name.lower() for name, _ in given}
        _, path = parse_url(url)
        if isinstance(content, bytes) and "content-length" not in names:
            given.append(("content-length", str(len(content))))
            names.add("content-length")
        chunked = content is not None and "content-length" not in names
        if chunked:
            given.append(("transfer-encoding", "chunked"))
        connection = self._connection

        def exchange() -> http.client.HTTPResponse:
            connection.putrequest(
                method, path, skip_host="host" in names, skip_accept_encoding=True
            )
            for name, value in given:
                connection.putheader(name, value)
            connection.endheaders(content, encode_chunked=chunked)
            return connection.getresponse()

        try:
            response = await on_a_thread(exchange)
        except ValueError as exc:
            raise InvalidRequestError(str(exc)) from None
        try:
            yield HTTP1Response(response)
        finally:
            if not response.isclosed():
                # The socket is shut down first, because closing the response would wait for a thread that
                # reads it.
                self.close()
            response.close()

    def close(self) -> None:
        """Closes the connection, which also ends a call that a thread is making on it."""
        sock = self._connection.sock or self._socket
        if isinstance(sock, socket.socket):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._connection.close()


async def on_a_thread(function: Callable[..., T], *arguments: object) -> T:
    """The function's result. The thread of a cancelled call is a daemon: the loop's own threads, and with
    them the program, would wait for a server that does not answer."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result = error = None
        try:
            result = function(*arguments)
        except BaseException as exc:  # noqa: BLE001 - raised where it is waited for
            error = exc
        # call_soon_threadsafe raises RuntimeError if the loop was closed in the meantime.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(functools.partial(settle, result, error))

    threading.Thread(target=run, name="uringcore-http1", daemon=True).start()
    return await future
