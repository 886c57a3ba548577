"""A server of the `docker` command's API that records the requests instead of running containers."""

from __future__ import annotations

import io
import json
import re
import socketserver
import tarfile
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

__all__ = ["Daemon"]


class Daemon:
    """Listens on a Unix socket, whose name is `host`."""

    def __init__(self, folder: Path) -> None:
        path = folder / "docker.sock"
        self.host = f"unix://{path}"
        self.created: dict[str, dict[str, Any]] = {}
        """The settings of the containers, by name."""
        self.started: list[str] = []
        self.built: dict[str, dict[str, bytes]] = {}
        """The files of each build, by tag."""
        self._server = _Server(str(path), _Handler)
        self._server.daemon_of = self
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Daemon:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    daemon_of: Daemon


class _Handler(BaseHTTPRequestHandler):
    """Docker's HTTP interface, as far as `build` and `run --detach` use it."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def do_HEAD(self) -> None:
        self._answer(200, b"")

    def do_GET(self) -> None:
        self._answer(200, b"OK" if self.path == "/_ping" else b"{}")

    def do_POST(self) -> None:
        daemon, content = self.server.daemon_of, self._content()
        url = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path.endswith("/build"):
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                files = {one.name: tar.extractfile(one) for one in tar if one.isfile()}
                daemon.built[asked["t"]] = {
                    name: file.read() for name, file in files.items() if file
                }
            self._answer(200, b'{"stream":"Successfully built 0123456789ab\\n"}\n')
        elif url.path.endswith("/containers/create"):
            daemon.created[asked["name"]] = json.loads(content)
            self._answer(201, json.dumps({"Id": asked["name"], "Warnings": []}).encode())
        elif (started := re.search(r"/containers/([^/]+)/start$", url.path)) is not None:
            daemon.started.append(started[1])
            self._answer(204, b"")
        else:
            self._answer(200, b"{}")

    def _content(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Api-Version", "1.41")
        self.send_header("Content-Type", "application/json")
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def address_string(self) -> str:
        return "docker"

    def log_message(self, format: str, *args: Any) -> None:
        """Discards the line."""
