"""An HTTP/3 client.

::

    async with uringcore.http3.Client() as client:
        response = await client.get("https://example.org/")
        print(response.status, response.content)

        async with client.stream("PUT", "https://example.org/upload", content=chunks()) as response:
            async for part in response.iter_bytes():
                ...

:class:`uringcore.contrib.httpx.AsyncHTTP3Transport` uses such a client for httpx.

| file | noun |
| --- | --- |
| ``_client`` | ``Client``: requests to any origin, and second tries |
| ``_request_methods`` | ``request``, ``get``, ``post`` and others, on top of ``stream`` |
| ``_connection_pool`` | the connections to one origin, and the requests that wait for them |
| ``_pooled_connection`` | one of these connections, from its first packet to its last |
| ``_resumption_cache`` | the address of an origin, with the tickets and tokens of its last connections |
| ``_unpooled_connection`` | one connection without a pool, for ``uringcore get`` |
| ``_connection`` | QUIC's events made HTTP's, and requests sent |
| ``_request`` | a request, and the rule for its repetition |
| ``_exchange`` | one request and its response on their stream, with flow control |
| ``_websocket`` | WebSocket messages on a stream |
| ``_timeouts_and_limits`` | time limits by phase, and bounds of connections |
| ``_alt_svc`` | ``Alt-Svc``: the places where an origin offers HTTP/3 |
| ``_url`` | origin and target of a URL |
| ``_errors`` | exceptions |
| ``_get_command`` | ``uringcore get`` |
| ``_get_transfer``, ``_get_redirects`` | one transfer of the command; the request after a redirect |
| ``_get_output_file``, ``_get_progress_bar`` | the file that it writes; its progress bar |
| ``_get_exit_status`` | its exit statuses and error messages |
| ``_get_http1`` | its ``--http1.1`` |
"""

from uringcore.http3._alt_svc import AlternativeCache
from uringcore.http3._client import Client
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
from uringcore.http3._timeouts_and_limits import Limits, Timeouts
from uringcore.http3._websocket import WebSocket, WebSocketClosedError, WebSocketRefusedError

__all__ = [
    "AlternativeCache",
    "Client",
    "ConnectError",
    "ConnectTimeoutError",
    "ConnectionLostError",
    "HTTP3Error",
    "InvalidRequestError",
    "Limits",
    "MalformedResponseError",
    "PoolTimeoutError",
    "ReadTimeoutError",
    "RequestFailedError",
    "RequestNotProcessedError",
    "RequestResetError",
    "RequestTimeoutError",
    "Response",
    "Timeouts",
    "URLError",
    "WebSocket",
    "WebSocketClosedError",
    "WebSocketRefusedError",
    "WriteTimeoutError",
]
