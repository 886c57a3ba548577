"""Another user of this machine, for tests that need another user's file."""

from __future__ import annotations

import os
import tempfile

import pytest

OTHER_USER = 54321
"""The number of a user that does not exist."""


def _lacking() -> str | None:
    """Returns the reason why this process cannot change a file's owner, or None: it is not root, or its user
    namespace lacks the number."""
    with tempfile.NamedTemporaryFile() as file:
        try:
            os.chown(file.name, OTHER_USER, OTHER_USER)
        except OSError as exc:
            return f"a file cannot be given to the user {OTHER_USER}: {exc.strerror}"
    return None


_WHY = _lacking()

needs_other_user = pytest.mark.skipif(_WHY is not None, reason=str(_WHY))
