"""The table of cases: the transfer, the network, and the required evidence.

The network of the public runner has 15 ms each way, 10 Mbit/s and a queue of 25 datagrams; the
matrix omits it in cases where it would only cost time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.interop.runner import evidence
from tests.interop.runner.evidence import Check
from tests.support.simulated_link import PERFECT, Conditions
from tests.support.udp_proxy import ImpairmentProxy

__all__ = ["CASES", "Case"]

KB, MB = 1 << 10, 1 << 20
NETWORK = {"delay": 0.015, "rate": 10e6, "queue": 25}
LINE = Conditions(**NETWORK)
SERVER, CLIENT = ("server",), ("client",)


@dataclass(frozen=True)
class Case:
    """Measures one row of the table."""

    name: str
    title: str
    """The case's title in the table."""
    files: tuple[int, ...]
    """The size of each file in bytes."""
    checks: tuple[Check, ...] = (evidence.connections(1),)
    server: str | None = None
    """The server's TESTCASE, if it differs from the name."""
    client: str | None = None
    """The client's TESTCASE, if it differs from the name."""
    up: Conditions = PERFECT
    down: Conditions | None = None
    during: Callable[[ImpairmentProxy], None] | None = None
    """Called with the proxy once it is open."""
    host: str = "127.0.0.1"
    rival: bool = False
    """True if another transfer of these files shares the bottleneck. The public runner uses TCP for this,
    which cannot pass a proxy of datagrams.
    """
    chain: int = 2
    """The number of certificates that the server sends."""
    seconds: float = 60.0
    """The client's time limit."""
    matrix: bool = False
    """True for the matrix of all peers. Each of its cases is also one of the public runner's."""
    quick: bool = False
    """True for the ordinary test run."""
    table: str = "quic"
    """The table that contains the case's row: `quic`, `web` or `webtransport`."""
    roles: tuple[str, ...] = ("server", "client")
    """The roles of uringcore that are tested, if the other one would show nothing."""
    direct: bool = False
    """The client connects to the server itself, because the case needs its TCP port as well."""
    drained: bool = False
    """The server is stopped while it holds a response back (application.py of the web's peers)."""


def _lossy(**harm: float) -> Conditions:
    return Conditions(**NETWORK, **harm)  # type: ignore[arg-type]


def _rebind(*hosts: str | None) -> Callable[[ImpairmentProxy], None]:
    return lambda proxy: proxy.rebind_every(1.0, 5.0, hosts or (None,))


def _web(name: str, title: str, files: tuple[int, ...] = (KB,), **more: object) -> Case:
    return Case(f"web-{name}", title, files, matrix=True, table="web", **more)  # type: ignore[arg-type]


def _webtransport(name: str, title: str, quick: bool = True) -> Case:
    return Case(f"wt-{name}", title, (), checks=(), matrix=True, quick=quick, table="webtransport")


CASES: dict[str, Case] = {
    case.name: case
    for case in (
        Case("handshake", "one handshake, 1 KiB", (KB,), matrix=True, quick=True),
        Case(
            "transfer", "10 MiB in three files", (5 * MB, 3 * MB, 2 * MB), matrix=True, quick=True
        ),
        Case(
            "multiplexing",
            "1,000 streams, more than the first credit",
            (32,) * 1000,
            matrix=True,
            quick=True,
        ),
        Case(
            "resumption",
            "a second connection resumed",
            (5 * KB, 10 * KB),
            checks=(evidence.connections(2), evidence.resumed),
            chain=5,
            matrix=True,
            quick=True,
        ),
        Case(
            "zerortt",
            "requests in 0-RTT",
            (5 * KB,) + (32,) * 20,
            checks=(evidence.connections(2), evidence.resumed, evidence.early),
            chain=5,
            matrix=True,
            quick=True,
        ),
        Case(
            "retry",
            "address validation by Retry",
            (KB,),
            checks=(evidence.connections(1), evidence.retried),
            matrix=True,
            quick=True,
        ),
        Case(
            "keyupdate",
            "both sides change keys within 3 MiB",
            (3 * MB,),
            server="transfer",
            checks=(evidence.connections(1), evidence.keys_updated),
            matrix=True,
            quick=True,
        ),
        Case(
            "chacha20",
            "ChaCha20-Poly1305 alone",
            (3 * MB,),
            checks=(evidence.connections(1), evidence.chacha20),
            matrix=True,
            quick=True,
        ),
        Case(
            "v2first",
            "QUIC version 2 from the first packet",
            (KB,),
            checks=(evidence.connections(1), evidence.version_2_throughout),
            matrix=True,
            quick=True,
        ),
        Case(
            "v2",
            "version 1 to 2 by compatible negotiation",
            (KB,),
            checks=(evidence.connections(1), evidence.switched_to_version_2),
            matrix=True,
            quick=True,
        ),
        Case("http3", "files over HTTP/3", (500 * KB,) * 4 + (1 * MB,), matrix=True, quick=True),
        Case("ipv6", "as transfer, over IPv6", (2 * MB, 3 * MB), host="::1", matrix=True),
        Case("datagram", "100 DATAGRAM frames and back", (), matrix=True, quick=True),
        Case("closecodes", "codes of reset, stop and close", (), matrix=True, quick=True),
        Case(
            "rebind-port",
            "the client's port changes (NAT)",
            (6 * MB,),
            server="transfer",
            client="transfer",
            checks=(evidence.connections(1), evidence.went_on_after_rebinding),
            up=LINE,
            during=_rebind(),
            matrix=True,
        ),
        Case(
            "rebind-addr",
            "the client's address changes (NAT)",
            (6 * MB,),
            server="transfer",
            client="transfer",
            checks=(evidence.connections(1), evidence.went_on_after_rebinding),
            up=LINE,
            during=_rebind("127.0.0.2", "127.0.0.3", "127.0.0.4"),
            matrix=True,
        ),
        Case(
            "migrate",
            "the client moves to another socket by itself",
            (2 * MB,),
            server="transfer",
            checks=(evidence.connections(1), evidence.moved_by_itself),
            up=LINE,
            matrix=True,
        ),
        Case(
            "ecn",
            "ECT(0) and ACK-ECN both ways",
            (2 * MB,),
            checks=(evidence.connections(1), evidence.marked),
            up=LINE,
            matrix=True,
        ),
        Case(
            "connectionmigration",
            "the client moves to the preferred address",
            (2 * MB,),
            client="transfer",
            checks=(evidence.connections(1), evidence.moved_to_preferred_address),
            up=LINE,
        ),
        Case(
            "longrtt",
            "750 ms each way",
            (KB,),
            server="handshake",
            client="handshake",
            up=Conditions(**{**NETWORK, "delay": 0.75}),
            seconds=30,
        ),
        Case(
            "blackhole",
            "5 s up, 2 s down",
            (10 * MB,),
            server="transfer",
            client="transfer",
            up=_lossy(black_hole=(5.0, 2.0)),  # type: ignore[arg-type]
        ),
        Case(
            "amplificationlimit",
            "nine certificates, client datagrams 2 to 7 lost",
            (5 * KB,),
            server="transfer",
            client="transfer",
            checks=(evidence.within_amplification_limit,),
            up=_lossy(drop=frozenset(range(2, 8))),  # type: ignore[arg-type]
            down=LINE,
            chain=9,
        ),
        Case(
            "handshakeloss",
            "50 connections at 30 % loss",
            (KB,) * 50,
            server="multiconnect",
            client="multiconnect",
            checks=(evidence.connections(50),),
            up=_lossy(loss=0.3, burst_max=3),
            seconds=300,
        ),
        Case(
            "handshakecorruption",
            "50 connections at 30 % corruption",
            (KB,) * 50,
            server="multiconnect",
            client="multiconnect",
            # A corrupted Initial has corrupted IDs, which may look like another connection: not
            # counted.
            checks=(),
            up=_lossy(corrupt=0.3, corrupt_max=3),
            seconds=300,
        ),
        Case(
            "transferloss",
            "2 % loss both ways",
            (2 * MB,),
            server="transfer",
            client="transfer",
            up=_lossy(loss=0.02, burst_max=3),
            quick=True,
        ),
        Case(
            "transfercorruption",
            "2 % corruption both ways",
            (2 * MB,),
            server="transfer",
            client="transfer",
            up=_lossy(corrupt=0.02, corrupt_max=3),
            quick=True,
        ),
        Case(
            "goodput",
            "10 Mbit/s alone",
            (10 * MB,),
            server="transfer",
            client="transfer",
            checks=(evidence.connections(1), evidence.goodput),
            up=LINE,
        ),
        Case(
            "crosstraffic",
            "10 Mbit/s shared with a second transfer",
            (10 * MB,),
            server="transfer",
            client="transfer",
            checks=(evidence.goodput,),
            up=LINE,
            rival=True,
            seconds=120,
        ),
        _web("get", "GET of 1 KiB, 100 KiB and 1 MiB", (KB, 100 * KB, MB), quick=True),
        _web("post", "POST of 1 MiB, and back", (MB,), quick=True),
        _web(
            "resumption",
            "a second connection resumed",
            (5 * KB, 10 * KB),
            checks=(evidence.connections(2), evidence.resumed),
            chain=5,
            quick=True,
        ),
        _web(
            "zerortt",
            "GET in 0-RTT",
            (5 * KB, 32),
            checks=(evidence.connections(2), evidence.resumed, evidence.early),
            chain=5,
            quick=True,
        ),
        _web("hints", "an interim response", files=(), quick=True),
        _web("trailers", "a trailer section", files=(), quick=True),
        _web("goaway", "SIGTERM while a response is under way", (MB,), drained=True, roles=SERVER),
        _web("resume", "`uringcore get -C -` of 20 MiB", (20 * MB,), roles=CLIENT),
        _web("altsvc", "found by Alt-Svc over TCP", checks=(), direct=True, roles=CLIENT),
        _web("websocket", "messages of a WebSocket", files=(), roles=CLIENT),
        _web("broken", "a response cut short, and the next one", (KB,), roles=CLIENT),
        _webtransport("echo", "1 MiB on a stream, and twenty at once"),
        _webtransport("streams", "unidirectional both ways, bidirectional of the server's"),
        _webtransport("datagrams", "100 datagrams and back"),
        _webtransport("close", "the server's close code and reason"),
        _webtransport("closed", "the client's close code and reason"),
        _webtransport("codes", "codes of reset and stop"),
        _webtransport("refusal", "a path that is not served"),
        _webtransport("protocol", "negotiation of a protocol", quick=False),
    )
}
