"""Sockets that systemd has bound and passes on (sd_listen_fds(3)).

Here: which descriptors are meant, by the environment. Not here: what is served on them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping

__all__ = ["activation_sockets", "is_activated"]

FIRST_FD = 3
VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def is_activated(environment: Mapping[str, str]) -> bool:
    """Sockets were passed to this process, and have not been taken yet."""
    count = environment.get("LISTEN_FDS", "")
    is_ours = environment.get("LISTEN_PID") == str(os.getpid())
    return is_ours and count.isdigit() and int(count) > 0


def activation_sockets(environment: MutableMapping[str, str] = os.environ) -> list[socket.socket]:
    """The sockets that were passed to this process; they are its own from here on.

    The environment's variables are removed, so that no child takes them for its own. Raises
    ``OSError``, with the name that the unit gives it (``FileDescriptorName=``), for what is no socket.
    """
    process, count, names = (environment.pop(name, "") for name in VARIABLES)
    if not count.isdigit() or process != str(os.getpid()):
        return []
    found: list[socket.socket] = []
    named = dict(enumerate(names.split(":") if names else ()))
    try:
        for index in range(int(count)):
            fd = FIRST_FD + index
            try:
                os.set_inheritable(fd, False)
                found.append(socket.socket(fileno=fd))
            except OSError as exc:
                which = f"descriptor {fd} ({named.get(index, 'without a name')})"
                raise OSError(
                    exc.errno, f"systemd passed {which}, which is no socket: {exc.strerror}"
                ) from None
    except BaseException:
        for sock in found:
            sock.close()
        raise
    return found
