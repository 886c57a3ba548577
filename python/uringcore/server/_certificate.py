"""A server's certificate that is renewed while it runs: new connections get the new one.

What a certificate is made of is _config.py's and the QUIC configuration's.
"""

from __future__ import annotations

import logging
from typing import Protocol

from uringcore.server._config import Config
from uringcore.server._signature import signature
from uringcore.server._startup import StartupError

__all__ = ["CertificateKeeper"]

logger = logging.getLogger("uvicorn.error")


class _Listener(Protocol):
    def reload(self) -> None: ...


class CertificateKeeper:
    """Looks after the files that a server's certificate was read from."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._files = config.certificate_files
        # It may have been renewed since it was read, while the application started.
        self._known = self._seen = config.certificate_signature

    def has_changed(self) -> bool:
        """True if the files are others than at the last renewal, and as they were at the last look.

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
