"""All scenarios (*lives*), each as often as it should be drawn."""

from __future__ import annotations

from tests.stress import lives_files, lives_process, lives_sockets, lives_streams
from tests.stress.world import Life

LIVES: list[Life] = [
    *lives_streams.LIVES,
    *lives_sockets.LIVES,
    *lives_process.LIVES,
    *lives_files.LIVES,
]
