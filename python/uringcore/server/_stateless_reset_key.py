"""The stateless reset key derived from a server's options, and its scope.

Anybody can provoke a stateless reset, which ends a connection. So a machine must not send one for a live
connection of another machine (RFC 9000 section 21.11): behind a load balancer that routes by address, a
packet can be made to reach any machine. One secret therefore gives a different key on each machine, unless
the options declare the machines a group.

QUIC derives a separate key for each socket of a machine from this one.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import socket
from pathlib import Path

__all__ = ["reset_key"]


def reset_key(secret: bytes, group: str | None = None) -> bytes:
    """Returns 32 bytes derived from ``secret``: for this machine, or for all machines of ``group``."""
    owner = _machine() if group is None else b"group\0" + group.encode()
    return hmac.digest(secret, b"uringcore stateless reset\0" + owner, hashlib.sha256)


def _machine() -> bytes:
    """Identifies this machine. A container has its own host name, and cloned machines may share theirs."""
    number = b""
    # A container has no machine-id file, so its host name identifies it.
    with contextlib.suppress(OSError):
        number = Path(MACHINE_ID).read_bytes().strip()
    return b"machine\0" + number + b"\0" + socket.gethostname().encode()


MACHINE_ID = "/etc/machine-id"
