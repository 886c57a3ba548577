"""A server and a client's session with it, in one process."""

from __future__ import annotations

import asyncio
import contextlib

from uringcore.quic import ClientConfig, ServerConfig
from uringcore.webtransport import connect_webtransport, serve_webtransport
from uringcore.webtransport._asgi import AsgiSession


def serving(certificate, config=None, **options):
    identity = (certificate.certificate_pem, certificate.key_pem)
    config = ServerConfig(certificate=identity, **(config or {}))
    return serve_webtransport("127.0.0.1", 0, config=config, **options)


def url_of(server, path="/"):
    return f"https://127.0.0.1:{server.address[1]}{path}"


def connecting(certificate, server, path="/", config=None, **options):
    options.setdefault("server_certificate_hashes", [certificate.sha256])
    return connect_webtransport(url_of(server, path), ClientConfig(**(config or {})), **options)


@contextlib.asynccontextmanager
async def session_pair(certificate, client=None, server=None):
    """Yields both ends of one session."""
    accepted = []

    async with serving(certificate, **(server or {})) as there:
        async with accepting(there, accepted):
            async with connecting(certificate, there, **(client or {})) as one:
                async with accepted[0] as other:
                    yield one, other


@contextlib.asynccontextmanager
async def accepting(server, accepted):
    """Accepts all session requests while the block runs."""

    async def accept():
        async for request in server:
            accepted.append(await request.accept())

    task = asyncio.ensure_future(accept())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def stream_pair(certificate, client=None, server=None):
    """Yields both ends of one stream, on which the opener has sent an ``x`` that was read."""
    async with session_pair(certificate, client, server) as (one, other):
        async with one.open_stream() as here:
            await here.send(b"x")
            async with await other.accept_stream() as there:
                assert await there.readexactly(1) == b"x"
                yield here, there


@contextlib.asynccontextmanager
async def application_pair(certificate, application, client=None, server=None):
    """Yields a client's session, and its server side as an ASGI application sees it. The application has
    returned when the block ends.
    """
    async with serving(certificate, **(server or {})) as there:
        asking = asyncio.ensure_future(connecting(certificate, there, **(client or {})))
        asgi = await asked_of(there)
        running = asyncio.ensure_future(asgi.run(application))
        try:
            async with await asking as session:
                yield session, asgi
        finally:
            await running


async def asked_of(server):
    """Returns the next requested session in the form that the server's ASGI applications get."""
    while (link := server._next()) is None:
        await server._backlog.wait()
    return AsgiSession(link, {"type": "webtransport", "extensions": {}})
