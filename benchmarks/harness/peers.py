"""The peers of each family of cases: how to start a server, and how to tell that it is absent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.environment import Environment


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


def _python(module: str, *arguments: str) -> Callable[[Environment], list[str]]:
    return lambda environment: [
        str(environment.python),
        "-m",
        f"benchmarks.servers.{module}",
        *arguments,
        *environment.certificate_arguments(module),
    ]


def _native(program: str, *arguments: str) -> Callable[[Environment], list[str]]:
    return lambda environment: [
        str(environment.program(program)),
        *arguments,
        *environment.certificate_arguments(program),
    ]


def _loop(name: str, package: str | None, kind: str = "peer") -> Peer:
    # asyncio comes with the interpreter; pip stands in as the package that is always there.
    return Peer(name, package or "pip", _python("tcp_echo", "--loop", name), kind=kind)


def _quic(name: str, package: str, kind: str = "peer") -> Peer:
    return Peer(name, package, _python("quic_bulk", "--library", name), kind=kind)


def _h3(name: str, package: str, kind: str = "peer") -> Peer:
    return Peer(name, package, _python("h3_hello", "--server", name), kind=kind)


PEERS: dict[str, tuple[Peer, ...]] = {
    "tcp_echo": (
        _loop("asyncio", None),
        _loop("uvloop", "uvloop"),
        _loop("rloop", "rloop"),
        _loop("uringcore-uring", "uringcore", "ours"),
        _loop("uringcore-epoll", "uringcore", "ours"),
    ),
    "quic_bulk": (
        _quic("aioquic", "aioquic"),
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


def load_command(environment: Environment, load: tuple[str, ...], port: int, pid: int) -> list[str]:
    """The load generator's command line but for its times."""
    program: Path = environment.program(load[0])
    return [
        str(program),
        *load[1:],
        "--addr",
        f"127.0.0.1:{port}",
        "--pid",
        str(pid),
        *environment.authority_arguments(load[0]),
    ]
