"""The benchmarks' own tests: their tables and parts, never their figures."""
