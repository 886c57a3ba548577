"""Where a pool connects for an origin, and what it remembers of that between connections.

What is remembered makes the next connection begin sooner: a session ticket for 0-RTT data, an address
token (RFC 9000 section 8.1.3), and the address at which both are good. Each is shown once (RFC 8446
appendix C.4).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, replace

from uringcore.http3._url import Origin
from uringcore.quic.configuration import QuicConfiguration
from uringcore.tls import AddressToken, SessionTicket

__all__ = ["Memories", "Memory", "Route"]

# What a server sends at the end of a handshake; older tickets are no better.
TICKETS_MAX = 4

ROUTES_MAX = 1024
"""Routes that are remembered; the one that was used longest ago is forgotten first."""


@dataclass(frozen=True)
class Route:
    """An origin, and the host and port where it is served over HTTP/3: its own, or those of an
    alternative service (RFC 7838), which has to show the origin's certificate all the same."""

    origin: Origin
    host: str
    port: int

    @classmethod
    def direct(cls, origin: Origin) -> Route:
        """To the origin's own host and port."""
        return cls(origin, origin.host, origin.port)


class Memory:
    """What a route's last connections have left for the next one."""

    def __init__(self) -> None:
        self.tickets: deque[SessionTicket] = deque(maxlen=TICKETS_MAX)
        self.token: AddressToken | bytes = b""
        self.address: tuple[str, int] | None = None
        self.rtt = 0.0
        """Round-trip time of the last connection in seconds."""

    def keep_token(self, token: AddressToken | bytes) -> None:
        """The newest is kept."""
        self.token = token

    def take_early(self, configuration: QuicConfiguration) -> QuicConfiguration | None:
        """``configuration`` for a connection that may send 0-RTT data to ``address``, if there is a
        ticket for that; it is used up."""
        while self.tickets and self.address is not None:
            ticket = self.tickets.pop()
            if ticket.is_valid and ticket.max_early_data_size:
                token, self.token = self.token, b""
                return replace(configuration, session_ticket=ticket, token=token)
        return None

    def forget(self) -> None:
        """What is known has turned out wrong."""
        self.tickets.clear()
        self.token = b""
        self.address = None


class Memories:
    """The memories of all routes, the latest :data:`ROUTES_MAX`."""

    def __init__(self) -> None:
        self._by_route: OrderedDict[Route, Memory] = OrderedDict()

    def of(self, route: Route) -> Memory:
        """A route's, new or old."""
        memory = self._by_route.setdefault(route, Memory())
        self._by_route.move_to_end(route)
        if len(self._by_route) > ROUTES_MAX:
            self._by_route.popitem(last=False)
        return memory
