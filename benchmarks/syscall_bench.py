#!/usr/bin/env python3
"""Count the system calls of an event loop: per TCP echo, and per `gather` of 100 tasks.

    python benchmarks/syscall_bench.py uring        a table, if strace is installed
    strace -c python benchmarks/syscall_bench.py uring --work echo100

LOOP is asyncio, uvloop, rloop, uring or epoll. Without `--work` the program runs each piece of work twice
under `strace -c`, once with twice as many operations, so that the calls of start-up and shut-down cancel
out: the table shows the difference, divided by the additional operations. With `--work` it only does the
work. The echo's clients are a separate process, which strace does not follow.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.servers.echo import Echo
from benchmarks.servers.loops import new_loop

LOOPS = {
    "asyncio": "asyncio",
    "uvloop": "uvloop",
    "rloop": "rloop",
    "uring": "uringcore-uring",
    "epoll": "uringcore-epoll",
}
MESSAGE = bytes(1024)
TASKS = 100
COUNTS = {"echo1": 5_000, "echo100": 50_000, "gather100": 2_000}
TITLES = {
    "echo1": "echo of 1 KiB, 1 connection",
    "echo100": "echo of 1 KiB, 100 connections",
    "gather100": "gather of 100 tasks",
}


def clients(port: int, connections: int, count: int) -> None:
    """Send `count` messages in all, one in flight on each connection, and check every reply."""
    with selectors.DefaultSelector() as selector:
        for index in range(connections):
            share = count // connections + (index < count % connections)
            if share:
                sock = socket.create_connection(("127.0.0.1", port))
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(sock, selectors.EVENT_READ, [share, b""])
                sock.sendall(MESSAGE)
        while selector.get_map():
            for key, _ in selector.select():
                assert isinstance(key.fileobj, socket.socket)
                piece = key.fileobj.recv(65536)
                if not piece:
                    raise ConnectionError("the server closed a connection")
                key.data[1] += piece
                if len(key.data[1]) < len(MESSAGE):
                    continue
                if key.data[1] != MESSAGE:
                    raise ValueError("a reply differs from its message")
                key.data[0] -= 1
                key.data[1] = b""
                if key.data[0]:
                    key.fileobj.sendall(MESSAGE)
                else:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()


async def echo(connections: int, count: int) -> None:
    """Serve the clients' process until it ends; raises if it failed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    # The clients' start is not timed: strace counts calls.
    command = [sys.executable, __file__, "clients", str(port), str(connections), str(count)]
    process = subprocess.Popen(command)
    ended = loop.create_future()
    watch = os.pidfd_open(process.pid)
    loop.add_reader(watch, lambda: ended.done() or ended.set_result(None))
    await ended
    loop.remove_reader(watch)
    os.close(watch)
    server.close()
    if process.wait() != 0:
        raise RuntimeError("the clients failed")


async def gather(count: int) -> None:
    """Run `count` times a hundred tasks that yield once."""
    for _ in range(count):
        await asyncio.gather(*(asyncio.sleep(0) for _ in range(TASKS)))


def work(loop_name: str, what: str, count: int) -> None:
    """Do one piece of work on the loop."""
    loop = new_loop(LOOPS[loop_name])
    asyncio.set_event_loop(loop)
    try:
        if what == "gather100":
            loop.run_until_complete(gather(count))
        else:
            loop.run_until_complete(echo(int(what.removeprefix("echo")), count))
    finally:
        loop.close()


def traced(loop_name: str, what: str, count: int) -> Counter[str]:
    """The number of system calls of one piece of work, by name."""
    with tempfile.NamedTemporaryFile("r") as summary:
        command = [sys.executable, __file__, loop_name, "--work", what, "--count", str(count)]
        subprocess.run(["strace", "-c", "-o", summary.name, *command], check=True)
        text = summary.read()
    calls: Counter[str] = Counter()
    for line in text.splitlines():
        row = re.fullmatch(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)\s*", line)
        if row and row[2] != "total":
            calls[row[2]] = int(row[1])
    if not calls:
        raise RuntimeError(f"strace -c printed no table:\n{text}")
    return calls


def table(loop_name: str) -> None:
    """Print the system calls of each piece of work, in all and by the most frequent calls."""
    for what, count in COUNTS.items():
        once, twice = traced(loop_name, what, count), traced(loop_name, what, 2 * count)
        more = {name: (twice[name] - once[name]) / count for name in twice}
        most = sorted(more.items(), key=lambda item: -item[1])[:4]
        named = ", ".join(f"{name} {value:.2f}" for name, value in most if value >= 0.005)
        total = max(sum(more.values()), 0.0)
        print(f"{loop_name:8} {TITLES[what]:32} {total:7.2f} system calls   {named}", flush=True)


def main() -> None:
    """Parse the command line."""
    if sys.argv[1:2] == ["clients"]:
        clients(*map(int, sys.argv[2:5]))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("loop", choices=LOOPS)
    parser.add_argument("--work", choices=COUNTS, help="only do this work, without strace")
    parser.add_argument("--count", type=int, help="how many operations")
    options = parser.parse_args()
    if options.work is None and _is_traced():
        # `strace -c python syscall_bench.py LOOP`: a tracer cannot run inside another.
        for what, count in COUNTS.items():
            work(options.loop, what, options.count or count)
            print(f"{options.loop:8} {TITLES[what]:32} {options.count or count} operations")
    elif options.work is not None:
        work(options.loop, options.work, options.count or COUNTS[options.work])
    elif shutil.which("strace") is None:
        parser.error("strace is not installed; --work does the work without counting")
    else:
        table(options.loop)


def _is_traced() -> bool:
    status = Path("/proc/self/status").read_text()
    return not re.search(r"^TracerPid:\s+0$", status, re.MULTILINE)


if __name__ == "__main__":
    main()
