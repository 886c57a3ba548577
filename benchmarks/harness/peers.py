"""The peers of each family of cases: the command that starts a server, and the reason if it is absent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.harness.cases import IN_PROCESS, LONE, RAW_QUIC, Case
from benchmarks.harness.environment import Environment
from benchmarks.harness.matrix import LOOPS, STREAM_LOOPS
from benchmarks.harness.process import Server
from benchmarks.servers.http_tcp import WSPROTO
from benchmarks.servers.loops import AIOFASTNET

LACKING = {
    ("rloop", "slow_upload_tls"): "it serves no TLS",
    ("rloop", "tls_echo"): "it serves no TLS",
    ("granian", "files_http1"): "it sends files in chunks, without their length",
    ("granian", "ws_deflate"): "it has no permessage-deflate",
    ("zloop", "sock_echo"): "its sock_accept raises NotImplementedError",
    ("zloop", "udp_echo"): "its create_datagram_endpoint raises NotImplementedError",
}
"""The known gaps of peers: the peer's name and the family, and the reason for the table."""


@dataclass(frozen=True)
class Peer:
    """A server that a case can measure."""

    name: str
    package: str | None
    """The Python distribution that the server needs, or None for a native program."""
    command: Callable[[Environment], list[str]]
    program: str | None = None
    """The native program that the server needs."""
    kind: str = "peer"
    """`ours`, `peer` or `limit`: the colour in charts; a failure of a `peer` does not end a run."""
    lacking: str | None = None
    """The feature that this family needs and the server lacks."""
    application: str | None = None
    """The distribution that its application needs, or over which it works."""
    needed: tuple[str, ...] = ()
    """More distributions that the server needs."""
    load: tuple[str, ...] | None = None
    """The load generator and its arguments, if they are not the case's."""
    alone: bool = False
    """True for a program without a server: its command takes the case's arguments and measures itself."""

    @property
    def foreign(self) -> bool:
        """True for another project's server: its failure is a result and not an error."""
        return self.kind == "peer"

    def absent(self, environment: Environment) -> str | None:
        """The reason why it cannot run on this machine, or None."""
        if self.lacking is not None:
            return self.lacking
        if self.program is not None:
            return environment.program_missing(self.program)
        assert self.package is not None
        missing = environment.package_missing(self.package)
        if missing is not None:
            return missing
        for name in (self.application, *self.needed):
            reason = None if name is None else environment.package_missing(name)
            if reason is not None:
                return f"{name}: {reason}"
        return None


def _python(module: str, *arguments: str, tls: bool = True) -> Callable[[Environment], list[str]]:
    return lambda environment: [
        str(environment.python),
        "-m",
        f"benchmarks.servers.{module}",
        *arguments,
        *(environment.certificate_arguments() if tls else ()),
    ]


def _native(program: str, *, tls: bool = True) -> Callable[[Environment], list[str]]:
    return lambda environment: [
        str(environment.program(program)),
        *(environment.certificate_arguments() if tls else ()),
    ]


def _loops(family: str, module: str, style: str, *, tls: bool = False) -> tuple[Peer, ...]:
    """Every loop with one style of a server in `servers/`, for the tables of `family`."""
    columns = LOOPS if style == "udp" else STREAM_LOOPS
    return tuple(
        Peer(
            column.name,
            column.package,
            _python(module, "--loop", column.name, "--style", style, tls=tls),
            kind="peer" if column.foreign else "ours",
            lacking=LACKING.get((column.name, family)),
            application="uvloop" if column.name == AIOFASTNET else None,
        )
        for column in columns
    )


def _echoes(
    family: str, style: str, *limits: Peer, tls: bool = False
) -> dict[str, tuple[Peer, ...]]:
    """The echoes of `family`. With one client our loops have two rows, because spinning before a sleep costs
    processor time and shortens the round trip."""
    loops = _loops(family, "echo", style, tls=tls)
    sleeping = tuple(
        replace(
            peer,
            name=f"{peer.name}, busy_poll_us=0",
            command=_python(
                *("echo", "--loop", peer.name, "--style", style, "--busy-poll-us", "0"), tls=tls
            ),
        )
        for peer in loops
        if not peer.foreign
    )
    return {family: (*loops, *limits), f"{family}{LONE}": (*loops, *sleeping, *limits)}


C_EPOLL = Peer("c-epoll", None, _native("c_epoll", tls=False), program="c_epoll", kind="limit")
"""The cost of a TCP echo for the kernel and a plain C program."""


def _quic(name: str, package: str, kind: str = "peer") -> Peer:
    return Peer(name, package, _python("quic_bulk", "--library", name), kind=kind)


def _quic_peers(*limits: Peer, native: tuple[str, ...] = ()) -> tuple[Peer, ...]:
    """The peers of QUIC tables. `uringcore-*` are the API of aioquic; `uringcore.quic` is the typed API, and
    its server gets the arguments `native`."""
    command = _python("quic_native", "--library", "uringcore-uring", *native)
    return (
        _quic("aioquic", "aioquic"),
        _quic("qh3", "qh3"),
        _quic("aiopquic", "aiopquic"),
        _quic("uringcore-uring", "uringcore", "ours"),
        _quic("uringcore-epoll", "uringcore", "ours"),
        Peer("uringcore.quic", "uringcore", command, kind="ours"),
        *limits,
        Peer("quinn", None, _native("quinn_server"), program="quinn_server", kind="limit"),
    )


def _quic_streams(name: str, library: str, kind: str) -> Peer:
    """The API of aioquic by its `stream_handler`, with a reader, a writer and here a task for each
    stream, like `uringcore.quic`. The other rows are called with events."""
    package = library.partition("-")[0]
    return Peer(name, package, _python("quic_bulk", "--library", library, "--streams"), kind=kind)


def _webtransport(name: str, package: str, kind: str = "peer") -> Peer:
    return Peer(name, package, _python("webtransport", "--library", name), kind=kind)


def _h3(name: str, application: str, package: str, kind: str = "peer") -> Peer:
    command = _python("http3", "--server", name, "--application", application)
    needed = "fastapi" if application == "fastapi" else None
    return Peer(name, package, command, kind=kind, application=needed)


QUINN_H3 = Peer("quinn + h3", None, _native("h3_server"), program="h3_server", kind="limit")
"""The cost of HTTP/3 without Python."""


def _h3_peers(application: str) -> tuple[Peer, ...]:
    return (
        _h3("hypercorn", application, "hypercorn"),
        _h3("weft", application, "weft-server"),
        _h3("peregrine", application, "peregrine-server"),
        _h3("uringcore-uring", application, "uringcore", "ours"),
        _h3("uringcore-epoll", application, "uringcore", "ours"),
        QUINN_H3,
    )


def _http(name: str, application: str, version: int, *needed: str, secure: bool = False) -> Peer:
    """A server over TCP, or TLS if `secure`; `needed` are the distributions of the server and its parser."""
    ours = needed == ("uringcore",)
    arguments = ("--server", name, "--application", application, "--http", str(version))
    return Peer(
        name,
        needed[0],
        _python("http_tcp", *arguments, tls=secure),
        kind="ours" if ours else "peer",
        application="fastapi" if application == "fastapi" else None,
        needed=needed[1:],
    )


def _http_peers(application: str, version: int, *, secure: bool = False) -> tuple[Peer, ...]:
    parser = "httptools" if version == 1 else "zttp"
    return tuple(
        _http(name, application, version, *needed, secure=secure)
        for name, *needed in (
            ("uvicorn", "uvicorn", "uvloop", parser),
            ("hypercorn", "hypercorn", "uvloop"),
            ("granian", "granian", "uvloop"),
            ("pyvoy", "pyvoy", "uvloop"),
            ("h2corn", "h2corn", "uvloop"),
            ("weft", "weft-server"),
            ("peregrine", "peregrine-server"),
            ("uringcore-uring", "uringcore"),
            ("uringcore-epoll", "uringcore"),
        )
    )


def _in_process(application: str) -> Peer:
    """The application called without a server."""

    def command(environment: Environment) -> list[str]:
        module = "benchmarks.programs.in_process"
        return [str(environment.python), "-m", module, "--application", application]

    return Peer(IN_PROCESS, "fastapi", command, kind="limit", alone=True)


def _raw_quic(mode: str) -> Peer:
    """Our QUIC with the bulk protocol: the difference is the cost of HTTP/3 and ASGI."""
    command = _python("quic_bulk", "--library", "uringcore-uring")
    load = ("quic_load", "--mode", mode)
    return Peer(RAW_QUIC, "uringcore", command, kind="limit", load=load)


def _websocket_peers() -> tuple[Peer, ...]:
    return tuple(
        _http(name, "bare", 1, *needed)
        for name, *needed in (
            ("uvicorn", "uvicorn", "uvloop", "httptools", "websockets"),
            (WSPROTO, "uvicorn", "uvloop", "httptools", "wsproto"),
            ("hypercorn", "hypercorn", "uvloop"),
            ("granian", "granian", "uvloop"),
            ("h2corn", "h2corn", "uvloop"),
            ("weft", "weft-server"),
            ("peregrine", "peregrine-server"),
            ("uringcore-uring", "uringcore"),
            ("uringcore-epoll", "uringcore"),
        )
    )


def _file_peers() -> tuple[Peer, ...]:
    return tuple(
        Peer(
            name,
            package,
            _python("http_files", "--server", name, tls=False),
            program=name if package is None else None,
            kind="ours" if package == "uringcore" else "peer",
            needed=tuple(needed),
            lacking=LACKING.get((name, "files_http1")),
        )
        for name, package, *needed in (
            ("nginx", None),
            ("caddy", None),
            ("granian", "granian", "uvloop"),
            ("weft", "weft-server"),
            ("peregrine", "peregrine-server"),
            ("StaticFiles", "starlette", "uvicorn", "uvloop", "httptools"),
            ("uringcore-uring", "uringcore"),
            ("uringcore-epoll", "uringcore"),
        )
    )


PEERS: dict[str, tuple[Peer, ...]] = {
    **_echoes("tcp_echo", "protocol", C_EPOLL),
    **_echoes("buffered_echo", "buffered", C_EPOLL),
    **_echoes("streams_echo", "streams", C_EPOLL),
    **_echoes("sock_echo", "sock", C_EPOLL),
    **_echoes("tls_echo", "protocol", tls=True),
    **_echoes("udp_echo", "udp"),
    "slow_upload": _loops("slow_upload", "slow_upload", "protocol"),
    "slow_upload_streams": _loops("slow_upload_streams", "slow_upload", "streams"),
    "slow_upload_tls": _loops("slow_upload_tls", "slow_upload", "protocol", tls=True),
    "quic": _quic_peers(),
    "quic_requests": (
        _quic_streams("aioquic, streams", "aioquic", "peer"),
        _quic_streams("uringcore-uring, streams", "uringcore-uring", "ours"),
        *_quic_peers(),
    ),
    "quic_datagrams": _quic_peers(native=("--datagrams",)),
    # The engine without Python serves 64 KiB writes only.
    "quic_bulk": _quic_peers(
        Peer("engine", None, _native("engine_server"), program="engine_server", kind="limit")
    ),
    "webtransport": (
        _webtransport("aiopquic", "aiopquic"),
        _webtransport("pywebtransport", "pywebtransport"),
        _webtransport("uringcore-uring", "uringcore", "ours"),
        _webtransport("uringcore-epoll", "uringcore", "ours"),
    ),
    **{
        f"h{version}_{application}": _http_peers(application, version)
        for version in (1, 2)
        for application in ("bare", "fastapi")
    },
    "https": _http_peers("bare", 1, secure=True),
    "h3_bare": _h3_peers("bare"),
    "h3_fastapi": (*_h3_peers("fastapi"), _in_process("fastapi")),
    "h3_upload": (*_h3_peers("bare"), _raw_quic("upload")),
    "h3_download": (*_h3_peers("bare"), _raw_quic("download")),
    "ws": _websocket_peers(),
    "ws_deflate": tuple(
        replace(peer, lacking=LACKING.get((peer.name, "ws_deflate"))) for peer in _websocket_peers()
    ),
    "files_http1": _file_peers(),
}


def kind_of(family: str, name: str) -> str:
    """The colour of the peer `name` in charts."""
    return next((peer.kind for peer in PEERS[family] if peer.name == name), "peer")


def load_missing(environment: Environment, case: Case, peer: Peer) -> str | None:
    """The reason why the peer's load generator is absent, or None."""
    if peer.alone:
        return None
    program = (peer.load or case.load)[0]
    reason = environment.program_missing(program)
    return None if reason is None else f"{program}: {reason}"


def load_command(environment: Environment, case: Case, peer: Peer, server: Server) -> list[str]:
    """The load generator's command line without its times."""
    load = peer.load or case.load
    processes = ",".join(map(str, server.processes)) if case.whole_tree else None
    return [
        str(environment.program(load[0])),
        *load[1:],
        "--addr",
        f"127.0.0.1:{server.port}",
        "--pid",
        str(server.pid),
        *(() if processes is None else ("--processes", processes)),
        *(environment.authority_arguments() if case.tls else ()),
    ]
