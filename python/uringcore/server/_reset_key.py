"""The key of stateless resets that a server's options name, and the machines that have it.

Anybody can provoke a stateless reset, and it ends a connection. So no machine may answer for a live
connection of another one (RFC 9000 section 21.11): behind a balancer that goes by addresses anybody
reaches every machine. One secret is therefore another key on each machine, unless the options say that
the machines are a group.

Not here: the sockets of one machine, for each of which QUIC derives a key of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import socket
from pathlib import Path

__all__ = ["reset_key"]


def reset_key(secret: bytes, group: str | None = None) -> bytes:
    """The 32 bytes that QUIC takes, of a secret that may have more; without ``group``, this machine's."""
    owner = _machine() if group is None else b"group\0" + group.encode()
    return hmac.digest(secret, b"uringcore stateless reset\0" + owner, hashlib.sha256)


def _machine() -> bytes:
    """A container has a host name of its own, and machines made from one image may share theirs."""
    number = b""
    # Containers have none, and need none.
    with contextlib.suppress(OSError):
        number = Path(MACHINE_ID).read_bytes().strip()
    return b"machine\0" + number + b"\0" + socket.gethostname().encode()


MACHINE_ID = "/etc/machine-id"
