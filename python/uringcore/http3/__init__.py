"""An HTTP/3 client.

::

    async with uringcore.http3.Pool() as pool:
        response = await pool.request("GET", "https://example.org/")
        print(response.status, response.content)

        async with pool.stream("PUT", "https://example.org/upload", content=chunks()) as response:
            async for part in response.iter_bytes():
                ...

:func:`connect` gives one connection to one origin, with the same requests.
:class:`uringcore.httpx.AsyncHTTP3Transport` puts httpx on a pool.

| file | noun |
| --- | --- |
| ``pool`` | connections to any origin, kept, and second tries |
| ``connection_slots`` | those to one origin, and the requests that wait for them |
| ``pooled`` | one of them, from its first packet to its last |
| ``resolution`` | where a pool connects, and what it remembers of that |
| ``client`` | a connection that a program opens itself |
| ``connection`` | QUIC's events made HTTP's, and requests sent |
| ``request`` | what is asked, and whether it may be asked twice |
| ``exchange`` | one request and its response on their stream, with flow control |
| ``websocket`` | messages in both directions on a stream |
| ``limits`` | time-outs by phase, and a pool's bounds |
| ``alternatives`` | ``Alt-Svc``: where an origin says that it speaks HTTP/3 |
| ``url`` | what a URL says about where to connect and what to ask |
| ``errors`` | what can go wrong, one family |
| ``command`` | ``uringcore get`` |
| ``transfer``, ``redirects`` | one transfer of it; the request after a redirect |
| ``download``, ``progress`` | where it puts a body; its progress bar |
| ``failures`` | its exit statuses and error messages |
| ``http1`` | its ``--http1.1`` |
"""

from uringcore.http3.alternatives import Alternative, AlternativeCache
from uringcore.http3.client import Client, connect
from uringcore.http3.errors import (
    ConnectFailed,
    ConnectionLost,
    ConnectTimeout,
    HTTP3Error,
    PoolTimeout,
    ReadTimeout,
    RequestFailed,
    RequestInvalid,
    RequestNotProcessed,
    RequestReset,
    RequestTimeout,
    ResponseMalformed,
    URLError,
    WriteTimeout,
)
from uringcore.http3.exchange import Response
from uringcore.http3.limits import Limits, Timeouts
from uringcore.http3.pool import Pool
from uringcore.http3.request import Request
from uringcore.http3.resolution import Route
from uringcore.http3.url import Origin
from uringcore.http3.websocket import WebSocket, WebSocketClosed, WebSocketRefused

__all__ = [
    "Alternative",
    "AlternativeCache",
    "Client",
    "ConnectFailed",
    "ConnectTimeout",
    "ConnectionLost",
    "HTTP3Error",
    "Limits",
    "Origin",
    "Pool",
    "PoolTimeout",
    "ReadTimeout",
    "Request",
    "RequestFailed",
    "RequestInvalid",
    "RequestNotProcessed",
    "RequestReset",
    "RequestTimeout",
    "Response",
    "ResponseMalformed",
    "Route",
    "Timeouts",
    "URLError",
    "WebSocket",
    "WebSocketClosed",
    "WebSocketRefused",
    "WriteTimeout",
    "connect",
]
