"""Sockets that systemd has bound and passes on (sd_listen_fds(3)).

This file finds the descriptors by the environment. It does not serve on them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping

__all__ = ["activation_sockets", "is_activated"]

FIRST_FD = 3
VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def is_activated(environment: Mapping[str, str]) -> bool:
    """True if sockets were passed to this process and have not been taken yet."""
    count = environment.get("LISTEN_FDS", "")
    is_ours = environment.get("LISTEN_PID") == str(os.getpid())
    return is_ours and count.isdigit() and int(count) > 0


def activation_sockets(environment: MutableMapping[str, str] = os.environ) -> list[socket.socket]:
    """Returns the sockets that were passed to this process, and takes ownership of them.

    The environment's variables are removed, so that child processes do not use them. Raises ``OSError``
    for a descriptor that is not a socket, with the unit's name for it (``FileDescriptorName=``).
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
                    exc.errno, f"systemd passed {which}, which is not a socket: {exc.strerror}"
                ) from None
    except BaseException:
        for sock in found:
            sock.close()
        raise
    return found
