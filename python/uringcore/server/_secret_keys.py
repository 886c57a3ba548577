"""The secrets of a server's address tokens and stateless resets, and the files that SIGHUP reads again.

_stateless_reset_key.py derives the key of this machine.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from uringcore.quic._configuration_conversion import KEYS_MAX
from uringcore.server._startup_errors import StartupError
from uringcore.server._stateless_reset_key import reset_key

__all__ = ["ServerKeys"]

KEY_BYTES_MIN = 32


class ServerKeys:
    """The keys of each kind, the present one first. Empty: each endpoint makes a random one.

    ``files`` has the file of each kind (``"token"`` and ``"reset"``), if it is known. Raises
    :class:`StartupError` for keys that cannot be used.
    """

    def __init__(self, token: bytes | None, reset: bytes | None, group: str | None) -> None:
        if group is not None and (reset is None or not group):
            raise StartupError("--http3-reset-group: needs a name, and --http3-reset-key")
        self._group = group
        self.token: list[bytes] = [] if token is None else [checked("token", token)]
        self.reset: list[bytes] = [] if reset is None else [self._of_machine(reset)]
        self.files: dict[str, str] = {}

    def share(self) -> None:
        """Makes the keys that all processes of this server share, if none are given."""
        self.token = self.token or [secrets.token_bytes(64)]
        self.reset = self.reset or [secrets.token_bytes(32)]

    def read_again(self) -> list[str]:
        """Reads the files again; keys that were present become former ones. Returns the kinds that have
        changed. Raises :class:`StartupError` and changes nothing if a file cannot be used."""
        token, reset = self.token, self.reset
        if (path := self.files.get("token")) is not None:
            token = with_former_keys(checked("token", contents("token", path)), token)
        if (path := self.files.get("reset")) is not None:
            reset = with_former_keys(self._of_machine(contents("reset", path)), reset)
        pairs = (("token", self.token, token), ("reset", self.reset, reset))
        changed = [kind for kind, before, after in pairs if before != after]
        self.token, self.reset = token, reset
        return changed

    def _of_machine(self, secret: bytes) -> bytes:
        return reset_key(checked("reset", secret), self._group)


def checked(kind: str, key: bytes) -> bytes:
    if len(key) < KEY_BYTES_MIN:
        raise StartupError(
            f"--http3-{kind}-key: must be a secret of at least {KEY_BYTES_MIN} bytes, not {len(key)}"
        )
    return key


def contents(kind: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as exc:
        raise StartupError(f"--http3-{kind}-key: {path}: {exc.strerror}") from None


def with_former_keys(key: bytes, present: Iterable[bytes]) -> list[bytes]:
    """Returns ``key``, followed by the newest of the ``present`` keys. Tokens that those have sealed stay
    valid, and connections from their time can be reset."""
    return [key, *(one for one in present if one != key)][:KEYS_MAX]
