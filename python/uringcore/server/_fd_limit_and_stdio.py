"""A server process's descriptors: their limit, and the three standard streams.

``HTTP3Limits.max_process_files`` bounds the share that responses may use.
"""

from __future__ import annotations

import logging
import os
import resource
import sys

__all__ = ["DESCRIPTORS_MAX", "open_standard_streams", "raise_limit"]

DESCRIPTORS_MAX = 1 << 19
"""The maximum to which the limit is raised: systemd's hard limit. In some containers the hard limit is a
thousand million, and some child programs would loop over as many numbers to close inherited descriptors."""

logger = logging.getLogger("uvicorn.error")


def raise_limit() -> None:
    """Raises this process's soft limit (RLIMIT_NOFILE) to the hard one, as Go's programs and HAProxy do.

    The soft limit of 1,024 exists for programs that use ``select()``, which cannot handle higher numbers.
    A server uses one descriptor for each TCP client.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except OSError as exc:
        logger.warning("Cannot raise the limit of %d descriptors: %s", soft, exc.strerror)


def open_standard_streams() -> None:
    """Opens the null device in place of each standard stream that was closed when the process started.

    Otherwise the first sockets would get the numbers 0 to 2, and output to standard output would be sent
    to a client.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # open() returns the lowest free number, which is that of the missing stream.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - open to the end
