"""The server behind nginx and Caddy: an HTTP/1.1 server in a thread, with the paths of
`application` that are not files. It does not use asyncio, so that only the end under test uses
uringcore.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.interop.web.application import LINK, TRAILER

__all__ = ["start"]


class Answers(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"]))
        self.whole(content)

    def do_GET(self) -> None:
        if self.path == "/hinted":
            self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nlink: %b\r\n\r\n" % LINK)
            self.whole(b"hinted")
        elif self.path == "/trailed":
            self.send_response(200)
            self.send_header("transfer-encoding", "chunked")
            self.send_header("trailer", TRAILER[0].decode())
            self.end_headers()
            self.wfile.write(b"7\r\ntrailed\r\n0\r\n%b: %b\r\n\r\n" % TRAILER)
        else:
            self.send_response(200)
            self.send_header("content-length", "1000")
            self.end_headers()
            self.wfile.write(bytes(500))
            self.close_connection = True

    def whole(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: the log has no reader."""


def start() -> int:
    """Serves until the process ends, on the returned port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]
