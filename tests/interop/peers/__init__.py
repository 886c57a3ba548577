"""The implementations that the interoperability tests run as processes, and the command of each.

Every peer has the command line of `examples.interop` (role, `--testcase`, folders; the requests
come in the environment) and its exit status, which is 127 for an unsupported case. Beside the
public runner's cases they support two of this project's own, `datagram` and `closecodes` (see
`probe.py`), and some support those of HTTP/3 (../web) and WebTransport (../webtransport). `installed`
locates the programs; tests/support/third_party_programs.py builds those whose sources are here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.interop.peers.installed import (
    HERE,
    ROOT,
    caddy,
    curl,
    nginx,
    program_version,
    python_with,
)
from tests.support.third_party_programs import Unavailable, in_go, in_rust, run

__all__ = ["OURS", "PEERS", "ROOT", "TABLES", "Peer", "Unavailable", "version_of"]

PROBES = ("datagram", "closecodes")
BESIDE = HERE.parent
"""The folder of the programs in Go and Rust."""


@dataclass(frozen=True)
class Peer:
    """One implementation."""

    name: str
    words: Callable[[str], list[str]]
    """Returns the command for a TESTCASE, up to the role. Raises `Unavailable`."""
    roles: tuple[str, ...] = ("server", "client")
    """The roles that it supports."""

    def command(self, role: str, test_case: str) -> list[str]:
        """Returns the command line up to its options."""
        return [*self.words(test_case), role]

    def missing(self, test_case: str = "handshake") -> str | None:
        """Returns the reason why the peer cannot run here, or None."""
        try:
            self.words(test_case)
        except Unavailable as exc:
            return str(exc)
        return None


def _ours(backend: str) -> Callable[[str], list[str]]:
    def words(test_case: str) -> list[str]:
        on_backend = ["env", f"URINGCORE_BACKEND={backend}"]
        if test_case.startswith("web-"):
            return [*on_backend, *_web(OURS)(test_case)]
        if test_case.startswith("wt-"):
            return [*on_backend, *_webtransport(OURS)(test_case)]
        module = ["examples.interop"]
        if test_case in PROBES:
            module = ["tests.interop.peers.python", "uringcore"]
        return [*on_backend, sys.executable, "-m", *module]

    return words


def _library(name: str) -> Callable[[str], list[str]]:
    def words(test_case: str) -> list[str]:
        if test_case.startswith("web-"):
            return _web(name)(test_case)
        if test_case.startswith("wt-"):
            return _webtransport(name)(test_case)
        return [str(python_with(name)), "-m", "tests.interop.peers.python", name]

    return words


def _web(name: str, needs: Callable[[], object] = lambda: None) -> Callable[[str], list[str]]:
    """A program of tests/interop/web, if the program that it `needs` is available."""

    def words(test_case: str) -> list[str]:
        needs()
        python = python_with(name) if name in LIBRARIES else Path(sys.executable)
        return [str(python), "-m", "tests.interop.web", name]

    return words


def _webtransport(name: str) -> Callable[[str], list[str]]:
    """A library of tests/interop/webtransport."""

    def words(test_case: str) -> list[str]:
        ours = name.startswith(OURS)
        python = Path(sys.executable) if ours else python_with(name)
        return [str(python), "-m", "tests.interop.webtransport", name]

    return words


def version_of(name: str) -> str:
    """Returns the peer's version, of its package or of the file that pins it; for uringcore that of
    this tree.
    """
    if name in PINNED:
        file, before = PINNED[name]
        return _pinned(BESIDE / file, before)
    if name.startswith(OURS):
        return ""
    if name in PROGRAMS:
        return program_version(PROGRAMS[name]())
    code = f"from importlib.metadata import version; print(version({name!r}))"
    return run([python_with(name), "-c", code]).strip()


def _pinned(path: Path, before: str) -> str:
    _, _, rest = path.read_text().partition(before)
    return rest.split()[0].strip('"') if rest else ""


OURS = "uringcore"
LIBRARIES = ("aioquic", "niquests")
PINNED = {
    "quic-go": ("quicgo/go.mod", "github.com/quic-go/quic-go v"),
    "quinn": ("quinn/Cargo.lock", 'name = "quinn"\nversion = "'),
    "webtransport-go": ("webtransportgo/go.mod", "github.com/quic-go/webtransport-go v"),
    "web-transport-quinn": (
        "webtransportquinn/Cargo.lock",
        'name = "web-transport-quinn"\nversion = "',
    ),
}
PROGRAMS = {"curl": curl, "nginx": nginx, "caddy": caddy}
PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(OURS, _ours("uring")),
        Peer("uringcore-epoll", _ours("epoll")),
        Peer("aioquic", _library("aioquic")),
        Peer("qh3", _library("qh3")),
        Peer("aiopquic", _library("aiopquic")),
        Peer("quic-go", lambda test_case: [str(in_go(BESIDE / "quicgo"))]),
        Peer("quinn", lambda test_case: [str(in_rust(BESIDE / "quinn", "quinn_interop"))]),
        Peer("curl", _web("curl", curl), ("client",)),
        Peer("niquests", _web("niquests"), ("client",)),
        Peer("httpx", _web("httpx"), ("client",)),
        Peer("nginx", _web("nginx", nginx), ("server",)),
        Peer("caddy", _web("caddy", caddy), ("server",)),
        Peer("hypercorn", _web("hypercorn"), ("server",)),
        # uringcore through aioquic's API, `H3Connection`.
        Peer("uringcore_h3", _webtransport("uringcore_h3")),
        Peer("pywebtransport", _webtransport("pywebtransport")),
        Peer("webtransport-go", lambda test_case: [str(in_go(BESIDE / "webtransportgo"))]),
        Peer(
            "web-transport-quinn",
            lambda test_case: [str(in_rust(BESIDE / "webtransportquinn", "webtransportquinn"))],
        ),
    )
}
# The peers of each table, in the order of its columns.
TABLES = {
    "quic": (OURS, "aioquic", "qh3", "aiopquic", "quic-go", "quinn"),
    "web": (OURS, "aioquic", "quic-go", "curl", "niquests", "httpx", "nginx", "caddy", "hypercorn"),
    "webtransport": (
        *(OURS, "aioquic", "aiopquic", "pywebtransport", "webtransport-go", "web-transport-quinn"),
    ),
}
