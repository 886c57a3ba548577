"""The benchmark frame: cases, peers, pinned processes, interleaved rounds, results and their report.

`benchmarks/run.py` is the command. Nothing here needs anything but the standard library, so that the
frame runs before its environment exists.
"""
