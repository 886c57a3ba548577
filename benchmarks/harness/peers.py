"""The peers of each family of cases: how to start a server, and how to tell that it is absent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.cases import Case
from benchmarks.harness.environment import Environment
from benchmarks.harness.matrix import LOOPS

WITHOUT_TLS = frozenset({"rloop"})
"""Loops that serve no TLS."""


@dataclass(frozen=True)
class Peer:
    """A server that a case can be run against."""

    name: str
    package: str | None
    """The Python distribution it needs, or None for a native program."""
    command: Callable[[Environment], list[str]]
    program: str | None = None
    """The native program it needs."""
    kind: str = "peer"
    """`ours`, `peer` or `limit`: how the charts colour it."""

    def absent(self, environment: Environment) -> str | None:
        """Why it cannot run here, or None."""
        if self.program is not None:
            return environment.program_missing(self.program)
        assert self.package is not None
        return environment.package_missing(self.package)


def _python(module: str, *arguments: str, tls: bool = True) -> Callable[[Environment], list[str]]:
    return lambda environment: [
        str(environment.python),
        "-m",
        f"benchmarks.servers.{module}",
        *arguments,
        *(environment.certificate_arguments() if tls else ()),
    ]


def _native(program: str, *arguments: str) -> Callable[[Environment], list[str]]:
    return lambda environment: [
        str(environment.program(program)),
        *arguments,
        *environment.certificate_arguments(),
    ]


def _loops(module: str, style: str, *, tls: bool = False) -> tuple[Peer, ...]:
    """Every loop with one style of a server in `servers/`; with `tls` those that have TLS."""
    return tuple(
        Peer(
            column.name,
            column.package,
            _python(module, "--loop", column.name, "--style", style, tls=tls),
            kind="ours" if column.package == "uringcore" else "peer",
        )
        for column in LOOPS
        if not (tls and column.name in WITHOUT_TLS)
    )


def _quic(name: str, package: str, kind: str = "peer") -> Peer:
    return Peer(name, package, _python("quic_bulk", "--library", name), kind=kind)


def _quic_peers() -> tuple[Peer, ...]:
    return (
        _quic("aioquic", "aioquic"),
        _quic("qh3", "qh3"),
        _quic("aiopquic", "aiopquic"),
        _quic("uringcore-uring", "uringcore", "ours"),
        _quic("uringcore-epoll", "uringcore", "ours"),
        Peer("quinn", None, _native("quinn_server"), program="quinn_server", kind="limit"),
    )


def _h3(name: str, package: str, kind: str = "peer") -> Peer:
    return Peer(name, package, _python("h3_hello", "--server", name), kind=kind)


PEERS: dict[str, tuple[Peer, ...]] = {
    "tcp_echo": _loops("echo", "protocol"),
    "buffered_echo": _loops("echo", "buffered"),
    "streams_echo": _loops("echo", "streams"),
    "sock_echo": _loops("echo", "sock"),
    "tls_echo": _loops("echo", "protocol", tls=True),
    "udp_echo": _loops("echo", "udp"),
    "slow_upload": _loops("slow_upload", "protocol"),
    "slow_upload_streams": _loops("slow_upload", "streams"),
    "slow_upload_tls": _loops("slow_upload", "protocol", tls=True),
    "quic": _quic_peers(),
    # The engine without Python serves 64 KiB writes only.
    "quic_bulk": (
        _quic("aioquic", "aioquic"),
        _quic("qh3", "qh3"),
        _quic("aiopquic", "aiopquic"),
        _quic("uringcore-uring", "uringcore", "ours"),
        _quic("uringcore-epoll", "uringcore", "ours"),
        Peer(
            "engine",
            None,
            _native("engine_server"),
            program="engine_server",
            kind="limit",
        ),
        Peer("quinn", None, _native("quinn_server"), program="quinn_server", kind="limit"),
    ),
    "h3_hello": (
        _h3("hypercorn", "hypercorn"),
        _h3("uringcore-uring", "uringcore", "ours"),
        _h3("uringcore-epoll", "uringcore", "ours"),
        Peer("quinn + h3", None, _native("h3_server"), program="h3_server", kind="limit"),
    ),
}


def kind_of(family: str, name: str) -> str:
    """How the charts colour the peer `name`."""
    return next((peer.kind for peer in PEERS[family] if peer.name == name), "peer")


def load_command(environment: Environment, case: Case, port: int, pid: int) -> list[str]:
    """The load generator's command line but for its times."""
    program: Path = environment.program(case.load[0])
    return [
        str(program),
        *case.load[1:],
        "--addr",
        f"127.0.0.1:{port}",
        "--pid",
        str(pid),
        *(environment.authority_arguments() if case.tls else ()),
    ]
