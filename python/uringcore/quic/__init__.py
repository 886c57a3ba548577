"""QUIC (RFC 9000).

A client and a server, typed, without events::

    from uringcore import quic

    async with quic.connect("example.org", 4433, alpn=["echo"]) as connection:
        async with connection.open_stream() as stream:
            await stream.send(b"hello")
            await stream.finish()
            print(await stream.read())

    async with quic.listen("::", 4433, certificate=(cert, key), alpn=["echo"]) as listener:
        async for connection in listener:
            ...

They run on uringcore's loop, and on any other of asyncio's, where every datagram passes through Python.
The modules of this package have aioquic's names: configuration, connection, events, errors, logger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uringcore._uringcore import BidirectionalStream, ReceiveStream, SendStream
    from uringcore.quic.errors import (
        ConnectionClosed,
        DatagramError,
        ListenerClosed,
        QuicAlpnError,
        QuicCertificateError,
        QuicConfigurationError,
        QuicConnectionError,
        QuicConnectionRefusedError,
        QuicError,
        QuicIdleTimeoutError,
        QuicTlsError,
        QuicVersionError,
        StreamClosed,
        StreamError,
        StreamReset,
        StreamStopped,
    )
    from uringcore.quic.limits import ServerLimits
    from uringcore.quic.native.client import Connecting, connect
    from uringcore.quic.native.config import ClientConfig, ServerConfig
    from uringcore.quic.native.connection import Connection
    from uringcore.quic.native.server import Listener, Listening, listen

__all__ = [
    "BidirectionalStream",
    "ClientConfig",
    "Connecting",
    "Connection",
    "ConnectionClosed",
    "DatagramError",
    "Listener",
    "ListenerClosed",
    "Listening",
    "QuicAlpnError",
    "QuicCertificateError",
    "QuicConfigurationError",
    "QuicConnectionError",
    "QuicConnectionRefusedError",
    "QuicError",
    "QuicIdleTimeoutError",
    "QuicTlsError",
    "QuicVersionError",
    "ReceiveStream",
    "SendStream",
    "ServerConfig",
    "ServerLimits",
    "StreamClosed",
    "StreamError",
    "StreamReset",
    "StreamStopped",
    "connect",
    "listen",
]

# Imported when they are asked for: the modules of this package import one another, and all of them this
# one first.
_HOMES = {
    "_uringcore": {"BidirectionalStream", "ReceiveStream", "SendStream"},
    "quic.limits": {"ServerLimits"},
    "quic.native.client": {"Connecting", "connect"},
    "quic.native.config": {"ClientConfig", "ServerConfig"},
    "quic.native.connection": {"Connection"},
    "quic.native.server": {"Listener", "Listening", "listen"},
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    home = next((home for home, names in _HOMES.items() if name in names), "quic.errors")
    found: object = getattr(importlib.import_module(f"uringcore.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
