"""``serve``: a QUIC server."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from typing import Any

from uringcore.asyncio.protocol import QuicConnectionProtocol, QuicStreamHandler
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.connection import QuicConnection
from uringcore.quic.endpoint import QuicTransport, create_quic_endpoint

__all__ = ["QuicServer", "serve"]


class QuicServer:
    """A listening endpoint. ``async with`` closes it at the end."""

    def __init__(self, transport: QuicTransport) -> None:
        self._transport = transport

    @property
    def sockname(self) -> Any:
        """The address that the server is bound to."""
        return self._transport.get_extra_info("sockname")

    @property
    def transport(self) -> QuicTransport:
        """The endpoint's transport."""
        return self._transport

    def close(self) -> None:
        """Closes every connection (application error code 0) and the socket."""
        self._transport.close()

    def stop_accepting(self) -> None:
        """Refuses new connections at once (CONNECTION_REFUSED); those that are open go on."""
        self._transport.stop_accepting()

    async def wait_closed(self) -> None:
        """Waits until the socket is released."""
        await self._transport.wait_closed()

    def stats(self) -> dict[str, int]:
        """Counters of the endpoint."""
        return self._transport.stats()

    async def __aenter__(self) -> QuicServer:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()
        await self.wait_closed()


async def serve(
    host: str,
    port: int,
    *,
    configuration: QuicConfiguration,
    create_protocol: Callable[..., Any] = QuicConnectionProtocol,
    session_ticket_fetcher: Callable[[bytes], Any] | None = None,
    session_ticket_handler: Callable[[Any], None] | None = None,
    retry: bool = False,
    stream_handler: QuicStreamHandler | None = None,
    reuse_port: bool | None = None,
) -> QuicServer:
    """Starts a QUIC server on ``host`` and ``port`` and returns it.

    ``create_protocol(quic, stream_handler=...)`` makes each connection's protocol;
    ``stream_handler(reader, writer)`` (a function or a coroutine function) is called for each
    stream that a client opens. ``retry`` validates every client's address before anything else
    (RFC 9000 section 8.1.2). ``reuse_port`` is ours: several processes may share the port.

    Raises ``QuicConfigurationError`` naming the field, and ``OSError`` when the address cannot be
    bound.
    """
    if configuration.is_client:
        raise ValueError("configuration: is_client must be false for serve()")
    warn_about_tickets(session_ticket_handler, session_ticket_fetcher)

    def factory(quic: QuicConnection) -> Any:
        return create_protocol(quic, stream_handler=stream_handler)

    transport, _ = await create_quic_endpoint(
        asyncio.get_running_loop(),
        factory,
        (host, port),
        configuration=configuration,
        reuse_port=reuse_port,
        retry=retry,
    )
    return QuicServer(transport)


def warn_about_tickets(*handlers: object) -> None:
    """aioquic's callbacks for tickets and tokens are accepted and never called; says so."""
    if any(handler is not None for handler in handlers):
        warnings.warn(
            "session tickets and address tokens are kept and used inside uringcore: "
            "the given handler will not be called",
            RuntimeWarning,
            stacklevel=3,
        )
