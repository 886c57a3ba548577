"""A connection to one origin, and the requests made on it.

:func:`connect` is the entrance. What happens on the connection is _connection.py's; connections to
many origins are _pool.py's.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator

from uringcore.asyncio.client import connect as quic_connect
from uringcore.h3.connection import ErrorCode
from uringcore.http3._connection import HTTP3ClientProtocol
from uringcore.http3._exchange import InterimHandler, Response
from uringcore.http3._limits import NO_TIMEOUTS, Timeouts
from uringcore.http3._request import Content, Headers, Request
from uringcore.http3._url import Origin, parse_url
from uringcore.quic._targets import server_name_of
from uringcore.quic.configuration import QuicConfiguration

__all__ = ["Client", "client_configuration", "connect"]

MAX_STREAM_BYTES = 4 * 1024 * 1024
MAX_CONNECTION_BYTES = 16 * 1024 * 1024


class Client:
    """Requests on one connection. Made by :func:`connect`; safe for many tasks of its loop."""

    def __init__(self, protocol: HTTP3ClientProtocol, origin: Origin, timeouts: Timeouts) -> None:
        self._protocol = protocol
        self._timeouts = timeouts
        self.origin = origin
        """Where the connection goes."""

    @contextlib.asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Headers = (),
        content: Content | None = None,
        on_interim: InterimHandler | None = None,
    ) -> AsyncIterator[Response]:
        """Makes a request; the block runs when the response's header section is here.

        ``url`` is a path with query, or a whole URL of this origin. ``content`` is sent while the
        response is being read; what the server does not want of it (STOP_SENDING) is dropped without an
        error, since the response may still come. Leaving the block early cancels what is left of the
        exchange.
        ``on_interim(status, fields)`` is called for each interim response, e.g. 103.

        Raises an :class:`HTTP3Error`: :class:`URLError` for a URL of another origin,
        :class:`RequestFailedError` when the server refuses or resets the request, and
        :class:`ConnectionLostError`, a ``QuicConnectionError`` as well, when the connection is lost. The
        ``retryable`` of each tells whether the server has left the request alone.
        """
        request = Request.to(method, url, headers, content, base=self.origin)
        response = await self._protocol.fetch(request, self._timeouts, on_interim)
        try:
            yield response
        finally:
            await response.aclose()

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Headers = (),
        content: Content | None = None,
        on_interim: InterimHandler | None = None,
    ) -> Response:
        """Makes a request and reads the whole response into memory. Arguments as in :meth:`stream`."""
        async with self.stream(
            method, url, headers=headers, content=content, on_interim=on_interim
        ) as response:
            await response.read()
            return response

    async def get(self, url: str, *, headers: Headers = ()) -> Response:
        """``request("GET", url)``."""
        return await self.request("GET", url, headers=headers)

    def close(self) -> None:
        """Closes the connection; requests that are under way fail."""
        self._protocol.close(ErrorCode.H3_NO_ERROR)


@contextlib.asynccontextmanager
async def connect(
    url: str,
    *,
    cafile: str | None = None,
    verify: bool = True,
    configuration: QuicConfiguration | None = None,
    local_port: int = 0,
    timeouts: Timeouts = NO_TIMEOUTS,
) -> AsyncIterator[Client]:
    """Connects to the origin of an ``https`` URL; the path in it is not looked at.

    ``cafile`` is a PEM file of the authorities to trust instead of the system's; ``verify=False``
    accepts any certificate. ``configuration`` replaces both and sets everything else. ``timeouts``
    are those of requests: their ``read`` and ``write``.

    Runs on any loop of asyncio's; on uringcore's no packet passes through Python. Raises
    :class:`~uringcore.http3.URLError`, ``socket.gaierror`` when the host has no address, and
    ``QuicConnectionError`` when the connection cannot be established; its subclasses say why.
    """
    origin, _ = parse_url(url)
    if configuration is None:
        configuration = client_configuration(cafile, verify)
        configuration.server_name = server_name_of(origin.host)
    async with quic_connect(
        origin.host,
        origin.port,
        configuration=configuration,
        create_protocol=HTTP3ClientProtocol,
        local_port=local_port,
    ) as protocol:
        client = Client(protocol, origin, timeouts)
        try:
            yield client
        finally:
            client.close()


def client_configuration(cafile: str | None = None, verify: bool = True) -> QuicConfiguration:
    """What a client of HTTP/3 is set up with, if nobody says otherwise."""
    configuration = QuicConfiguration(
        is_client=True,
        alpn_protocols=["h3"],
        idle_timeout=30.0,
        max_data=MAX_CONNECTION_BYTES,
        max_stream_data=MAX_STREAM_BYTES,
        verify_mode=None if verify else ssl.CERT_NONE,
    )
    if cafile is not None:
        configuration.load_verify_locations(cafile=cafile)
    return configuration
