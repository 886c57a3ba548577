"""A UDP proxy that impairs traffic: a network between two processes, in one process.

Each client address is a flow with its own socket towards the server, so the server sees each
client at an address of the proxy's, as behind a NAT. ECN marks are passed on. The proxy needs only an
asyncio loop with `add_reader`; `link` implements the impairments.

    async with ImpairmentProxy(("127.0.0.1", 4433), up=Conditions(loss=0.02), seed=1) as proxy:
        connect(*proxy.address)
        proxy.rebind(host="127.0.0.2")
"""

from __future__ import annotations

import asyncio
import heapq
import socket
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.support.packet_headers import Packet, packets
from tests.support.simulated_link import PERFECT, Conditions, Counts, Link

__all__ = ["Datagram", "Flow", "ImpairmentProxy"]

Address = Any

FLOWS_MAX = 10_000
"Clients whose flows are stored; a new one replaces the oldest."
CAPTURE_MAX = 200_000
"Datagrams that a capture keeps; the oldest are dropped."


@dataclass(frozen=True)
class Datagram:
    """A captured datagram: its headers, without its content."""

    time: float
    """The loop's time at which it entered the proxy."""
    up: bool
    """True from client to server."""
    flow: int
    size: int
    ecn: int
    """The two ECN bits: 0 not ECT, 1 ECT(1), 2 ECT(0), 3 CE."""
    arrives: bool
    """True if it was not dropped."""
    packets: tuple[Packet, ...]
    head: bytes = b""
    """The first bytes, as many as the removal of a short header's protection needs."""


@dataclass
class Flow:
    """One client's path through the proxy."""

    number: int
    client: Address
    sock: socket.socket
    """The socket towards the server, which sees its address."""
    rebinds: int = 0


class ImpairmentProxy:
    """Passes datagrams between clients and one server.

    `up` is the path from the clients to the server, `down` the path back; all flows share both,
    as a bottleneck. A seed gives equal results for equal sequences of datagrams.
    """

    def __init__(
        self,
        server: tuple[str, int],
        *,
        up: Conditions = PERFECT,
        down: Conditions | None = None,
        seed: int = 0,
        capture: bool = False,
        host: str | None = None,
    ) -> None:
        self._server = server
        self._family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
        self._host = host or ("::1" if self._family == socket.AF_INET6 else "127.0.0.1")
        # Two different seeds, otherwise both directions would lose equal datagrams.
        self._links = {
            True: Link(up, seed * 2),
            False: Link(up if down is None else down, seed * 2 + 1),
        }
        self._flows: dict[Address, Flow] = {}
        self._flow_count = 0
        self._retired: list[socket.socket] = []
        self._due: list[tuple[float, int, bool, Flow, bytes, int]] = []
        self._sequence = 0
        self._timer: asyncio.TimerHandle | None = None
        self._rebinding: asyncio.Task[None] | None = None
        self._front: socket.socket | None = None
        self.rebound: list[float] = []
        """The loop's times of calls of `rebind` with at least one flow."""
        self.refused = 0
        """Datagrams that the kernel did not accept, or that a closed peer refused."""
        self.stray = 0
        """Datagrams that arrived at an address that a flow no longer has."""
        self.captured: deque[Datagram] | None = deque(maxlen=CAPTURE_MAX) if capture else None

    async def __aenter__(self) -> ImpairmentProxy:
        self._loop = asyncio.get_running_loop()
        self._front = self._socket(self._host)
        self._loop.add_reader(self._front.fileno(), self._front_readable)
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._rebinding is not None:
            self._rebinding.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._due.clear()
        for sock in (self._front, *(flow.sock for flow in self._flows.values()), *self._retired):
            if sock is not None:
                self._loop.remove_reader(sock.fileno())
                sock.close()
        self._flows.clear()
        self._retired.clear()

    @property
    def address(self) -> tuple[str, int]:
        """The address for clients."""
        assert self._front is not None, "the proxy is not open"
        name = self._front.getsockname()
        return name[0], name[1]

    @property
    def flows(self) -> list[Flow]:
        """The flows, the oldest first."""
        return list(self._flows.values())

    @property
    def up(self) -> Counts:
        """Counts of the clients' datagrams."""
        return self._links[True].counts

    @property
    def down(self) -> Counts:
        """Counts of the server's datagrams."""
        return self._links[False].counts

    def set_conditions(self, up: Conditions, down: Conditions | None = None) -> None:
        """Changes the conditions; random state and counts continue."""
        self._links[True].conditions = up
        self._links[False].conditions = up if down is None else down

    def rebind(self, host: str | None = None) -> None:
        """Gives every flow another port, and the address `host`, towards the server.

        Datagrams that the server still sends to the old address are lost silently, as with an expired
        NAT mapping: the old socket stays open, so that no ICMP error is sent.
        """
        if self._flows:
            self.rebound.append(self._loop.time())
        for flow in self._flows.values():
            self._retire(flow.sock)
            flow.sock = self._flow_socket(flow, host)
            flow.rebinds += 1

    def rebind_every(
        self, first: float, interval: float, hosts: Iterable[str | None] = (None,)
    ) -> None:
        """Rebinds after `first` seconds and then every `interval`, cycling through `hosts`."""
        names = list(hosts)

        async def rebind() -> None:
            await asyncio.sleep(first)
            number = 0
            while True:
                self.rebind(names[number % len(names)])
                number += 1
                await asyncio.sleep(interval)

        self._rebinding = asyncio.ensure_future(rebind())

    # Sockets ------------------------------------------------------------------------------------

    def _socket(self, host: str) -> socket.socket:
        sock = socket.socket(self._family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                sock.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER)
            if self._family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
            else:
                sock.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
            sock.bind((host, 0))
        except OSError:
            sock.close()
            raise
        return sock

    def _flow_socket(self, flow: Flow | None, host: str | None) -> socket.socket:
        previous = host if flow is None or host else flow.sock.getsockname()[0]
        sock = self._socket(previous or self._host)
        if flow is not None:
            self._loop.add_reader(sock.fileno(), self._flow_readable, flow, sock)
        return sock

    def _retire(self, sock: socket.socket) -> None:
        self._loop.remove_reader(sock.fileno())
        self._retired.append(sock)
        self._loop.add_reader(sock.fileno(), self._retired_readable, sock)

    def _flow(self, client: Address) -> Flow:
        flow = self._flows.get(client)
        if flow is None:
            if len(self._flows) >= FLOWS_MAX:
                oldest = self._flows.pop(next(iter(self._flows)))
                self._loop.remove_reader(oldest.sock.fileno())
                oldest.sock.close()
            flow = Flow(self._flow_count, client, self._flow_socket(None, None))
            self._flow_count += 1
            self._flows[client] = flow
            self._loop.add_reader(flow.sock.fileno(), self._flow_readable, flow, flow.sock)
        return flow

    # Datagrams ----------------------------------------------------------------------------------

    def _front_readable(self) -> None:
        assert self._front is not None
        for data, ecn, client in self._received(self._front):
            self._carry(True, self._flow(client), data, ecn)

    def _flow_readable(self, flow: Flow, sock: socket.socket) -> None:
        for data, ecn, _ in self._received(sock):
            self._carry(False, flow, data, ecn)

    def _retired_readable(self, sock: socket.socket) -> None:
        self.stray += sum(1 for _ in self._received(sock))

    def _received(self, sock: socket.socket) -> Iterable[tuple[bytes, int, Address]]:
        for _ in range(_BATCH):
            try:
                data, ancillary, _, address = sock.recvmsg(65536, 64)
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionRefusedError:
                self.refused += 1
                continue
            # IP_TOS is one byte, IPV6_TCLASS an int in host byte order: the first byte contains the bits.
            ecn = next((value[0] & 3 for _, _, value in ancillary if value), 0)
            yield data, ecn, address

    def _carry(self, up: bool, flow: Flow, data: bytes, ecn: int) -> None:
        now = self._loop.time()
        arrivals = self._links[up].send(now, data)
        if self.captured is not None:
            seen = tuple(packets(data))
            head = data[:_HEAD_BYTES]
            kept = Datagram(now, up, flow.number, len(data), ecn, bool(arrivals), seen, head)
            self.captured.append(kept)
        for due, changed in arrivals:
            if due <= now and not self._due:
                self._deliver(up, flow, changed, ecn)
                continue
            self._sequence += 1
            heapq.heappush(self._due, (due, self._sequence, up, flow, changed, ecn))
        self._arm()

    def _arm(self) -> None:
        if not self._due:
            return
        due = self._due[0][0]
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._loop.time() + _TIMER_GRAIN
        while self._due and self._due[0][0] <= now:
            _, _, up, flow, data, ecn = heapq.heappop(self._due)
            self._deliver(up, flow, data, ecn)
        self._arm()

    def _deliver(self, up: bool, flow: Flow, data: bytes, ecn: int) -> None:
        sock, address = (flow.sock, self._server) if up else (self._front, flow.client)
        assert sock is not None
        if sock.fileno() < 0:
            self.stray += 1
            return
        level, kind = (
            (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)
            if self._family == socket.AF_INET6
            else (socket.IPPROTO_IP, socket.IP_TOS)
        )
        marks = [(level, kind, ecn.to_bytes(4, "little"))] if ecn else []
        try:
            sock.sendmsg([data], marks, 0, address)
        except (BlockingIOError, ConnectionRefusedError, PermissionError):
            self.refused += 1


# A byte of flags, a connection ID, four bytes of packet number and the sample (RFC 9001 section 5.4.2).
_HEAD_BYTES = 1 + 20 + 4 + 16
_BATCH = 64
"Datagrams of one socket that are handled before other sockets."
_TIMER_GRAIN = 0.0005
"Datagrams due within this time are delivered together: one timer each would be the bottleneck."
_SOCKET_BUFFER = 4 << 20
