"""All scenarios (*lives*), each as often as it should be drawn."""

from __future__ import annotations

from tests.stress import scenarios_files, scenarios_process, scenarios_sockets, scenarios_streams
from tests.stress.era import Life

LIVES: list[Life] = [
    *scenarios_streams.LIVES,
    *scenarios_sockets.LIVES,
    *scenarios_process.LIVES,
    *scenarios_files.LIVES,
]
