"""Benchmark code is tested only on the interpreter that runs the benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.interpreter_roles import only_on_default

HERE = Path(__file__).parent
# These run clients and servers as a benchmark does.
MEASURING = {
    "test_bulk_streams",
    "test_computing",
    "test_deployed",
    "test_heap",
    "test_http3",
    "test_http_files",
    "test_http_tcp",
    "test_programs",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    only_on_default(items, HERE, "the benchmarks run on one interpreter")
    for item in items:
        if item.path.parent == HERE and item.path.stem in MEASURING:
            item.add_marker(pytest.mark.measuring)
