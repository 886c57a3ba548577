"""Random scenarios of connections, processes, timers and loops, under rules that always hold.

    python -m tests.stress --seed 7 --seconds 60 --backend uring

The seed decides the actions: the scenarios of each round, their sizes, pauses and ends. The kernel's
interleaving is not fixed, so a failure may need several runs of its seed. A round is one event loop from its
creation to its close. `stress_round.py` contains the rules during and after each round, `scenarios_*.py` the
scenarios. All of it also runs on stock asyncio (`--backend asyncio`), which tests the rules themselves.

Speed, and behaviour that one test can show without chance, are tested elsewhere (tests/loop).
"""
