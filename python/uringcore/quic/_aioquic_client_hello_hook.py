"""aioquic's ``quic.tls._server_handle_hello``, which programs replace to read a ClientHello before TLS.

The handshake itself is in Rust and begins after the replacement has returned. So the replacement may choose
the server's certificate. ``receive_datagram`` raises an exception of the replacement, which ends the
connection.

Rust's TLS accepts only the ClientHello that the program has read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from uringcore._uringcore import ClientHelloReader
from uringcore.buffer import Buffer
from uringcore.quic.packet import QuicProtocolVersion

if TYPE_CHECKING:
    from uringcore.quic.configuration import QuicConfiguration

__all__ = ["HelloHook", "destination_of"]


class HelloHook:
    """Keeps the datagrams of a server's first flight until its ClientHello is complete."""

    def __init__(
        self, handle_hello: Callable[..., object], configuration: QuicConfiguration, now: float
    ) -> None:
        self._handle_hello = handle_hello
        self._idle_timeout = float(configuration.idle_timeout)
        self._refused = _VERSIONS.difference(configuration.supported_versions)
        self.hello: bytes | None = None
        "The ClientHello that the program has read."
        self.deadline = now + self._idle_timeout
        "The time at which the connection is given up if it has not begun."
        self._reader = ClientHelloReader()
        self._kept: list[tuple[bytes, Any, float]] = []
        self._kept_bytes = 0

    def feed(self, data: bytes, addr: Any, now: float) -> str | None:
        """Keeps a datagram. Returns qlog's reason if it was dropped, otherwise None.

        A dropped datagram is not read.
        """
        if len(self._kept) >= _KEPT_MAX or self._kept_bytes + len(data) > _KEPT_BYTES_MAX:
            return "dos_prevention"
        if data[:1] >= b"\x80" and int.from_bytes(data[1:5], "big") in self._refused:
            return "unsupported_version"
        trigger = self._reader.feed(data)
        if trigger is None:
            self._kept.append((bytes(data), addr, now))
            self._kept_bytes += len(data)
            self.deadline = now + self._idle_timeout
        return trigger

    @property
    def is_contradictory(self) -> bool:
        """True if packets contain different data for one range: there will be no ClientHello."""
        return self._reader.is_contradictory

    def take(self) -> list[tuple[bytes, Any, float]] | None:
        """Calls the program once the ClientHello is complete, and returns the datagrams; before that,
        None.
        """
        hello = self._reader.client_hello()
        if hello is None:
            return None
        # aioquic passes output buffers here, which its function fills. They are unused, because Rust writes
        # the messages.
        unused = [Buffer(capacity=_OUTPUT_BYTES) for _ in range(3)]
        self._handle_hello(Buffer(data=hello), *unused)
        self.hello = hello
        kept, self._kept = self._kept, []
        return kept


def destination_of(datagram: bytes) -> bytes | None:
    """Returns the destination connection ID of a first packet (RFC 8999 section 5.1), or None for other
    packets.
    """
    if len(datagram) < 6 or not datagram[0] & 0x80 or len(datagram) < 6 + datagram[5]:
        return None
    return bytes(datagram[6 : 6 + datagram[5]])


# The maximum number of datagrams that are kept. The largest ClientHello (16 KiB) needs far fewer.
_KEPT_MAX = 64
_KEPT_BYTES_MAX = 1 << 17
_OUTPUT_BYTES = 4096
# Versions that the reader supports.
_VERSIONS = frozenset({QuicProtocolVersion.VERSION_1, QuicProtocolVersion.VERSION_2})
