"""Each marked case runs on one backend, and each backend gets half of a test's cases."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.one_backend_per_case import BACKENDS, split


def case(test: str, *markers: pytest.Mark, **parameters: str) -> Any:
    def closest(name: str) -> pytest.Mark | None:
        return next((mark for mark in markers if mark.name == name), None)

    written = "-".join(parameters.values())
    callspec = SimpleNamespace(params=parameters, id=written)
    return SimpleNamespace(
        nodeid=f"{test}[{written}]", callspec=callspec, get_closest_marker=closest
    )


def marked(*arguments: str) -> pytest.Mark:
    return pytest.mark.either_backend(*arguments).mark


def names(items: list[Any]) -> list[str]:
    return [item.nodeid for item in items]


def parameters(items: list[Any], name: str) -> list[str]:
    return [item.callspec.params[name] for item in items]


def test_each_case_runs_on_one_backend_in_turn() -> None:
    items = [case("test", marked(), run=one, of=f"a-{n}") for n in range(6) for one in BACKENDS]
    kept, left_out = split(items)
    assert sorted(parameters(kept, "of")) == [f"a-{n}" for n in range(6)]
    assert parameters(kept, "run").count("uring") == 3
    assert {*names(kept)} | {*names(left_out)} == {*names(items)}


def test_a_group_of_cases_shares_its_backend() -> None:
    items = [
        case(f"file.py::{test}", marked("site"), run=one, site=site, of=str(n))
        for test in ("test_one", "test_two", "test_three")
        for one in BACKENDS
        for site in ("x", "y")
        for n in range(3)
    ]
    kept, _ = split(items)
    assert len(kept) == 18
    pairs = {*zip(parameters(kept, "site"), parameters(kept, "run"), strict=True)}
    assert len(pairs) == 2 and {backend for _, backend in pairs} == {*BACKENDS}


def test_tests_with_one_case_are_spread_over_the_backends() -> None:
    items = [case(f"test_{n}", marked(), run=one) for n in range(40) for one in BACKENDS]
    kept, _ = split(items)
    count = parameters(kept, "run").count("uring")
    assert len(kept) == 40 and 10 < count < 30


def test_other_tests_run_as_they_are() -> None:
    skip = pytest.mark.skip("no io_uring here").mark
    items = [
        case("unmarked", run="uring"),
        case("unmarked", run="epoll"),
        case("without", marked(), of="x"),
        case("both", marked(), run="asyncio"),
        case("alone", marked(), run="epoll"),
        case("skipped", marked(), skip, run="uring"),
        case("skipped", marked(), run="epoll"),
    ]
    kept, left_out = split(items)
    assert names(kept) == names(items) and left_out == []
