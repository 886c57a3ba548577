"""Methods that replace one of this CPython's own classes accept the arguments that it passes to
them.

Public methods have its signature. Private ones, which asyncio's modules call among themselves, have
to accept all that its own accept: a newer CPython may pass one more argument, and the tests must
find that before a user does.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pkgutil
import sys
from asyncio import selector_events, sslproto
from collections.abc import Iterator
from inspect import Parameter
from types import ModuleType
from typing import Any

import pytest

import uringcore
from uringcore import _uringcore

STOCK_LOOP = next(
    one for one in uringcore.UringEventLoop.__mro__ if one.__module__ == "asyncio.unix_events"
)


def public(kind: type) -> list[str]:
    """The public callables of `kind`, except those of every object."""
    return [
        name
        for name in dir(kind)
        if not name.startswith("_") and callable(getattr(kind, name)) and not hasattr(object, name)
    ]


def shape(method: Any) -> list[tuple[str, str, Any]]:
    """A method's parameters after `self`: name, kind and default."""
    parameters = list(inspect.signature(method).parameters.values())
    return [(one.name, one.kind.name, one.default) for one in parameters[1:]]


@pytest.mark.parametrize("name", public(STOCK_LOOP))
def test_loop_method(name: str) -> None:
    ours = shape(getattr(uringcore.UringEventLoop, name))
    if name == "start_tls" and sys.version_info < (3, 11):
        # This argument exists before its version: the TLS engine is equal on all versions.
        ours = [one for one in ours if one[0] != "ssl_shutdown_timeout"]
    assert ours == shape(getattr(STOCK_LOOP, name))


def test_coroutine_functions_are_asyncios() -> None:
    for name in public(STOCK_LOOP):
        theirs = inspect.iscoroutinefunction(getattr(STOCK_LOOP, name))
        assert inspect.iscoroutinefunction(getattr(uringcore.UringEventLoop, name)) == theirs, name


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (_uringcore.StreamTransport, selector_events._SelectorSocketTransport),
        (_uringcore.DatagramTransport, asyncio.DatagramTransport),
        (_uringcore.SSLTransport, sslproto._SSLProtocolTransport),
        (_uringcore.Handle, asyncio.Handle),
        (_uringcore.TimerHandle, asyncio.TimerHandle),
    ],
)
def test_methods_of_what_the_loop_makes(ours: type, theirs: type) -> None:
    missing = [name for name in public(theirs) if not hasattr(ours, name)]
    assert not missing
    different = {
        name: (shape(getattr(ours, name)), shape(getattr(theirs, name)))
        for name in public(theirs)
        if shape(getattr(ours, name)) != shape(getattr(theirs, name))
    }
    assert not different


# Our class first, then the class of CPython that it replaces.
STAND_INS: list[tuple[type, type]] = [
    (_uringcore.StreamTransport, selector_events._SelectorSocketTransport),
    (_uringcore.DatagramTransport, selector_events._SelectorDatagramTransport),
    (_uringcore.SSLTransport, sslproto._SSLProtocolTransport),
    (_uringcore.TlsProtocol, sslproto.SSLProtocol),
    (_uringcore.Handle, asyncio.Handle),
    (_uringcore.TimerHandle, asyncio.TimerHandle),
]
# Read at import from CPython's own method, and passed by position.
NEVER_BY_NAME = {"PendingPopen._execute_child"}
REST = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def overridden() -> dict[str, tuple[Any, Any]]:
    """Pairs of a method of ours and the CPython method that it overrides, by name."""
    derived = [(kind, base) for kind in classes() for base in kind.__mro__ if is_stock(base)]
    found: dict[str, tuple[Any, Any]] = {}
    for ours, theirs in [*STAND_INS, *derived]:
        for name in vars(theirs):
            mine, method = getattr(ours, name, None), getattr(theirs, name)
            if not callable(mine) or not callable(method) or name.startswith("__"):
                continue
            # The first of CPython's classes is the one whose method would run.
            found.setdefault(f"{ours.__name__}.{name}", (mine, method))
    return {
        name: (mine, method)
        for name, (mine, method) in found.items()
        if mine is not method and name not in NEVER_BY_NAME
    }


def is_stock(kind: type) -> bool:
    return kind.__module__.split(".")[0] in {"asyncio", "selectors", "subprocess"}


def classes() -> Iterator[type]:
    """The Python classes of the package."""
    for module in modules():
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == module.__name__:
                yield kind


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(uringcore.__path__, "uringcore."):
        try:
            yield importlib.import_module(found.name)
        except ModuleNotFoundError as missing:
            # A command, or a module that needs an extra that is not installed.
            assert missing.name is not None and not missing.name.startswith("uringcore"), missing


OVERRIDDEN = overridden()


def refused(ours: Any, theirs: Any) -> list[str]:
    """Argument lists that `theirs` accepts and `ours` does not, a line each."""
    accepted = inspect.signature(ours).parameters
    kinds = {one.kind for one in accepted.values()}
    wrong = []
    for place, (name, wanted) in enumerate(inspect.signature(theirs).parameters.items()):
        got = accepted.get(name)
        by_place = place < len(accepted) and list(accepted)[place] == name
        by_place |= wanted.kind is not Parameter.POSITIONAL_OR_KEYWORD
        if not by_place and Parameter.VAR_POSITIONAL not in kinds:
            wrong.append(f"{name}: not at place {place}")
        if got is None:
            rest = wanted.kind if wanted.kind in REST else Parameter.VAR_KEYWORD
            if rest not in kinds:
                wrong.append(f"{name}: not there")
        elif wanted.default not in (Parameter.empty, got.default):
            wrong.append(
                f"{name}: {got.default!r} if not given, where CPython has {wanted.default!r}"
            )
    return wrong


def test_there_are_overridden_methods() -> None:
    loop = {name for name in OVERRIDDEN if name.startswith("UringEventLoop._")}
    assert len(loop) > 10


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_overridden_method_accepts_all_that_cpython_passes(name: str) -> None:
    assert refused(*OVERRIDDEN[name]) == []
