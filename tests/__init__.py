"""The test-suite of the Python side; the Rust rooms keep their own tests beside their sources."""
