"""An application called without a server, a loop's work and bytes on a wire: the least possible cost.

One task sends requests one after another, which is the least that a call can cost. Every answer is
checked, status and body. Prints the JSON line of a load generator.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import sys
import time
from typing import Any

from benchmarks.applications.bare import HELLO, LARGE
from benchmarks.servers.bulk import pattern
from benchmarks.servers.http3 import APPLICATIONS

BATCH = 32
"""Requests between two reads of the clock."""


class Caller:
    """One request, repeated, and its expected answer."""

    def __init__(self, application: Any, path: str, upload: int) -> None:
        self.application = application
        self.body = (pattern() * (upload // 65536 + 1))[:upload]
        if upload:
            self.expected = upload.to_bytes(8, "big")
        else:
            self.expected = {"/": HELLO, "/100k": LARGE}[path]
        self.request = {"type": "http.request", "body": self.body, "more_body": False}
        # A server's scope for the load generator's request.
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.5"},
            "http_version": "3",
            "method": "POST" if upload else "GET",
            "scheme": "https",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"host", b"localhost")],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 443),
        }
        self.status = 0
        self.answer = b""

    async def receive(self) -> dict[str, Any]:
        """The whole request."""
        return self.request

    async def send(self, message: dict[str, Any]) -> None:
        """Keep the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.answer = b""
        else:
            body = message.get("body", b"")
            self.answer = self.answer + body if self.answer else body

    async def call(self, count: int) -> None:
        """Make `count` requests; exit at the first wrong answer."""
        for _ in range(count):
            await self.application({**self.scope, "state": {}}, self.receive, self.send)
            if self.status != 200 or self.answer != self.expected:
                sys.exit(f"status {self.status}, {len(self.answer)} bytes that are not expected")

    async def run(self, warmup: float, seconds: float) -> dict[str, float]:
        """The sample of a window."""
        await self._until(time.perf_counter() + warmup)
        wall, cpu = time.perf_counter(), time.process_time_ns()
        requests = await self._until(wall + seconds)
        return {
            "requests": requests,
            "seconds": time.perf_counter() - wall,
            "bytes": requests * (len(self.expected) + len(self.body)),
            "server_cpu_ns": time.process_time_ns() - cpu,
        }

    async def _until(self, end: float) -> int:
        """Make requests until `end`, at least one batch."""
        requests = 0
        while not requests or time.perf_counter() < end:
            await self.call(BATCH)
            requests += BATCH
        return requests


def main() -> None:
    """Call the application named on the command line; the load generator's other options have no effect."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--application", choices=APPLICATIONS, required=True)
    parser.add_argument("--path", default="/")
    parser.add_argument("--upload", type=int, default=0)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--warmup", type=float, required=True)
    options, _ = parser.parse_known_args()
    application = importlib.import_module(APPLICATIONS[options.application]).application
    caller = Caller(application, options.path, options.upload)
    print(json.dumps(asyncio.run(caller.run(options.warmup, options.seconds))))


if __name__ == "__main__":
    main()
