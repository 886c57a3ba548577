"""An application of a server whose first connections get a protocol that cannot begin."""

from __future__ import annotations

import asyncio

from tests.http.unread_responses import app
from uringcore._uringcore import Http1Connection, TcpService
from uringcore.server import _native_tcp

__all__ = ["app"]

Transport = _native_tcp.TlsServerTransport
ERRORS = [ConnectionError("there is no protocol"), RuntimeError("there is no protocol")]


class Failing(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        error = ERRORS.pop()
        if not ERRORS:
            _native_tcp.TlsServerTransport = Transport
        raise error


def make(service: TcpService, protocol: Http1Connection) -> object:
    transport = Transport(service, protocol)
    # The server's own protocol decides about the connection before.
    asyncio.get_running_loop().call_soon(transport.set_protocol, Failing())
    return transport


_native_tcp.TlsServerTransport = make
