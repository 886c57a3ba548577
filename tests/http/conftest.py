"""Fixtures of the HTTP tests: those of the server's, which start it as a user would."""

from tests.server.conftest import backend, certificate, start

__all__ = ["backend", "certificate", "start"]
