"""Other projects' own test suites, run on this loop and on stock asyncio.

    python -m tests.ecosystem                        every project on asyncio, uring and epoll
    python -m tests.ecosystem websockets uring       one project, one backend (and asyncio beside it)

The tree contains no code of those projects. The modules:

- projects.py: the release of each project, the requirements of its suite, and the part of it that
  runs;
- sources.py fetches the released sources; environments.py makes a virtual environment for each;
- redis_and_postgresql.py starts PostgreSQL and Redis on private addresses;
- suite_processes.py runs a suite in supervised worker processes, and kills them when a test hangs;
- inside/ is the pytest plugin that installs our loop in the suite and proves that the tests ran on
  it, and the module that makes a project written for aioquic import uringcore on our loops;
- compare.py compares the results with stock asyncio's in this run;
- exceptions.py lists every test that may differ, with its reason.

All downloads and builds go to `.ecosystem/` in the root of the tree.
"""
