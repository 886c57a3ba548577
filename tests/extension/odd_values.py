"""Values that no valid program passes. Each is made anew for each call, so that no call consumes
it.

``odd_values(again)`` returns them by name; objects that re-enter call ``again()``.
"""

from __future__ import annotations

import array
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

INTEGERS = [
    *(0, 1, -1, 2, 255, 4096, -(1 << 31) - 1, 1 << 31, 1 << 32, 1 << 36, 1 << 40, 1 << 48),
    *(
        (1 << 62) - 1,
        1 << 62,
        (1 << 63) - 1,
        1 << 63,
        (1 << 64) - 1,
        1 << 64,
        -(1 << 63) - 1,
        1 << 200,
    ),
]
FLOATS = [float("nan"), float("inf"), float("-inf"), -0.0, -1.0, 1e-320, 0.5, 1e18, 1e300]
TEXTS = ["", "a", "\0", "a\0b", "\ud800", "x" * 100_000, "::1", "auto", "h3"]
CLAIMED = 1 << 62
"""The length that an object claims to have."""


class Refusal(Exception):
    """The exception that the odd objects raise."""


class Claims:
    """A sequence of one item that claims to have very many."""

    def __init__(self, item: Any) -> None:
        self.item = item

    def __len__(self) -> int:
        return CLAIMED

    def __getitem__(self, index: int) -> Any:
        if index:
            raise IndexError(index)
        return self.item


class ClaimingList(list[Any]):
    """A list with a false length."""

    def __len__(self) -> int:
        return CLAIMED


class ClaimingTuple(tuple[Any, ...]):
    def __len__(self) -> int:
        return CLAIMED


class Breaks:
    """Its iterator raises after the first item."""

    def __init__(self, item: Any) -> None:
        self.item = item

    def __iter__(self) -> Iterator[Any]:
        yield self.item
        raise Refusal


def hooked(hook: Callable[[], Any]) -> Any:
    """An object that calls ``hook`` on every operation."""

    def method(*_: Any, **__: Any) -> Any:
        return hook()

    asked = "index len iter next getitem buffer eq hash bool int float str repr fspath call await contains"
    names = [f"__{name}__" for name in asked.split()]
    return type("Hooked", (), dict.fromkeys(names, method) | {"fileno": method})()


def refuse() -> Any:
    raise Refusal


def odd_values(again: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    """Return makers of values, by name."""

    def reenter() -> Any:
        with contextlib.suppress(Exception):
            again()
        return 1

    plain: list[Any] = [None, True, *INTEGERS, *FLOATS, *TEXTS, 1j, ..., object, print, Refusal]
    plain += [
        b"",
        b"\0",
        b"a",
        b"a\0b",
        b"x" * 16,
        b"x" * 32,
        b"x" * 100_000,
        (),
        (1, 2),
        (b"a", b"b"),
    ]
    plain += [
        ("::1", 0),
        ("127.0.0.1", 1),
        ("127.0.0.1", 1 << 40),
        ("::1", 1, -1, 1 << 40),
        ("a\0", "b"),
    ]
    plain += [range(1 << 40), range(3), slice(None), frozenset(), ("", 0, 0, 0), ("\ud800", 1)]
    made: dict[str, Callable[[], Any]] = {
        f"{value!r:.40}": (lambda value=value: value) for value in plain
    }
    return made | {
        "object()": object,
        "bytearray": lambda: bytearray(b"abc"),
        "empty bytearray": bytearray,
        "memoryview": lambda: memoryview(b"abc"),
        "gaps": lambda: memoryview(b"abcdef")[::2],
        "doubles": lambda: array.array("d", [1.0, 2.0]),
        "dict": lambda: {"type": "http.response.start", "status": 1 << 70, "headers": None},
        "empty dict": dict,
        "list": list,
        "list of bytes": lambda: [b"a", b"b"],
        "list of None": lambda: [None],
        "list of pairs": lambda: [(b"a", b"b")],
        "list of text pairs": lambda: [("a", "b")],
        "list of triples": lambda: [(b"a", b"b", b"c")],
        "generator": lambda: (n for n in range(3)),
        "claims bytes": lambda: Claims(b"a"),
        "claims a pair": lambda: Claims((b"a", b"b")),
        "claims a number": lambda: Claims(1),
        "claiming list": lambda: ClaimingList([(b"a", b"b")]),
        "claiming tuple": lambda: ClaimingTuple((b"a", b"b")),
        "breaks": lambda: Breaks((b"a", b"b")),
        "refuses": lambda: hooked(refuse),
        "re-enters": lambda: hooked(reenter),
        "callable": lambda: lambda *_, **__: None,
        "raising callable": lambda: lambda *_, **__: refuse(),
    }
