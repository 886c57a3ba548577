"""nginx and HAProxy in front of our server: how each is configured, and the version of HTTP behind it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.interop.peers import installed
from tests.support.foreground_programs import debian, running
from tests.support.free_ports import free_port
from tests.support.third_party_programs import Unavailable

__all__ = ["FRONTS", "GRPC", "PROXIED", "Front", "Kind", "fronting"]

HTTP2_UPSTREAM = (1, 29, 4)
"""The first nginx with HTTP/2 to the servers behind it."""


@dataclass(frozen=True)
class Kind:
    """A way in which a proxy passes requests on."""

    program: str
    http: str
    """The version in the application's scope."""
    websocket: str | None
    """The version of WebSockets in the application's scope, if the proxy passes them on."""
    options: str = ""
    """HAProxy's parameters of a server; nginx's parameters of its HTTP part."""
    secure: bool = False
    """True if the server behind the proxy has TLS."""
    grpc: bool = False
    """True for nginx's module of gRPC, which needs HTTP/2 on both sides."""


FRONTS = {
    "nginx, HTTP/1.1": Kind("nginx", "1.1", "1.1"),
    "nginx, HTTP/2": Kind("newest nginx", "2", None),
    "haproxy, HTTP/1.1": Kind("haproxy", "1.1", "1.1"),
    "haproxy, HTTP/2": Kind("haproxy", "2", "2", "proto h2"),
    "haproxy, HTTP/2 by ALPN": Kind("haproxy", "2", "2", "alpn h2", secure=True),
}

GRPC = {
    "nginx": Kind("nginx", "2", None, grpc=True),
    "haproxy": FRONTS["haproxy, HTTP/2"],
    "haproxy, TLS": FRONTS["haproxy, HTTP/2 by ALPN"],
}

PROXIED = {
    "version 1, HTTP/1.1": Kind("haproxy", "1.1", "1.1", "send-proxy"),
    "version 2, HTTP/1.1": Kind("haproxy", "1.1", "1.1", "send-proxy-v2"),
    "version 2, HTTP/2": Kind("haproxy", "2", "2", "send-proxy-v2 proto h2"),
    "version 2, HTTP/2 by ALPN": Kind(
        "haproxy", "2", "2", "send-proxy-v2 proxy-v2-options crc32c,unique-id alpn h2", secure=True
    ),
}
"""With a header of the PROXY protocol."""


@dataclass
class Front:
    """A running proxy."""

    kind: Kind
    port: int
    log: Path
    certificate: str | None = None
    is_secure: bool = field(default=False, init=False)


@contextlib.contextmanager
def fronting(
    kind: Kind, folder: Path, ports: Sequence[int], certificate: str | None = None
) -> Iterator[Front]:
    """Runs a proxy that distributes requests to these ports of 127.0.0.1."""
    port = free_port()
    command, environment = COMMANDS[kind.program](kind, folder, port, ports, certificate)
    log = folder / "proxy.log"
    with running(command, environment, port, log):
        yield Front(kind, port, log)


Command = tuple[list[str], dict[str, str]]


def _haproxy(
    kind: Kind, folder: Path, port: int, ports: Sequence[int], certificate: str | None
) -> Command:
    program = debian("haproxy")
    tls = f"ssl verify required ca-file {certificate} sni str(localhost)" if kind.secure else ""
    websocket = "ws h2" if kind.websocket == "2" and not kind.secure else ""
    lines = [f"server s{one} 127.0.0.1:{one} {kind.options} {tls} {websocket}" for one in ports]
    (folder / "haproxy.cfg").write_text(
        "\n".join(
            [
                "global",
                "  maxconn 2000",
                "defaults",
                "  mode http",
                "  timeout connect 10s",
                "  timeout client 60s",
                "  timeout server 60s",
                "  timeout tunnel 60s",
                # A connection that the server closes while a request is on its way has answered nothing.
                "  retry-on conn-failure empty-response",
                "  option redispatch 1",
                # A request whose client disconnects ends before its response.
                "  option abortonclose",
                "frontend front",
                f"  bind 127.0.0.1:{port}",
                "  default_backend app",
                "backend app",
                "  balance roundrobin",
                "  http-reuse always",
                # As nginx does it, and as RFC 9110 section 9.2.2 requires it of proxies.
                "  http-request disable-l7-retry unless METH_GET",
                *(f"  {line}" for line in lines),
                "",
            ]
        )
    )
    return [program.path, "-db", "-f", str(folder / "haproxy.cfg")], program.environment


def _nginx(
    kind: Kind, folder: Path, port: int, ports: Sequence[int], certificate: str | None
) -> Command:
    program = debian("nginx")
    return [program.path, *_nginx_options(kind, folder, port, ports)], program.environment


def _newest_nginx(
    kind: Kind, folder: Path, port: int, ports: Sequence[int], certificate: str | None
) -> Command:
    try:
        command, version = installed.nginx(), installed.nginx_version()
    except Unavailable as why:
        pytest.skip(str(why))
    if version < HTTP2_UPSTREAM:
        pytest.skip(f"nginx {'.'.join(map(str, version))} has no HTTP/2 to servers behind it")
    return [*command, *_nginx_options(kind, folder, port, ports)], dict(os.environ)


def _nginx_options(kind: Kind, folder: Path, port: int, ports: Sequence[int]) -> list[str]:
    temporary = "\n".join(
        f"{name}_temp_path {folder}/{name};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    servers = " ".join(f"server 127.0.0.1:{one};" for one in ports)
    upgrade = (
        "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;"
        if kind.http == "1.1"
        else ""
    )
    passing = (
        "grpc_pass grpc://app;"
        if kind.grpc
        else f"""
        proxy_pass http://app; proxy_http_version {kind.http};
        proxy_set_header Host $host; {upgrade}
        proxy_buffering off; proxy_request_buffering off;"""
    )
    (folder / "nginx.conf").write_text(
        f"""
        daemon off; pid {folder}/pid; error_log stderr warn; user root; worker_processes 1;
        events {{}}
        http {{
            access_log off; client_max_body_size 0; {temporary} {kind.options}
            map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
            upstream app {{ {servers} keepalive 16; }}
            server {{
                listen 127.0.0.1:{port} {"http2" if kind.grpc else ""};
                location / {{ {passing} }}
            }}
        }}
        """
    )
    return ["-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]


COMMANDS: dict[str, Callable[[Kind, Path, int, Sequence[int], str | None], Command]] = {
    "haproxy": _haproxy,
    "nginx": _nginx,
    "newest nginx": _newest_nginx,
}
