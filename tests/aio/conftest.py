"""The loops' fixtures: file I/O works on stock asyncio and on both of our backends."""

from tests.loop.conftest import run, run_ours

__all__ = ["run", "run_ours"]
