"""The classes that the loop's transports and handles present to ``isinstance``.

The transports are objects of extension classes, which cannot derive from asyncio's, because those have slots.
The attribute ``__class__`` of a transport is one of the classes here, so ``isinstance(transport,
asyncio.Transport)`` holds as on asyncio's own loop. These classes have no instances.
"""

from __future__ import annotations

import asyncio
from asyncio import sslproto
from asyncio import transports as asyncio_transports
from typing import Any

# CPython has `_ThreadSafeHandle` from 3.14 on.
_SharedHandle: Any = getattr(asyncio.events, "_ThreadSafeHandle", asyncio.Handle)

__all__ = [
    "DatagramTransport",
    "Handle",
    "SSLTransport",
    "StreamTransport",
    "ThreadSafeHandle",
    "TimerHandle",
    "TlsProtocol",
]


class StreamTransport(asyncio_transports._FlowControlMixin):
    """A connected stream socket: TCP or Unix."""


class DatagramTransport(asyncio_transports._FlowControlMixin, asyncio.DatagramTransport):
    """The class that a datagram transport presents. It derives from both kinds of transport, as asyncio's own
    class does."""


class SSLTransport(sslproto._SSLProtocolTransport):
    """The class that a TLS transport presents. Programs look for asyncio's class, which is its base, or for
    "ssl" in its name."""


class TlsProtocol(asyncio.Protocol):
    """The protocol between a transport and TLS. Not an asyncio ``SSLProtocol``: its attributes differ."""


class Handle(asyncio.Handle):
    """The handle that ``call_soon`` returns."""


class ThreadSafeHandle(_SharedHandle):  # type: ignore[misc]
    """The handle that ``call_soon_threadsafe`` returns on CPython 3.14."""


class TimerHandle(asyncio.TimerHandle):
    """The handle that ``call_later`` and ``call_at`` return."""
