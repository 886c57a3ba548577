"""The memory that a server holds for hostile clients of each kind, and an honest client's latency
meanwhile.

``python -m tests.http.hostile.server_memory_table`` prints the table of docs/limits.md. Its rows are kinds of
clients, with 1, 10 and 100 of them; its columns the server's own memory at its peak and after they
have disconnected, and the honest client's p50 and p99. ``--kinds``, ``--counts``, ``--backend`` and
``--options`` select a part; ``--options`` goes to the server's command.

The clients run in this process; ``attacks.py`` defines them.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import uringcore
from tests.http.hostile.attacked_server import MIB, VICTIM, Bystander, own_bytes
from tests.http.hostile.attacks import KINDS, QLOG_DIR, attackers
from tests.server.harness import Server
from uringcore.devcert import DevelopmentCertificate


async def measure(server: Server, kind: str, count: int, seconds: float) -> list[str]:
    """Measures one row of the table."""
    for _ in range(5):
        await asyncio.to_thread(server.get, "/")
    before = own_bytes(server)
    honest = Bystander(server)
    honest.start()
    async with attackers(server, kind, count):
        await asyncio.sleep(seconds)
        held = own_bytes(server)
    try:
        await honest.stop()
    except AssertionError as error:
        print(f"{kind}, {count}: {error}", file=sys.stderr)
    await asyncio.sleep(8)
    after = own_bytes(server)
    quantiles = statistics.quantiles(honest.seconds, n=100)
    sizes = [f"{(value - before) / MIB:.0f}" for value in (max(honest.peak_bytes, held), after)]
    return [kind, str(count), *sizes, *(f"{quantiles[n] * 1000:.0f}" for n in (49, 98))]


def row(kind: str, count: int, given: argparse.Namespace) -> list[str]:
    """Measures with a server of its own."""
    with tempfile.TemporaryDirectory() as folder:
        certificate = DevelopmentCertificate.make().write(folder)
        options = ["--no-access-log", *shlex.split(given.options)]
        if KINDS[kind].traced:
            traces = Path(folder, "traces")
            traces.mkdir()
            options += [QLOG_DIR, str(traces)]
        server = Server(folder, certificate, *options, backend=given.backend, app=VICTIM)
        try:
            return uringcore.run(measure(server, kind, count, given.seconds))
        finally:
            # A hanging server is killed without a wait.
            server.kill()


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Returns the command's arguments, checked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, metavar="KIND", default=list(KINDS))
    parser.add_argument("--counts", nargs="+", type=int, default=[1, 10, 100])
    parser.add_argument("--backend", choices=["uring", "epoll"], default="uring")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--options", default="")
    return parser.parse_args(argv)


def main() -> None:
    given = arguments()
    print("| clients | number | peak MiB | MiB afterwards | honest p50 ms | p99 ms |")
    print("| --- | --- | --- | --- | --- | --- |")
    for kind in given.kinds:
        for count in given.counts:
            print(f"| {' | '.join(row(kind, count, given))} |", flush=True)


if __name__ == "__main__":
    main()
