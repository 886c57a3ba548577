"""The log lines of applications that a stop cancels: one traceback, and the number of the others.

The server cancels all applications at once, so their tracebacks add no information to the first one.
_server.py decides when applications are cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator

__all__ = ["log_one_cancellation"]

logger = logging.getLogger("uvicorn.error")


@contextlib.contextmanager
def log_one_cancellation() -> Iterator[None]:
    """A context in which only the first application that ends with ``CancelledError`` is logged.

    A line with the number of the others follows at its end.
    """
    cancellations = _Cancellations()
    logger.addFilter(cancellations)
    try:
        yield
    finally:
        logger.removeFilter(cancellations)
        if cancellations.count > 1:
            logger.error("%d more requests were cancelled", cancellations.count - 1)


class _Cancellations(logging.Filter):
    """A filter that passes the first log record about a cancellation, and drops the others."""

    count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is None or not is_cancellation(error):
            return True
        self.count += 1
        return self.count == 1


def is_cancellation(error: BaseException) -> bool:
    """A ``CancelledError``, or a group of nothing else."""
    if isinstance(error, asyncio.CancelledError):
        return True
    # CPython 3.10 has no BaseExceptionGroup.
    members = getattr(error, "exceptions", ())
    return bool(members) and all(map(is_cancellation, members))
