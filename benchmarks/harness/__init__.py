"""The benchmark frame: cases, peers, pinned processes, interleaved rounds, results and their report.

`benchmarks/run.py` is the command. The package needs only the standard library, so that it runs before
the benchmarks' environment exists.
"""
