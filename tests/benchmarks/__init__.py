"""The benchmarks' own tests: they check tables and components, never figures."""
