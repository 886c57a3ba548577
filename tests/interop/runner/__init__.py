"""Runs interoperability cases: two endpoints as processes, the impairment proxy between them, and
the proxy's capture as evidence. `python -m tests.interop.runner --help`.
"""
