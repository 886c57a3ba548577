"""CPython's own asyncio tests, run on this loop and, beside it, on stock asyncio.

Nothing of CPython's is copied here: the tests come with the interpreter (`test.test_asyncio`).

    python -m tests.conformance            the event-loop tests, on both backends
    python -m tests.conformance --all      the wide list, as a table

suites.py says which classes and modules make a group and how they get our loop; worker.py runs a group
in a process of its own; runner.py watches that process and kills it when a test hangs; exceptions.py
lists every test that may differ from stock asyncio, each with its reason.
"""
