"""Checks that closing methods refuse invalid arguments, with exceptions that name the argument."""

from __future__ import annotations

import contextlib

import pytest


def bad_codes(bits):
    return [-1, -(1 << 70), 1 << bits, 1 << 70, None, "1", 1.5, b"1"]


BAD_REASONS = [None, b"bytes", 1, "\ud800"]


@contextlib.contextmanager
def refusal(name):
    """Expects a ``TypeError`` or ``ValueError`` that names the argument."""
    with pytest.raises((TypeError, ValueError), match=rf"\b{name}\b"):
        yield


def all_refused(close, bits, *, code="code", reason="reason"):
    """Calls ``close(code, reason)`` with all arguments that it has to refuse."""
    for bad in bad_codes(bits):
        with refusal(code):
            close(bad, "")
    if reason is not None:
        for bad in BAD_REASONS:
            with refusal(reason):
                close(0, bad)


def all_codes_refused(end, bits, *, code="code"):
    """Calls ``end(code)`` with all arguments that it has to refuse."""
    all_refused(lambda bad, _: end(bad), bits, code=code, reason=None)
