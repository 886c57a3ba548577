"""Plays interoperability cases: two endpoints as processes, the impairment proxy between them, and
what the proxy saw as the evidence. `python -m tests.interop.runner --help`.
"""
