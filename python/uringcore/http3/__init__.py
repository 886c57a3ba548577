"""An HTTP/3 client.

::

    async with uringcore.http3.Pool() as pool:
        response = await pool.request("GET", "https://example.org/")
        print(response.status, response.content)

        async with pool.stream("PUT", "https://example.org/upload", content=chunks()) as response:
            async for part in response.iter_bytes():
                ...

:func:`connect` gives one connection to one origin, with the same requests.
:class:`uringcore.contrib.httpx.AsyncHTTP3Transport` puts httpx on a pool.

| file | noun |
| --- | --- |
| ``_pool`` | connections to any origin, kept, and second tries |
| ``_connection_slots`` | those to one origin, and the requests that wait for them |
| ``_pooled`` | one of them, from its first packet to its last |
| ``_resolution`` | where a pool connects, and what it remembers of that |
| ``_client`` | a connection that a program opens itself |
| ``_connection`` | QUIC's events made HTTP's, and requests sent |
| ``_request`` | what is asked, and whether it may be asked twice |
| ``_exchange`` | one request and its response on their stream, with flow control |
| ``_websocket`` | messages in both directions on a stream |
| ``_limits`` | time-outs by phase, and a pool's bounds |
| ``_alternatives`` | ``Alt-Svc``: where an origin says that it speaks HTTP/3 |
| ``_url`` | what a URL says about where to connect and what to ask |
| ``_errors`` | what can go wrong, one family |
| ``_command`` | ``uringcore get`` |
| ``_transfer``, ``_redirects`` | one transfer of it; the request after a redirect |
| ``_download``, ``_progress`` | where it puts a body; its progress bar |
| ``_failures`` | its exit statuses and error messages |
| ``_http1`` | its ``--http1.1`` |
"""

from uringcore.http3._alternatives import Alternative, AlternativeCache
from uringcore.http3._client import Client, connect
from uringcore.http3._errors import (
    ConnectError,
    ConnectionLostError,
    ConnectTimeoutError,
    HTTP3Error,
    InvalidRequestError,
    MalformedResponseError,
    PoolTimeoutError,
    ReadTimeoutError,
    RequestFailedError,
    RequestNotProcessedError,
    RequestResetError,
    RequestTimeoutError,
    URLError,
    WriteTimeoutError,
)
from uringcore.http3._exchange import Response
from uringcore.http3._limits import Limits, Timeouts
from uringcore.http3._pool import Pool
from uringcore.http3._request import Request
from uringcore.http3._resolution import Route
from uringcore.http3._url import Origin
from uringcore.http3._websocket import WebSocket, WebSocketClosedError, WebSocketRefusedError

__all__ = [
    "Alternative",
    "AlternativeCache",
    "Client",
    "ConnectError",
    "ConnectTimeoutError",
    "ConnectionLostError",
    "HTTP3Error",
    "InvalidRequestError",
    "Limits",
    "MalformedResponseError",
    "Origin",
    "Pool",
    "PoolTimeoutError",
    "ReadTimeoutError",
    "Request",
    "RequestFailedError",
    "RequestNotProcessedError",
    "RequestResetError",
    "RequestTimeoutError",
    "Response",
    "Route",
    "Timeouts",
    "URLError",
    "WebSocket",
    "WebSocketClosedError",
    "WebSocketRefusedError",
    "WriteTimeoutError",
    "connect",
]
