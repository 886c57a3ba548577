"""Other projects' own test suites, run on this loop and, beside it, on stock asyncio.

    python -m tests.ecosystem                        every project on asyncio, uring and epoll
    python -m tests.ecosystem websockets uring       one project, one backend (and asyncio beside it)

Nothing of those projects is kept here. projects.py says which release is taken, what its suite needs
and which part of it is run; sources.py fetches the released sources and environments.py makes a virtual
environment for each; services.py starts PostgreSQL and Redis on private addresses; runner.py runs a
suite in worker processes that it watches and kills when a test hangs; inside/ is the pytest plugin that
gives the suite its loop and proves that the tests ran on it, and what has a project that is written for
aioquic import uringcore in its place on our loops; compare.py holds the results against stock
asyncio's of the same run; exceptions.py lists every test that may differ, with its reason.

Everything that is fetched or built goes to `.ecosystem/` in the root of the tree.
"""
