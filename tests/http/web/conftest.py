"""Clients of one server over HTTP/1.1 (native, and h11 of uvicorn) and over HTTP/3, in one form."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.http.http1.client import connected
from tests.server.harness import Server

VERSIONS = ("native", "h11", "http3")


@dataclass
class Answer:
    """A response in the form of each version. Names of fields are in lower case."""

    status: int
    fields: list[tuple[str, str]]
    body: bytes

    def __getitem__(self, name):
        """The field's value, or None; several lines are joined."""
        return ", ".join(value for key, value in self.fields if key == name) or None


class Site:
    """A server, and the version of HTTP in which a test's requests are made."""

    def __init__(self, version, folder, certificate, backend, app, options):
        self.version = version
        self.server = Server(
            folder,
            certificate,
            *("--http", "h11" if version == "h11" else "native"),
            *([] if version == "http3" else ["--no-http3"]),
            *options,
            backend=backend,
            app=app,
            http3=version == "http3",
        )

    def get(self, path, method="GET", **fields):
        """Makes one request on a new connection. Names of `fields` have `_` for `-`."""
        fields = {name.replace("_", "-"): value for name, value in fields.items()}
        if self.version == "http3":
            headers = [(name.encode(), value.encode()) for name, value in fields.items()]
            found = self.server.get(path, method=method, headers=headers)
            lines = [(name.decode(), value.decode("latin-1")) for name, value in found.headers]
            return Answer(found.status, lines, found.content)
        with connected(self.server, secure=True) as raw:
            found = raw.get(
                path, *(f"{name}: {value}" for name, value in fields.items()), method=method
            )
        lines = [(name.lower(), value) for name, value in found.fields]
        return Answer(found.status, lines, found.body)

    def end(self):
        self.server.kill()
        self.server.check_log()


@pytest.fixture
def make_site(request, backend, certificate, tmp_path_factory):
    """Starts servers that end with the test."""

    def make(version, *options, app="tests.http.web.application:app"):
        made = Site(version, tmp_path_factory.mktemp("web"), certificate, backend, app, options)
        request.addfinalizer(made.end)
        return made

    return make
