"""Benchmarks that are one process: a program runs every row of a table and prints its samples.

`harness/matrix.py` runs them, a fresh process for each peer and round.
"""
