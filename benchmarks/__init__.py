"""Benchmarks of uringcore and of its peers, side by side in one run; see run.py."""
