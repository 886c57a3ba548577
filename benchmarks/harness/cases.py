"""The cases and, for each, the load that it puts on a server.

A case names a family of servers (`servers/*.py` and native programs, see peers.py), the load
generator with its arguments, and how its numbers are told: per request or per MiB.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Unit:
    """What a rate counts and what processor time and system calls are divided by."""

    rate: str
    """The rate's name in tables, as "requests/s"."""
    per: str
    """The divisor's name in tables, as "request"."""

    def rate_of(self, sample: dict[str, float]) -> float:
        """The sample's rate in `self.rate`."""
        if self.per == "MiB":
            return sample["bytes"] * 8 / sample["seconds"] / 1e9
        return sample["requests"] / sample["seconds"]

    def count_of(self, sample: dict[str, float]) -> float:
        """How many of `self.per` the sample holds."""
        return sample["bytes"] / 2**20 if self.per == "MiB" else sample["requests"]


REQUESTS = Unit("requests/s", "request")
GIGABITS = Unit("Gbit/s", "MiB")


@dataclass(frozen=True)
class Case:
    """One table of BENCHMARK.md."""

    name: str
    title: str
    """The table's heading."""
    about: str
    """What travels between whom, in a sentence or two for the reader of the table."""
    family: str
    """The kind of server, a key of `peers.PEERS`."""
    unit: Unit
    load: tuple[str, ...]
    """The load generator's name and its arguments but for address, pid and times."""
    baseline: str
    """The peer that ratios refer to."""
    latency: bool = True
    """Whether the load reports round-trip percentiles."""
    tags: frozenset[str] = field(default_factory=frozenset)


def _tcp_echo(connections: int) -> Case:
    noun = "connection" if connections == 1 else "connections"
    return Case(
        name=f"tcp_echo_1k_c{connections}",
        title=f"TCP echo, 1 KiB, {connections} {noun}",
        about=(
            f"An `asyncio.Protocol` writes back what it gets; {connections} {noun}, one message of "
            "1,024 bytes in flight on each."
        ),
        family="tcp_echo",
        unit=REQUESTS,
        load=("tcp_load", "--connections", str(connections), "--size", "1024"),
        baseline="asyncio",
        tags=frozenset({"tcp"}),
    )


CASES: tuple[Case, ...] = (
    _tcp_echo(1),
    _tcp_echo(100),
    Case(
        name="quic_upload",
        title="QUIC bulk, client to server",
        about=(
            "A native quinn client writes 64 KiB pieces on one stream; the server under test reads "
            "them. Before the clock starts, 8 MiB are uploaded and their SHA-256 compared."
        ),
        family="quic_bulk",
        unit=GIGABITS,
        load=("quic_load", "--mode", "upload"),
        baseline="aioquic",
        latency=False,
        tags=frozenset({"quic"}),
    ),
    Case(
        name="quic_download",
        title="QUIC bulk, server to client",
        about=(
            "The server under test writes 64 KiB pieces on one stream, with whatever back pressure "
            "its API has; a native quinn client compares every byte."
        ),
        family="quic_bulk",
        unit=GIGABITS,
        load=("quic_load", "--mode", "download"),
        baseline="aioquic",
        latency=False,
        tags=frozenset({"quic"}),
    ),
    Case(
        name="h3_hello",
        title="HTTP/3 hello",
        about=(
            "A bare ASGI application answers `GET /` with 13 bytes; a native client (quinn and h3) "
            "keeps 4 connections with 8 requests each in flight and checks status and body."
        ),
        family="h3_hello",
        unit=REQUESTS,
        load=("h3_load", "--connections", "4", "--streams", "8"),
        baseline="hypercorn",
        tags=frozenset({"h3"}),
    ),
)


def select(names: list[str]) -> list[Case]:
    """The cases with these names or tags, in order; all for an empty list.

    Raises `ValueError` for a name that is neither.
    """
    if not names:
        return list(CASES)
    for name in names:
        if not any(name == case.name or name in case.tags for case in CASES):
            known = ", ".join(case.name for case in CASES)
            raise ValueError(f"cases: {name!r} is neither a case nor a tag; cases are {known}")
    return [case for case in CASES if case.name in names or case.tags & set(names)]
