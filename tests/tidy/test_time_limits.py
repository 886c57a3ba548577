"""Tests that run programs set a time limit, so that a test fails if a program hangs.

`tests/ecosystem` has its own time limits. The last test is about waits in the package.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]


@functools.cache
def parsed(source: str) -> ast.Module:
    """Each file is read by two tests, and takes longer to parse than to walk."""
    return ast.parse(source)


def endless(source: str) -> Iterator[int]:
    """The lines in which a program is run without a time limit."""
    for node in ast.walk(parsed(source)):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) != "subprocess.run":
            continue
        # `**options` may contain it.
        if not any(keyword.arg in ("timeout", None) for keyword in node.keywords):
            yield node.lineno


def test_every_program_has_its_time() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        if not path.is_relative_to(TESTS / "ecosystem")
        for line in endless(path.read_text())
    ]
    assert found == []


def test_one_without_it_is_found() -> None:
    assert list(endless("import subprocess\nsubprocess.run(['x'])\nsubprocess.run(timeout=1)")) == [
        2
    ]


def test_the_package_waits_by_what_lets_cancellations_through() -> None:
    """`asyncio.wait_for` does not, before CPython 3.12; see `uringcore._time_limit`."""
    package = TESTS.parent / "python" / "uringcore"
    found = [
        f"{path.relative_to(package)}:{node.lineno}"
        for path in sorted(package.rglob("*.py"))
        if path.name != "_time_limit.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("asyncio.wait_for")
    ]
    assert found == []


# Fixed waits of tests: (their number, the reason why no event, condition or `rounds` can replace them).
FIXED = {
    "aio/test_special_files.py": (1, "a thread that opens a file would report nothing"),
    "client/test_connection_pool.py": (1, "longer than a time-out that must not end it"),
    "http/features/test_files_over_tcp.py": (1, "an application's event loop stands still by then"),
    "loop/test_busy_poll.py": (2, "the loop's own wait is tested"),
    "loop/test_clocks.py": (1, "the loop's own wait is tested"),
    "loop/test_scheduling.py": (2, "the loop's own wait is tested"),
    "loop/test_sock_cancelling.py": (1, "the loop looks for closed sockets at intervals"),
    "loop/test_sock_streams.py": (1, "the turns of a loop that rests are counted"),
    "loop/test_subprocess_end.py": (1, "the loop must not look meanwhile"),
    "loop/test_tasks.py": (1, "a slow callback"),
    "quic/native/test_garbage_collection.py": (1, "the loop sleeps in the kernel by then"),
    "quic/native/test_anyio_and_uvloop.py": (1, "a program's own time"),
    "quic/test_aioquic_programs.py": (1, "the turns of a loop that rests are counted"),
    "quic/test_quic_connection.py": (1, "longer than the idle time-out"),
    "quic/test_quic_connection_ends.py": (1, "lost packets are sent again meanwhile"),
    "quic/test_quic_resilience.py": (1, "the turns of a loop that rests are counted"),
    "server/test_server_http_edge_cases.py": (1, "memory that a server may take"),
    "server/test_server_processes.py": (1, "a supervisor must not start again what fails"),
    "server/test_server_serve.py": (1, "an application's own time"),
    "server/test_server_stop.py": (2, "a client that takes its time"),
}
SECONDS_MIN, SECONDS_MAX = 0.01, 10
"""Longer waits are meant to be ended by the code under test."""


def fixed_waits(source: str) -> Iterator[int]:
    """The lines of sleeps of a constant time that no loop repeats, as those that wait for a condition do."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _sleeps(node)


def _sleeps(function: ast.AST) -> Iterator[int]:
    for node in ast.iter_child_nodes(function):
        if isinstance(
            node, (ast.For, ast.AsyncFor, ast.While, ast.FunctionDef, ast.AsyncFunctionDef)
        ):
            continue
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("asyncio.sleep", "time.sleep"):
            seconds = node.args[0].value if isinstance(node.args[0], ast.Constant) else 0
            if isinstance(seconds, (int, float)) and SECONDS_MIN <= seconds < SECONDS_MAX:
                yield node.lineno
        yield from _sleeps(node)


def test_a_test_waits_for_facts() -> None:
    found = {
        str(path.relative_to(TESTS)): len(lines)
        for path in sorted(TESTS.rglob("test_*.py"))
        if (lines := list(fixed_waits(path.read_text())))
    }
    assert found == {path: count for path, (count, _) in FIXED.items()}


def test_a_fixed_wait_is_found() -> None:
    source = (
        "async def f():\n await asyncio.sleep(0.05)\n while x:\n  await asyncio.sleep(0.05)\n"
        " time.sleep(delay)\n await asyncio.sleep(0)\n def g():\n  time.sleep(1)\n"
    )
    assert sorted(fixed_waits(source)) == [2, 8]
