"""The descriptors of a server's process: how many it may have, and the three that every program expects.

Not here: the share of them that responses may have open (``HTTP3Limits.max_process_files``).
"""

from __future__ import annotations

import logging
import os
import resource
import sys

__all__ = ["DESCRIPTORS_MAX", "open_standard_streams", "raise_limit"]

DESCRIPTORS_MAX = 1 << 19
"""systemd's hard limit. Where it is unlimited, as in some containers, programs that a server starts would
count to a thousand million to close what they inherit."""

logger = logging.getLogger("uvicorn.error")


def raise_limit() -> None:
    """Raises this process's soft limit (RLIMIT_NOFILE) to the hard one, as Go's programs and HAProxy do.

    The soft limit of 1,024 is there for programs that use ``select()``, which cannot name higher numbers.
    A server has one descriptor for each TCP client.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except OSError as exc:
        logger.warning("the limit of %d descriptors cannot be raised: %s", soft, exc.strerror)


def open_standard_streams() -> None:
    """Opens the null device in place of each standard stream with which the process was started closed.

    Otherwise the first sockets would have their numbers, and whatever a program writes to its standard
    output would go to a client.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - open to the end
