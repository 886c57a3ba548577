"""Benchmark code is tested only on the interpreter that runs the benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.interpreter_roles import only_on_default


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    only_on_default(items, Path(__file__).parent, "the benchmarks run on one interpreter")
