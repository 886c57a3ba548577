"""Peer addresses that are not IP addresses, for a connection whose datagrams the program moves itself.

Such a program may use any name for its peer: a host name, a socket's path, ``None``. aioquic only compares
these names. Here each name is mapped to an IP address inside the connection, from the discard prefix (RFC
6666), and the program gets its own name back. No name is looked up.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

__all__ = ["PeerNames"]


class PeerNames:
    """The names that a program uses for the peers of one connection, each mapped to an IP address."""

    def __init__(self) -> None:
        self.plain: Any = object()
        "The latest address that needs no mapping: an IP address. The initial object equals no address."
        # The IP address of each of the program's names. The name that was used least recently comes first.
        self._addresses: OrderedDict[Any, tuple[str, int]] = OrderedDict()
        self.names: dict[tuple[str, int], Any] = {}
        "The program's name of each address. Empty if the program uses IP addresses."
        self._server: tuple[str, int] | None = None
        self._made = 0

    def begin(self, name: Any) -> Any:
        """Returns the address of the server that a client connects to."""
        address = self.address_of(name, list)
        if address is not name:
            self._server = address
        return address

    def address_of(self, name: Any, in_use: Callable[[], list[Any]]) -> Any:
        """Returns the IP address for a name, or the name itself if it is an IP address.

        ``in_use()`` returns the addresses that the connection sends to, which are kept.
        """
        if name == self.plain:
            return name
        if _is_ip(name):
            if self._server is not None:
                # The client has named its server by something other than an IP address. Packets from any
                # address count as the server's, because packets are authenticated.
                return self._server
            self.plain = name
            return name
        known = self._addresses.get(name)
        if known is not None:
            self._addresses.move_to_end(name)
            return known
        if len(self._addresses) >= _NAMES_MAX:
            self._forget_one(in_use())
        address = self._unused_address()
        self._addresses[name] = address
        self.names[address] = name
        return address

    def _forget_one(self, in_use: list[Any]) -> None:
        """Removes the name that was not used for longest, unless the connection still sends to its
        address."""
        used = {address[:2] for address in in_use if address is not None}
        used.add(self._server)
        for name, address in self._addresses.items():
            if address not in used:
                del self._addresses[name], self.names[address]
                return

    def _unused_address(self) -> tuple[str, int]:
        while True:
            self._made = self._made % 0xFFFF + 1
            address = (f"{_PREFIX}{self._made:x}", 443)
            if address not in self.names:
                return address

    def name_of(self, address: Any) -> Any:
        """Returns the program's name for an IP address. ``None`` if the name was removed."""
        if address is None or not self.names:
            return address
        default = None if address[0].startswith(_PREFIX) else address
        return self.names.get(address[:2], default)

    def with_program_names(self, datagrams: list[tuple[bytes, Any]]) -> list[tuple[bytes, Any]]:
        """Replaces the IP addresses of datagrams by the program's names."""
        # The name was removed in the meantime, so its datagrams are dropped as if they were lost.
        return [
            (data, self.name_of(address))
            for data, address in datagrams
            if address[:2] in self.names or not address[0].startswith(_PREFIX)
        ]


def _is_ip(name: Any) -> bool:
    if not isinstance(name, tuple) or len(name) not in (2, 4) or not isinstance(name[0], str):
        return False
    try:
        address = ipaddress.ip_address(name[0])
    except ValueError:
        return False
    # Real addresses with the prefix of mapped ones count as names, so that none is mistaken for a mapped one.
    return not str(address).startswith(_PREFIX)


# The discard prefix (RFC 6666), as Rust prints it.
_PREFIX = "100::"
# The maximum number of names. A connection has few paths at a time.
_NAMES_MAX = 64
