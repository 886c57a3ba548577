"""The HTTP/1.1 server of files over TCP without TLS: a named server, as its users start it.

Prints `READY <port>` and ends on SIGTERM. One process on one core serves the files, without access log.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.servers import http_tcp
from benchmarks.servers.static_files import FOLDER, URL_PATH, make_files
from tests.support.free_ports import free_port

TARGET = "benchmarks.applications.bare:application"
MOUNT = f"{URL_PATH}={FOLDER}"

NGINX = """
daemon off;
master_process off;
pid {folder}/pid;
error_log /dev/stderr warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    tcp_nodelay on;
    keepalive_requests 1000000000;
    default_type application/octet-stream;
    open_file_cache max=1000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen {address}:{port};
        location {path}/ {{ alias {files}/; }}
        location / {{ return 404; }}
    }}
}}
"""

CADDY = """{{
    admin off
    auto_https off
    servers {{
        protocols h1
    }}
}}
http://{address}:{port} {{
    bind {address}
    handle_path {path}/* {{
        root * {files}
        file_server
    }}
}}
"""


def configured(text: str, port: int) -> tuple[str, str]:
    """Write a configuration; return its path and its folder."""
    folder = Path(tempfile.mkdtemp(prefix="benchmark-files-"))
    values = {"folder": folder, "port": port, "path": URL_PATH, "files": FOLDER}
    path = folder / "configuration"
    path.write_text(text.format(address=http_tcp.ADDRESS, **values))
    return str(path), str(folder)


def nginx(port: int) -> list[str]:
    """nginx in one process, with its cache of open files."""
    path, folder = configured(NGINX, port)
    return ["nginx", "-c", path, "-p", folder, "-e", "/dev/stderr"]


def caddy(port: int) -> list[str]:
    """Caddy on one processor."""
    path, _ = configured(CADDY, port)
    os.environ["GOMAXPROCS"] = "1"
    return ["caddy", "run", "--config", path, "--adapter", "caddyfile"]


def granian(port: int) -> list[str]:
    """granian's files beside an application."""
    mount = ("--static-path-route", URL_PATH, "--static-path-mount", str(FOLDER))
    return [*http_tcp.granian(TARGET, port, 1), *mount]


def weft(port: int) -> list[str]:
    """weft's files beside an application."""
    return [*http_tcp.weft(TARGET, port, 1), "--static-dir", MOUNT]


def peregrine(port: int) -> list[str]:
    """peregrine's files beside an application, which is its last argument."""
    *options, target = http_tcp.peregrine(TARGET, port, 1)
    return [*options, "--static-dir", MOUNT, target]


def static_files(port: int) -> list[str]:
    """Starlette's StaticFiles under uvicorn."""
    return http_tcp.uvicorn("benchmarks.servers.static_files:application", port, 1)


def uringcore(backend: str) -> Callable[[int], list[str]]:
    """`--static` beside an application."""
    return lambda port: [
        *(sys.executable, "-m", "uringcore", TARGET, "--host", http_tcp.ADDRESS),
        *("--port", str(port), "--backend", backend, "--http", "native", "--no-http3"),
        *("--static", MOUNT, "--log-level", "warning", "--no-access-log"),
    ]


COMMANDS: dict[str, Callable[[int], list[str]]] = {
    "nginx": nginx,
    "caddy": caddy,
    "granian": granian,
    "weft": weft,
    "peregrine": peregrine,
    "StaticFiles": static_files,
    "uringcore-uring": uringcore("uring"),
    "uringcore-epoll": uringcore("epoll"),
}


def main() -> None:
    """Become the server named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", choices=COMMANDS, required=True)
    options = parser.parse_args()
    make_files()
    port = free_port()
    command = COMMANDS[options.server](port)
    http_tcp.say_ready_of(port, 1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
