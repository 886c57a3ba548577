"""The tests of the tree run on one interpreter, because the tree is independent of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.interpreter_roles import only_on_default


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    only_on_default(items, Path(__file__).parent, "the tree is read on the default interpreter")
