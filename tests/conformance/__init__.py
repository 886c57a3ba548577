"""CPython's own asyncio tests, run on this loop and on stock asyncio.

The tests come with the interpreter (`test.test_asyncio`); none are copied here.

    python -m tests.conformance            the event-loop tests, on both backends
    python -m tests.conformance --all      the wide list, as a table

suites.py lists the classes and modules of a group and installs our loop; worker.py runs a group in
a process of its own; suite_processes.py supervises that process and kills it when a test hangs;
exceptions.py lists every test that may differ from stock asyncio, each with its reason.
"""
