"""Detection of a server's certificate that is renewed while the server runs: new connections get the new one.

_credential_reload.py reads the files.
"""

from __future__ import annotations

import logging

from uringcore.server._config import Config
from uringcore.server._credential_reload import Listener, reload_certificate
from uringcore.server._file_signature import signature
from uringcore.server._startup_errors import StartupError

__all__ = ["CertificateReloader"]

logger = logging.getLogger("uvicorn.error")


class CertificateReloader:
    """Watches the files that a server's certificate was read from."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._files = config.certificate_files
        # The signature was computed before the files were read. So a renewal during the application's
        # start-up is detected.
        self._known = self._seen = config.certificate_signature

    def has_changed(self) -> bool:
        """True if the files differ from those of the last renewal and are unchanged since the last check.

        A renewal program writes its files one after the other. Waiting until they are stable avoids
        loading a key without its certificate.
        """
        seen, self._seen = self._seen, signature(self._files)
        return self._seen != self._known and self._seen == seen

    def renew(self, listener: Listener | None) -> bool:
        """Reads the files again. If they cannot be used, logs one line and keeps the old certificate."""
        self._known = self._seen = signature(self._files)
        try:
            reload_certificate(self._config, listener)
        except (StartupError, OSError) as exc:
            # An OSError means that the files changed again during the read. The next check retries.
            logger.error("The certificate was not reloaded: %s", exc)
            return False
        logger.info("Certificate reloaded from %s", self._files[0])
        return True
