"""The checks of each case, on the proxy's capture.

Each check raises `AssertionError` with a sentence. None relies on an endpoint's own report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.runner.keys import cipher_and_phases
from tests.support.packet_headers import VERSION_1, VERSION_2, Packet
from tests.support.simulated_link import Counts
from tests.support.udp_proxy import Datagram

__all__ = ["Check", "Evidence"]


@dataclass
class Evidence:
    """One run of a case."""

    datagrams: list[Datagram]
    key_log: Path
    up: Counts
    down: Counts
    bytes: int
    """The size of all files."""
    seconds: float
    """Time from the client's start to its end."""
    rebinds: list[float] = field(default_factory=list)
    """Times at which the client's address changed."""
    figures: dict[str, float] = field(default_factory=dict)

    def packets(self, up: bool, *kinds: str) -> Iterator[Packet]:
        """Returns the packets of a direction, of these kinds, in order."""
        for datagram in self.datagrams:
            if datagram.up is up:
                yield from (packet for packet in datagram.packets if packet.kind in kinds)

    def handshakes(self) -> set[tuple[int, bytes]]:
        """Returns a client's address and connection ID for each handshake; the ID alone may be
        empty.
        """
        return {
            (datagram.flow, packet.source)
            for datagram in self.datagrams
            for packet in datagram.packets
            if datagram.up and packet.kind == "initial"
        }


Check = Callable[[Evidence], None]


def connections(count: int) -> Check:
    """Exactly this many handshakes occurred."""

    def check(evidence: Evidence) -> None:
        found = len(evidence.handshakes())
        assert found == count, f"{found} handshakes, not {count}"

    return check


def retried(evidence: Evidence) -> None:
    """The server sent a Retry, and the client sent its token in an Initial."""
    tokens = {packet.token for packet in evidence.packets(False, "retry")}
    assert tokens, "the server sent no Retry"
    used = {packet.token for packet in evidence.packets(True, "initial")}
    assert tokens & used, "the client did not use the Retry's token"


def resumed(evidence: Evidence) -> None:
    """The second handshake of the server has no certificates: it is far smaller."""
    sizes: dict[int, int] = {}
    for datagram in evidence.datagrams:
        if not datagram.up:
            size = sum(p.size for p in datagram.packets if p.kind == "handshake")
            sizes[datagram.flow] = sizes.get(datagram.flow, 0) + size
    assert len(sizes) == 2, f"{len(sizes)} connections, not 2"
    first, second = (sizes[flow] for flow in sorted(sizes))
    assert second < first * 0.6, (
        f"{second} bytes of handshake on the second connection, {first} on the first: not resumed"
    )


def early(evidence: Evidence) -> None:
    """The client sent 0-RTT packets on the second connection."""
    flows = {
        d.flow for d in evidence.datagrams if d.up and any(p.kind == "0rtt" for p in d.packets)
    }
    assert flows, "no 0-RTT packet was sent"
    assert min(flows) > min(d.flow for d in evidence.datagrams), "0-RTT on the first connection"


def keys_updated(evidence: Evidence) -> None:
    """The second key phase occurs in both directions.

    The first one may be missing: a client's only packet of it can be coalesced behind a handshake
    packet.
    """
    for up in (True, False):
        _, phases = cipher_and_phases(evidence.datagrams, up, evidence.key_log)
        side = "client" if up else "server"
        assert 1 in phases, f"the {side} did not change its keys"


def chacha20(evidence: Evidence) -> None:
    """ChaCha20's header protection covers the packets."""
    for up in (True, False):
        cipher, _ = cipher_and_phases(evidence.datagrams, up, evidence.key_log)
        assert cipher == "CHACHA20_POLY1305", f"the cipher is {cipher}"


def switched_to_version_2(evidence: Evidence) -> None:
    """The first Initial has version 1, all handshake packets have version 2, without a Version
    Negotiation packet.
    """
    first = next(evidence.packets(True, "initial"))
    assert first.version == VERSION_1, "the client did not begin with version 1"
    assert not list(evidence.packets(False, "negotiation")), "a Version Negotiation was sent"
    for up in (True, False):
        versions = {packet.version for packet in evidence.packets(up, "handshake")}
        assert versions == {VERSION_2}, f"handshake packets are of versions {versions}"


def version_2_throughout(evidence: Evidence) -> None:
    """No packet has another version."""
    for up in (True, False):
        kinds = ("initial", "handshake", "0rtt", "retry", "negotiation", "unknown")
        versions = {p.version for p in evidence.packets(up, *kinds) if p.version is not None}
        assert versions == {VERSION_2}, f"packets are of versions {versions}"


def marked(evidence: Evidence) -> None:
    """1-RTT packets are ECT(0) both ways to the end: an endpoint that gets no ACK-ECN counts stops
    marking.
    """
    for up in (True, False):
        marks = [
            datagram.ecn
            for datagram in evidence.datagrams
            if datagram.up is up and datagram.packets and datagram.packets[0].kind == "short"
        ]
        side = "client" if up else "server"
        assert marks, f"the {side} sent no 1-RTT packets"
        share = sum(mark in (1, 2) for mark in marks) / len(marks)
        assert share > 0.9, f"the {side} marked {share:.0%} of its 1-RTT packets"


def within_amplification_limit(evidence: Evidence) -> None:
    """Until the client's address is validated, the server sends at most 4 times the bytes that
    reached it.

    RFC 9000 section 8.1 requires 3; the public runner tolerates 4, and so does this check.
    """
    received = sent = 0
    for datagram in evidence.datagrams:
        if datagram.up:
            if not datagram.arrives:
                continue
            if any(packet.kind == "handshake" for packet in datagram.packets):
                assert sent > 0, "the server sent nothing"
                return
            received += datagram.size
        else:
            sent += datagram.size
            assert sent <= 4 * received, f"{sent} bytes sent for {received} received"
    raise AssertionError("the client's address was never proved")


def went_on_after_rebinding(evidence: Evidence) -> None:
    """The server followed the client to every address that was used for a second."""
    assert evidence.rebinds, "the client's address never changed: the transfer was too short"
    ends = [*evidence.rebinds[1:], evidence.datagrams[-1].time]
    for begin, end in zip(evidence.rebinds, ends, strict=True):
        down = [d for d in evidence.datagrams if not d.up and begin < d.time < end]
        if end - begin > 1:
            assert down, "the server sent nothing to an address of the client's"


def moved_by_itself(evidence: Evidence) -> None:
    """The file came to a second address of the client, which has a connection ID of its own."""
    ups: dict[int, list[Datagram]] = {}
    for datagram in evidence.datagrams:
        if datagram.up:
            ups.setdefault(datagram.flow, []).append(datagram)
    assert len(ups) == 2, f"the client had {len(ups)} addresses, not 2"
    first, second = (ups[flow] for flow in sorted(ups))
    kinds = {packet.kind for datagram in second for packet in datagram.packets}
    assert kinds == {"short"}, f"the second address sent {kinds}"
    # Connection IDs have four bytes or more with every peer.
    shared = {d.head[1:5] for d in second} & {d.head[1:5] for d in first}
    assert not shared, "the second address used a connection ID of the first"
    down = [d for d in evidence.datagrams if not d.up and d.flow == second[0].flow]
    size = sum(datagram.size for datagram in down)
    assert size > evidence.bytes / 2, f"{size} bytes came to the second address"


def moved_to_preferred_address(evidence: Evidence) -> None:
    """The file took another path: the server's preferred address is not behind the proxy."""
    assert evidence.handshakes(), "the client did not come to the first address"
    passed = evidence.down.bytes_arrived
    assert passed < evidence.bytes / 2, (
        f"{passed} bytes came from the first address, for files of {evidence.bytes}"
    )


def goodput(evidence: Evidence) -> None:
    """This check requires nothing: the figure is the result."""
    evidence.figures["kbit/s"] = round(evidence.bytes * 8 / evidence.seconds / 1000)
