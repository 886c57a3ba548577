"""Limits of a QUIC server: ``ServerLimits``, and the policy for Retry packets."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, Literal

from uringcore.quic._available_memory import (
    CONNECTION_BYTES,
    MEMORY_MAX,
    MEMORY_MIN,
    default_memory,
)
from uringcore.quic._errors import QuicConfigurationError

__all__ = ["RetryPolicy", "ServerLimits"]

RetryPolicy = bool | Literal["auto"]
"""``True``: every client validates its address first (RFC 9000 section 8.1.2). ``False``: no client does.
``"auto"``: clients do under load, as :class:`ServerLimits` defines it."""


_COUNT_MAX = (1 << 32) - 1

_PER_ADDRESS_MAX = 8192
# One address may have this fraction of all connections: one in four.
_PER_ADDRESS_PARTS = 4


@dataclass(frozen=True)
class ServerLimits:
    """Limits of the connections and handshakes of a server, and its answers to clients beyond them.

    A *refused* client gets CONNECTION_REFUSED (RFC 9000 section 20.1) at once. An *ignored* client sends
    again, after about a second and then less and less often. A *Retry* makes the client prove that it
    receives at the address that it sends from, which costs it a round trip and the server nothing; an
    attacker with forged addresses cannot answer it.

    ``server.stats()`` counts each answer: ``incoming_refused`` and, by reason,
    ``refused_for_connections``, ``refused_for_address``, ``refused_for_handshakes`` and
    ``refused_for_closing``; ``incoming_retried``; ``ignored_for_rate``.

    Raises :class:`~uringcore.quic.QuicConfigurationError` naming the field.
    """

    max_connections: int = 65536
    """The maximum number of connections at a time. Further ones are refused."""

    max_connections_per_address: int | Literal["auto"] | None = "auto"
    """Connections at a time from one IPv4 address, or from one IPv6 /64. A connection counts at the
    last validated address of its client, unless that address has reached the limit. More are refused;
    ``None`` sets no limit. With ``retry="auto"`` connections above half of it get a Retry first, so that an
    attacker cannot use up the share of another address.

    ``"auto"`` stands for a quarter of ``max_connections``, and for 8,192 at most: one address cannot take
    all connections, however few there are, and the thousands of subscribers that a carrier has behind one
    address are served. A server behind a proxy that shows its own address for all clients needs a number,
    or ``None``.

    A connection that was closed makes room for another at once, but of an address no more of them linger
    (for three probe time-outs) than may be open. Each counts 32 KiB of ``memory`` as well, of which the
    connections of one address take a quarter at most, and all connections half. More are refused, too,
    and counted alike."""

    memory: int | None = None
    """Bytes that clients may make the server hold: data that the application has not read, responses
    that clients do not take, messages and datagrams that wait, and 32 KiB for each connection itself.
    ``None`` means a quarter of the memory of the process, by its cgroup and the machine
    (:mod:`uringcore.quic._available_memory`). Servers of one process with equal numbers share it.

    Clients of one address (IPv6: one /64) hold as much of it as is left: alone half of it, two of them
    a third each. Above that a connection of the address gets 64 KiB of credit at a time, and a new one
    begins with 1 MiB. When all is used up the address that holds most loses streams, and connections
    after that (with HTTP/3: H3_EXCESSIVE_LOAD); others go on. ``server.stats()`` has
    ``held_bytes``, and counts ``credit_withheld``, ``streams_shed`` and ``connections_shed``."""

    accept_rate: float | None = None
    """The number of connections accepted per second, after a burst of ``accept_burst``. Further ones are
    ignored. With ``retry="auto"`` those in the second half of a burst get a Retry first."""

    accept_burst: int | None = None
    """The number of connections accepted at once after a quiet time; ``None`` means that of one second."""

    max_handshakes: int = 4096
    """The maximum number of handshakes at a time, including those that wait for the program's session store.
    Further ones are refused."""

    retry_handshakes: int | None = None
    """The number of handshakes at a time from which on ``retry="auto"`` sends Retries; ``None`` means half of
    ``max_handshakes``."""

    handshake_timeout: float = 10.0
    """Seconds that a handshake may take."""

    def __post_init__(self) -> None:
        for name in ("max_connections", "max_handshakes"):
            self._check_count(name, 1)
        self._check_count("accept_burst", 1, optional=True)
        if self.max_connections_per_address != "auto":
            self._check_count("max_connections_per_address", 1, optional=True)
        self._check_count("retry_handshakes", 0, optional=True)
        self._check_count("memory", MEMORY_MIN, MEMORY_MAX, " bytes", optional=True)
        self._check_number("accept_rate", optional=True)
        self._check_number("handshake_timeout")

    def _check_count(
        self,
        name: str,
        least: int,
        most: int = _COUNT_MAX,
        unit: str = "",
        *,
        optional: bool = False,
    ) -> None:
        value = getattr(self, name)
        if value is None and optional:
            return
        if not isinstance(value, int):
            raise QuicConfigurationError(name, f"must be a whole number, not {value!r}")
        if not least <= value <= most:
            raise QuicConfigurationError(name, f"must be {least} to {most}{unit}, not {value}")

    def _check_number(self, name: str, *, optional: bool = False) -> None:
        value = getattr(self, name)
        if value is None and optional:
            return
        is_number = isinstance(value, (int, float))
        if not is_number or not 0 < value <= sys.float_info.max:
            raise QuicConfigurationError(name, f"must be a positive number, not {value!r}")

    def _options(self) -> dict[str, Any]:
        """Returns the limits as options of the extension."""
        burst, retry = self.accept_burst, self.retry_handshakes
        if burst is None:
            burst = max(1, math.ceil(min(self.accept_rate or 1, 1 << 31)))
        return {
            "accept_burst": burst,
            "accept_rate": None if self.accept_rate is None else float(self.accept_rate),
            "handshake_timeout": float(self.handshake_timeout),
            "max_connections": self.max_connections,
            "max_connections_per_address": self._most_of_an_address(),
            "max_handshakes": self.max_handshakes,
            "memory": default_memory() if self.memory is None else self.memory,
            "retry_handshakes": self.max_handshakes // 2 if retry is None else retry,
        }

    def _most_of_an_address(self) -> int | None:
        """Returns the limit of one address, with ``"auto"`` resolved."""
        if self.max_connections_per_address != "auto":
            return self.max_connections_per_address
        return min(math.ceil(self.max_connections / _PER_ADDRESS_PARTS), _PER_ADDRESS_MAX)

    def _too_large_for_memory(self) -> dict[str, int]:
        """Returns the limits of connections for which ``memory`` is too small, each with the highest possible
        value."""
        options = self._options()
        in_all = options["memory"] // 2 // CONNECTION_BYTES
        rooms = {"max_connections": in_all, "max_connections_per_address": in_all // 2}
        return {name: room for name, room in rooms.items() if (options[name] or room) > room}
