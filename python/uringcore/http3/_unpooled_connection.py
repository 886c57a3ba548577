"""One connection to one origin, for ``uringcore get``: it is never replaced, and no request is repeated.

Programs use :class:`~uringcore.http3.Client`, which keeps connections to any origin.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator

from uringcore.asyncio.client import connect as quic_connect
from uringcore.h3.connection import ErrorCode
from uringcore.http3._connection import HTTP3ClientProtocol
from uringcore.http3._exchange import InterimHandler, Response
from uringcore.http3._request import Content, Headers, Request
from uringcore.http3._request_methods import Methods
from uringcore.http3._timeouts_and_limits import NO_TIMEOUTS, Timeouts
from uringcore.http3._url import Origin, parse_url
from uringcore.quic._host_argument_checks import server_name_of
from uringcore.quic.configuration import QuicConfiguration

__all__ = ["OriginConnection", "client_configuration", "connect"]

MAX_STREAM_BYTES = 4 * 1024 * 1024
MAX_CONNECTION_BYTES = 16 * 1024 * 1024


class OriginConnection(Methods):
    """Requests on one connection, which :func:`connect` makes; safe for many tasks of its loop.

    The URL of a request is a path with query, or a whole URL of this origin; a URL of another origin raises
    :class:`URLError`.
    """

    def __init__(self, protocol: HTTP3ClientProtocol, origin: Origin, timeouts: Timeouts) -> None:
        self._protocol = protocol
        self._timeouts = timeouts
        self.origin = origin
        """The origin that the connection leads to."""

    def _request(self, method: str, url: str, headers: Headers, content: Content | None) -> Request:
        return Request.to(method, url, headers, content, base=self.origin)

    async def _send(
        self,
        request: Request,
        *,
        on_interim: InterimHandler | None = None,
        timeouts: Timeouts | None = None,
    ) -> Response:
        timeouts = self._timeouts if timeouts is None else timeouts
        return await self._protocol.fetch(request, timeouts, on_interim)

    def close(self) -> None:
        """Closes the connection. Open requests fail."""
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
) -> AsyncIterator[OriginConnection]:
    """Connects to the origin of an ``https`` URL, whose path is ignored.

    ``configuration`` replaces ``cafile`` and ``verify``. Of ``timeouts``, ``read`` and ``write`` apply.

    Raises :class:`~uringcore.http3.URLError`, ``socket.gaierror`` when the host has no address, and a
    subclass of ``QuicConnectionError`` when the connection cannot be established.
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
        connection = OriginConnection(protocol, origin, timeouts)
        try:
            yield connection
        finally:
            connection.close()


def client_configuration(cafile: str | None = None, verify: bool = True) -> QuicConfiguration:
    """The default configuration of a client's connections."""
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
