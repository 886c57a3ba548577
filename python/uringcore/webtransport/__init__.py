"""WebTransport over HTTP/3: sessions of streams and datagrams, as browsers have them.

A client and a server, typed, without events::

    from uringcore import webtransport

    async with webtransport.connect("https://example.org/chat", protocols=["chat"]) as session:
        async with session.open_stream() as stream:
            await stream.send(b"hello")
            await stream.finish()
            print(await stream.read())

    async def handler(session):
        async for stream in session.streams():
            await stream.send(await stream.read())
            await stream.finish()

    async with webtransport.serve("::", 4433, certificate=(cert, key), handler=handler) as server:
        await server.wait_closed()

Streams, datagrams, ``ClientConfig`` and ``ServerConfig`` are those of :mod:`uringcore.quic`. A client opens
further sessions on the connection of its first one: ``session.open_session("/path")``. Drafts 02, 07, 14 and
15 of the protocol are offered together.

The ASGI server serves sessions as well, with a scope of the type ``webtransport``
(:mod:`uringcore.webtransport._asgi`). :mod:`uringcore.contrib.starlette` has routes for Starlette and
FastAPI, :mod:`uringcore.contrib.aiopquic` has aiopquic's names, for programs that are written with events.

| file | noun |
| --- | --- |
| ``_connect`` | ``connect`` |
| ``_server`` | ``serve`` and ``Server`` |
| ``_session`` | ``Session`` |
| ``_session_request`` | ``SessionRequest``: a client's request for a session, before the answer |
| ``_errors`` | exceptions |
| ``_session_lifecycle`` | how a session is answered, drained and ended |
| ``_server_connection`` | a server's connection that carries sessions only |
| ``_aiopquic_configuration`` | a ``QuicConfiguration`` as settings of clients and servers |
| ``_header_fields`` | header fields |
| ``_asgi`` | the ASGI scope ``webtransport`` |
| ``_aiopquic_events`` | the classes of aiopquic's events |
| ``_session_messages``, ``_outbox`` | streams by number, for ASGI and aiopquic's names; a stream's queue |
| ``events``, ``starlette`` | former names of the modules in ``contrib`` |
"""

from __future__ import annotations

from uringcore.webtransport._connect import connect
from uringcore.webtransport._connect import connect as connect_webtransport
from uringcore.webtransport._errors import (
    SessionClosedError,
    SessionRefusedError,
    WebTransportError,
)
from uringcore.webtransport._server import Server, serve
from uringcore.webtransport._server import Server as WebTransportServer
from uringcore.webtransport._server import serve as serve_webtransport
from uringcore.webtransport._session import Session
from uringcore.webtransport._session import Session as WebTransportSession
from uringcore.webtransport._session_request import SessionRequest

__all__ = [
    "Server",
    "Session",
    "SessionClosedError",
    "SessionRefusedError",
    "SessionRequest",
    "WebTransportError",
    "WebTransportServer",
    "WebTransportSession",
    "connect",
    "connect_webtransport",
    "serve",
    "serve_webtransport",
]
