"""WebTransport over HTTP/3: sessions of streams and datagrams, as browsers have them.

A client and a server, typed, without events::

    from uringcore.webtransport import connect_webtransport, serve_webtransport

    async with connect_webtransport("https://example.org/chat", protocols=["chat"]) as session:
        async with session.open_stream() as stream:
            await stream.send(b"hello")
            await stream.finish()
            print(await stream.read())

    async def handler(session):
        async for stream in session.streams():
            await stream.send(await stream.read())
            await stream.finish()

    async with serve_webtransport("::", 4433, certificate=(cert, key), handler=handler) as server:
        await server.wait_closed()

Streams and datagrams are those of :mod:`uringcore.quic`. Further sessions on a client's connection are
opened beside its first one: ``session.open_session("/path")``. The drafts of the protocol that browsers and
others speak are offered together: 02, 07, 14 and the newest.

The ASGI server serves sessions as well, with a scope of the type ``webtransport``
(:mod:`uringcore.webtransport._asgi`), which :mod:`uringcore.contrib.starlette` brings to Starlette and
FastAPI. :mod:`uringcore.contrib.aiopquic` has the names of aiopquic, for programs that are written in
events.

| file | noun |
| --- | --- |
| ``_client`` | ``connect_webtransport`` |
| ``_server`` | ``serve_webtransport`` |
| ``_session`` | ``WebTransportSession`` |
| ``_request`` | a client's request for a session, before the answer |
| ``_errors`` | why a session ended, as exceptions |
| ``_link`` | how a session is answered, drained and ended |
| ``_session_transport`` | a server's connection that has sessions alone |
| ``_configured`` | a ``QuicConfiguration`` as settings of clients and servers |
| ``_fields`` | header fields |
| ``_asgi``, ``starlette`` | the ASGI scope ``webtransport``; its route for Starlette and FastAPI |
| ``events``, ``_event_classes`` | sessions in aiopquic's names, and the classes of their events |
| ``_numbered``, ``_outbox`` | streams by number, for ``asgi`` and ``events``; data queued on one of them |
"""

from __future__ import annotations

from uringcore.quic._native.config import ClientConfig, ServerConfig
from uringcore.webtransport._client import connect_webtransport
from uringcore.webtransport._errors import (
    SessionClosedError,
    SessionRefusedError,
    WebTransportError,
)
from uringcore.webtransport._request import WebTransportRequest
from uringcore.webtransport._server import Serving, WebTransportServer, serve_webtransport
from uringcore.webtransport._session import Connecting, WebTransportSession

__all__ = [
    "ClientConfig",
    "Connecting",
    "ServerConfig",
    "Serving",
    "SessionClosedError",
    "SessionRefusedError",
    "WebTransportError",
    "WebTransportRequest",
    "WebTransportServer",
    "WebTransportSession",
    "connect_webtransport",
    "serve_webtransport",
]
