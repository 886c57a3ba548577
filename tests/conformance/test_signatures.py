"""Every public method of this CPython's own loop class, and of its transports, is ours with its signature."""

from __future__ import annotations

import asyncio
import inspect
import sys
from asyncio import selector_events, sslproto
from typing import Any

import pytest

import uringcore
from uringcore import _uringcore

STOCK_LOOP = next(
    one for one in uringcore.UringEventLoop.__mro__ if one.__module__ == "asyncio.unix_events"
)


def public(kind: type) -> list[str]:
    """The public callables of `kind`, but for what every object has."""
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
        # The one argument that is there before its time: the TLS engine is the same on all versions.
        ours = [one for one in ours if one[0] != "ssl_shutdown_timeout"]
    assert ours == shape(getattr(STOCK_LOOP, name))


def test_what_awaits_awaits() -> None:
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
