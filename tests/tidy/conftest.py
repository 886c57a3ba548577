"""The tests of the tree run on one interpreter, because the tree is independent of it, in `make check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.interpreter_roles import only_on_default

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    only_on_default(items, HERE, "the tree is read on the default interpreter")
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.lint)
