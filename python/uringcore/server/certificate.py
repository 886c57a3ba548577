"""A server's certificate that is renewed while it runs: new connections get the new one.

What a certificate is made of is config.py's and the QUIC configuration's.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import Protocol

from uringcore.server.config import ServerConfig
from uringcore.server.startup import StartupError

__all__ = ["CertificateKeeper"]

logger = logging.getLogger("uvicorn.error")

Signature = tuple[tuple[int, ...] | None, ...]


class _Listener(Protocol):
    def reload(self) -> None: ...


class CertificateKeeper:
    """Looks after the files that a server's certificate was read from."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        files = (config.ssl_certfile, config.ssl_keyfile)
        self._files = [os.fspath(path) for path in files if path is not None]
        self._known = self._seen = signature(self._files)

    def has_changed(self) -> bool:
        """Whether the files are others than at the last renewal, and as they were at the last look.

        Who renews them writes one after the other: a key without its certificate is not meant.
        """
        seen, self._seen = self._seen, signature(self._files)
        return self._seen != self._known and self._seen == seen

    def renew(self, listener: _Listener | None) -> bool:
        """Reads the files again. What cannot be used changes nothing, and is said in one line."""
        self._known = self._seen = signature(self._files)
        try:
            self._config.reload_certificate(listener)
        except (StartupError, OSError) as exc:
            # An OSError: it has changed again while it was read. The next look finds that.
            logger.error("The certificate stays as it was: %s", exc)
            return False
        logger.info("New connections get the certificate of %s as it is now", self._files[0])
        return True


def signature(files: Iterable[str]) -> Signature:
    """What changes when a file does, or what its name stands for."""
    return tuple(_of_one(path) for path in files)


def _of_one(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
