"""Time limits for the phases of a request; bounds of a client's connections."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits", "Timeouts"]


@dataclass(frozen=True)
class Timeouts:
    """Seconds that each phase may take, under httpx's names; ``None`` sets no limit."""

    connect: float | None = 5.0
    """Seconds from the look-up of the server's name to the end of the handshake. Above it:
    :class:`~uringcore.http3.ConnectTimeoutError`."""

    read: float | None = 5.0
    """Seconds from the end of the request to the response's header section, and then between two parts of the
    body. Above it: :class:`~uringcore.http3.ReadTimeoutError`."""

    write: float | None = 5.0
    """Seconds that a request's body may wait until the server reads more of it. Above it:
    :class:`~uringcore.http3.WriteTimeoutError`."""

    pool: float | None = 5.0
    """Seconds that a request may wait for a free stream while all are in use. Above it:
    :class:`~uringcore.http3.PoolTimeoutError`."""


NO_TIMEOUTS = Timeouts(connect=None, read=None, write=None, pool=None)


@dataclass(frozen=True)
class Limits:
    """The bounds of a :class:`~uringcore.http3.Client`."""

    connections: int = 100
    """Connections in all. An idle one makes room for another origin's; then requests wait."""

    connections_per_origin: int = 4
    """Connections to one origin; the next one is opened when the streams of those before are in use."""

    streams_per_connection: int = 100
    """Requests at once on a connection. Requests beyond the server's own limit wait in QUIC, for as long as
    ``Timeouts.read``."""

    waiting: int = 1000
    """Requests of an origin that may wait for a stream; one more is a ``PoolTimeoutError`` at once."""

    idle_timeout: float = 30.0
    """Seconds for which a connection without a request is kept."""

    def __post_init__(self) -> None:
        for name in ("connections", "connections_per_origin", "streams_per_connection", "waiting"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}: must be a whole number of at least 1, not {value!r}")
        if not isinstance(self.idle_timeout, (int, float)) or not self.idle_timeout >= 0:
            raise ValueError(f"idle_timeout: must be 0 or more, not {self.idle_timeout!r}")
