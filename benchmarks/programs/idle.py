"""The memory that an idle connection costs the server's process.

The server is `servers/echo.py` with a Protocol, in a separate process; the connections are opened by this
program. A sample is the difference in the server's private pages, clean and dirty
(`/proc/<pid>/smaps_rollup`), before the first connection and with all of them, divided by their number. A
few connections come and go before, so that memory that is allocated once is not counted. Pages that an
allocator keeps without need count: no other process can use them.

An echo on a connection shows that all before it are accepted. The program waits for one after every few
connections, so that the queue of the listening socket never overflows. The kernel's memory for a socket is
not counted; it is equal for every loop.
"""

from __future__ import annotations

import json
import resource
import socket
import sys
import time
from pathlib import Path

from benchmarks.harness.process import Server
from benchmarks.programs.echo_client import exchange
from benchmarks.programs.rows import arguments
from benchmarks.servers.loops import STREAM_LOOPS

CONNECTIONS = 5_000
FIRST = 8
STEP = 250
"""Connections between two echoes, well below the length of the listening socket's queue."""
SPARE_FILES = 200
"""Other files that server and client open."""
SETTLE_SECONDS = 0.5
TIMEOUT_SECONDS = 10
MESSAGE = bytes(range(256)) * 4


def private_bytes(pid: int) -> int:
    """The memory that the end of the process would free."""
    total = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("Private_Clean", "Private_Dirty"):
            total += int(rest.split()[0]) * 1024
    return total


def allow_files(count: int) -> None:
    """Raise the limit of open files, also for the server, which inherits it; exit if that is not allowed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        sys.exit(f"{count} open files are needed, the limit is {hard} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def connect(port: int, count: int) -> list[socket.socket]:
    """Open `count` connections and wait until all are accepted."""
    opened: list[socket.socket] = []
    while len(opened) < count:
        opened.append(socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS))
        if len(opened) % STEP == 0 or len(opened) == count:
            exchange(opened[-1], MESSAGE)
    return opened


def close(connections: list[socket.socket]) -> None:
    for connection in connections:
        connection.close()


def samples(server: Server, count: int) -> dict[str, float]:
    """The memory of each of `count` connections, in kB."""
    close(connect(server.port, FIRST))
    time.sleep(SETTLE_SECONDS)
    before = private_bytes(server.pid)
    connections = connect(server.port, count)
    time.sleep(SETTLE_SECONDS)
    accepted = private_bytes(server.pid)
    for connection in connections:
        exchange(connection, MESSAGE)
    time.sleep(SETTLE_SECONDS)
    echoed = private_bytes(server.pid)
    close(connections)
    time.sleep(SETTLE_SECONDS)
    return {
        "accepted": (accepted - before) / count / 1000,
        "after an echo of 1 KiB": (echoed - before) / count / 1000,
    }


def main() -> None:
    """Measure the loop named on the command line; the program has no window, so `--seconds` has no effect."""
    options = arguments(__doc__, STREAM_LOOPS)
    allow_files(CONNECTIONS + SPARE_FILES)
    command = [sys.executable, "-m", "benchmarks.servers.echo"]
    with Server(
        options.peer, [*command, "--loop", options.peer, "--style", "protocol"], {}
    ) as server:
        found = samples(server, CONNECTIONS)
    print(json.dumps({row: [value] for row, value in found.items()}))


if __name__ == "__main__":
    main()
