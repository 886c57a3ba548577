"""How many descriptors a server's process may have.

Not here: the share of them that responses may have open (``HTTP3Limits.max_process_files``).
"""

from __future__ import annotations

import logging
import resource

__all__ = ["DESCRIPTORS_MAX", "raise_limit"]

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
