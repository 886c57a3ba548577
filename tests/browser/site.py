"""The web server of the pages, and their source of events of the WebTransport server.

It serves over http://localhost, which browsers treat as a secure context like https, so that the
pages do not depend on the code under test. `/told?token=T&event=E` responds when a server has
reported such an event in the session with that token: a page that queries the other end's events
waits for exactly that.
"""

from __future__ import annotations

import http.server
import json
import threading
import urllib.parse
from pathlib import Path

FOLDERS = Path(__file__).parent
TOLD_SECONDS = 10
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


class Told:
    """The events reported by servers, by the session's token."""

    def __init__(self):
        self._changed = threading.Condition()
        self._told = {}

    def add(self, token, what):
        with self._changed:
            self._told.setdefault(token, []).append(what)
            self._changed.notify_all()

    def wait(self, token, event, seconds=TOLD_SECONDS):
        """Returns the first such event of the session or, after a time-out, all reported events."""

        def first():
            return next((one for one in self._told.get(token, ()) if one["event"] == event), None)

        with self._changed:
            found = self._changed.wait_for(first, seconds)
            return found or {"event": None, "told": self._told.get(token, [])}


class Site:
    """Serves `pages` and `platform`, each file by its path there."""

    def __init__(self, told):
        self.told = told
        handler = type("Handler", (Handler,), {"told": told})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="site")
        self._thread.start()
        self.origin = f"http://localhost:{self._server.server_address[1]}"

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    """One request for a file, or for a reported event."""

    told: Told

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        if url.path == "/told":
            asked = dict(urllib.parse.parse_qsl(url.query))
            told = self.told.wait(asked["token"], asked["event"])
            self._answer(200, "application/json", json.dumps(told).encode())
            return
        path = (FOLDERS / url.path.lstrip("/")).resolve()
        if path.suffix not in TYPES or not path.is_relative_to(FOLDERS) or not path.is_file():
            self._answer(404, "text/plain", b"not found")
            return
        self._answer(200, TYPES[path.suffix], path.read_bytes())

    def _answer(self, status, content_type, content):
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(content)))
        self.send_header("cache-control", "no-store")
        # No foreign content in the page: only then do a page's clocks have the machine's full
        # precision.
        self.send_header("cross-origin-opener-policy", "same-origin")
        self.send_header("cross-origin-embedder-policy", "require-corp")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format, *arguments):
        """Logs nothing, to keep the tests' output clean."""
