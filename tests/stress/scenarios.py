"""All scenarios, each as often as it should be drawn."""

from __future__ import annotations

from tests.stress import scenarios_files, scenarios_process, scenarios_sockets, scenarios_streams
from tests.stress.stress_round import Scenario

SCENARIOS: list[Scenario] = [
    *scenarios_streams.SCENARIOS,
    *scenarios_sockets.SCENARIOS,
    *scenarios_process.SCENARIOS,
    *scenarios_files.SCENARIOS,
]
