"""What a connection that does nothing costs in the server's own memory.

The server is `servers/echo.py` with a Protocol, a process of its own; the connections are opened from
here. A sample is the difference in the server's private pages, clean and dirty
(`/proc/<pid>/smaps_rollup`), before the first connection and with all of them, divided by their number. A
few connections come and go before, so that what is made once is not counted. Pages that an allocator
keeps but does not need count: they are gone for everybody else.

An echo on a connection tells that all before it are accepted. It is waited for after every few, so that
the queue of the listening socket never overflows. Not here: what the kernel keeps for a socket, which is
the same for every loop.
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
"""What server and client open besides."""
SETTLE_SECONDS = 0.5
TIMEOUT_SECONDS = 10
MESSAGE = bytes(range(256)) * 4


def private_bytes(pid: int) -> int:
    """The memory that would be free if the process went."""
    total = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("Private_Clean", "Private_Dirty"):
            total += int(rest.split()[0]) * 1024
    return total


def allow_files(count: int) -> None:
    """Raise the limit of open files, for the server too, which inherits it; exit if it cannot be."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        sys.exit(f"{count} open files are needed, the limit is {hard} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def connect(port: int, count: int) -> list[socket.socket]:
    """As many connections, all accepted."""
    opened: list[socket.socket] = []
    while len(opened) < count:
        opened.append(socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS))
        if len(opened) % STEP == 0 or len(opened) == count:
            exchange(opened[-1], MESSAGE)
    return opened


def close(connections: list[socket.socket]) -> None:
    """Close them all."""
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
    """Measure the loop named on the command line; there is no window, so `--seconds` means nothing."""
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
