"""Finds out if this machine permits io_uring, once for all processes of a test run."""

from __future__ import annotations

import os

NO_URING = "URINGCORE_TEST_NO_URING"


def ask_once() -> None:
    """Finds out in the first process of a test run. Its children inherit the answer, because all of them have
    to collect the same tests."""
    if NO_URING in os.environ:
        return
    import uringcore

    try:
        uringcore.new_event_loop(backend="uring").close()
    except (OSError, RuntimeError) as exc:
        os.environ[NO_URING] = f"io_uring is not available here: {exc}"
    else:
        os.environ[NO_URING] = ""


def why_not() -> str:
    """Returns why this machine has no io_uring, or "" if it has."""
    ask_once()
    return os.environ[NO_URING]
