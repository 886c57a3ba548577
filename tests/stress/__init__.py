"""Random lives of connections, processes, timers and loops, with the rules that always hold checked.

    python -m tests.stress --seed 7 --seconds 60 --backend uring

The seed decides what is done: which lives in which era, their sizes, pauses and ends. How the kernel
interleaves them is not decided, so a failure may need several runs of its seed. An era is one event loop
from its making to its closing; `world.py` holds what must be true all along and after each era, `lives_*.py`
what is done. Everything also runs on stock asyncio (`--backend asyncio`), which proves the rules themselves.

Not here: speed, and what one test can show without chance (tests/loop).
"""
