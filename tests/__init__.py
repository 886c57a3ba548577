"""The tests of the Python side. The Rust crates keep their own tests beside their sources."""
