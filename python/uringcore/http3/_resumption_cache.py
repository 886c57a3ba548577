"""The cache of session tickets, address tokens and addresses with which the next connection begins sooner.

A ticket permits 0-RTT data, and a token proves the client's address (RFC 9000 section 8.1.3). Both are used
once (RFC 8446 appendix C.4), and only at the address of the connection that delivered them. The cache has an
entry for each route: an origin and the place where it is served.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, replace

from uringcore.http3._url import Origin
from uringcore.quic.configuration import QuicConfiguration
from uringcore.tls import AddressToken, SessionTicket

__all__ = ["ResumptionCache", "ResumptionState", "Route"]

# The maximum number of tickets of a route. A server sends a few at the end of a handshake.
TICKETS_MAX = 4

ROUTES_MAX = 1024
"""The maximum number of entries. The least recently used one is removed first."""


@dataclass(frozen=True)
class Route:
    """An origin, and the host and port where it is served over HTTP/3: its own, or those of an alternative
    service (RFC 7838), which must show the origin's certificate too."""

    origin: Origin
    host: str
    port: int

    @classmethod
    def direct(cls, origin: Origin) -> Route:
        """Returns the route to the host and port of the origin itself."""
        return cls(origin, origin.host, origin.port)


class ResumptionState:
    """Tickets, token and address of a route's last connections."""

    def __init__(self) -> None:
        self.tickets: deque[SessionTicket] = deque(maxlen=TICKETS_MAX)
        self.token: AddressToken | bytes = b""
        self.address: tuple[str, int] | None = None
        self.rtt = 0.0
        """The round-trip time of the last connection in seconds."""

    def keep_token(self, token: AddressToken | bytes) -> None:
        """Keeps the newest token."""
        self.token = token

    def take_early(self, configuration: QuicConfiguration) -> QuicConfiguration | None:
        """``configuration`` with a ticket, which is removed, for a connection that may send 0-RTT data to
        ``address``; ``None`` without a valid ticket."""
        while self.tickets and self.address is not None:
            ticket = self.tickets.pop()
            if ticket.is_valid and ticket.max_early_data_size:
                token, self.token = self.token, b""
                return replace(configuration, session_ticket=ticket, token=token)
        return None

    def forget(self) -> None:
        """Removes everything, after a failure at the remembered address."""
        self.tickets.clear()
        self.token = b""
        self.address = None


class ResumptionCache:
    """The states of the :data:`ROUTES_MAX` routes that were used last."""

    def __init__(self) -> None:
        self._by_route: OrderedDict[Route, ResumptionState] = OrderedDict()

    def of(self, route: Route) -> ResumptionState:
        """Returns the state of a route, which is empty if there was none."""
        state = self._by_route.setdefault(route, ResumptionState())
        self._by_route.move_to_end(route)
        if len(self._by_route) > ROUTES_MAX:
            self._by_route.popitem(last=False)
        return state
