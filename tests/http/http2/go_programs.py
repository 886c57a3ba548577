"""The Go programs of the tests of HTTP/2: the suite h2spec, and a client with Go's own HTTP/2."""

from __future__ import annotations

from pathlib import Path

from tests.support import third_party_programs

__all__ = ["go_client", "h2spec"]

FOLDER = Path(__file__).parent


def h2spec() -> Path:
    """Builds the program that runs all cases, if Go and its modules are available."""
    return third_party_programs.in_go(FOLDER / "h2spec")


def go_client() -> Path:
    """Builds the client, if Go is available."""
    return third_party_programs.in_go(FOLDER / "goclient")
