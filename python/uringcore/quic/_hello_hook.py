"""aioquic's ``quic.tls._server_handle_hello``, which programs replace to read a ClientHello before TLS.

The handshake itself is Rust's and begins after the replacement has returned: what it raises comes out of
``receive_datagram``, and then there is no handshake. So a server needs no certificate before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uringcore._uringcore import ClientHelloReader
from uringcore.buffer import Buffer

__all__ = ["HelloHook", "destination_of"]


class HelloHook:
    """Keeps the datagrams of a server's first flight until its ClientHello is whole."""

    def __init__(self, handle_hello: Callable[..., object]) -> None:
        self._handle_hello = handle_hello
        self._reader = ClientHelloReader()
        self._kept: list[tuple[bytes, Any, float]] = []

    def feed(self, data: bytes, addr: Any, now: float) -> str | None:
        """Keeps a datagram. Returns why it was dropped, in qlog's words, or None."""
        trigger = self._reader.feed(data)
        if trigger is None and len(self._kept) < _KEPT_MAX:
            self._kept.append((data, addr, now))
        return trigger

    def take(self) -> list[tuple[bytes, Any, float]] | None:
        """Calls the program once the ClientHello is whole, and returns the datagrams; before that, None."""
        hello = self._reader.client_hello()
        if hello is None:
            return None
        # aioquic's buffers for what is to be sent. Rust has its own.
        unused = [Buffer(capacity=_OUTPUT_BYTES) for _ in range(3)]
        self._handle_hello(Buffer(data=hello), *unused)
        return self._kept


def destination_of(datagram: bytes) -> bytes | None:
    """The connection ID that a first packet is for (RFC 8999 section 5.1); None if it is none."""
    if len(datagram) < 6 or not datagram[0] & 0x80 or len(datagram) < 6 + datagram[5]:
        return None
    return bytes(datagram[6 : 6 + datagram[5]])


# Much more than a ClientHello of 16 KiB, which is the largest, needs.
_KEPT_MAX = 64
_OUTPUT_BYTES = 4096
