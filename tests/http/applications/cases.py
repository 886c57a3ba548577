"""The requests to every framework, and the frameworks that skip some of them."""

from __future__ import annotations

from tests.http.applications.exchange import Case, Leave
from tests.http.applications.request_bodies import LARGE

BOUNDARY = "----boundary"
FORM = ("content-type", "application/x-www-form-urlencoded")
LONGER = ("content-length", "100000")
JSON = ("content-type", "application/json")
MULTIPART = ("content-type", f"multipart/form-data; boundary={BOUNDARY}")


def multipart(title: str, name: str, content: bytes) -> bytes:
    """A form with a text and a file."""
    head = (
        f"--{BOUNDARY}\r\nContent-Disposition: form-data; name=title\r\n\r\n{title}\r\n"
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name=file; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    return head.encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()


CASES = {
    "plain": Case("/plain"),
    "head": Case("/plain", "HEAD"),
    "options": Case("/plain", "OPTIONS"),
    "method that is not allowed": Case("/plain", "DELETE"),
    "method that nobody knows": Case("/plain", "PROPFIND"),
    "path that is not there": Case("/missing"),
    "root": Case("/"),
    "slash at the end": Case("/plain/"),
    "view in a thread": Case("/threaded"),
    "path and query parameters": Case("/items/7?q=a%20b+c&tags=x&tags=%C3%A9"),
    "path parameter of another type": Case("/items/seven"),
    "empty query": Case("/items/7?"),
    "query without values": Case("/items/7?q&tags"),
    "escaped path": Case("/files/a%20b%2Fc/%C3%A9.txt"),
    "path with dots": Case("/files/a/../b/./c"),
    "path with two slashes": Case("/files//a//b"),
    "json": Case("/json", "POST", (JSON,), b'{"name": "tea", "count": 3, "tags": ["\xc3\xa9"]}'),
    "json that is none": Case("/json", "POST", (JSON,), b'{"name": '),
    "json of another shape": Case("/json", "POST", (JSON,), b'{"name": 5}'),
    "form": Case("/form", "POST", (FORM,), b"name=a+b%C3%A9&count=2"),
    "form without a field": Case("/form", "POST", (FORM,), b"count=2"),
    "upload": Case("/upload", "POST", (MULTIPART,), multipart("text", "a.bin", bytes(range(256)))),
    "large upload": Case("/upload", "POST", (MULTIPART,), multipart("text", "b.bin", LARGE)),
    "empty body": Case("/digest", "POST", (), b""),
    "no body": Case("/digest", "POST"),
    "large body": Case("/digest", "PUT", (), LARGE),
    "body without a length": Case("/digest", "POST", (), (b"one", b"two" * 50_000, b"three")),
    "body of a delete": Case("/digest", "DELETE", (), b"what is it"),
    "stream": Case("/stream"),
    "head of a stream": Case("/stream", "HEAD"),
    "large response": Case("/large"),
    "compressed response": Case("/large", headers=(("accept-encoding", "gzip"),)),
    "cookies": Case("/cookies", headers=(("cookie", 'one=1; two="2 2"'),)),
    "redirect": Case("/redirect"),
    "no content": Case("/nothing"),
    "status of its own": Case("/teapot", headers=(("x-many", "1"), ("x-many", "2"))),
    "values beyond ascii": Case("/teapot", headers=(("x-many", "caf\xe9"),)),
    "exception": Case("/raise"),
    "exception that is handled": Case("/handled"),
    "refused by a dependency": Case("/user"),
    "let in by a dependency": Case("/user", headers=(("x-user", "me"),)),
    "exception in a stream": Case("/raise-late"),
    "lifespan's state": Case("/state"),
    "background task": Case("/background", "POST"),
}

# The moment at which the client disconnects.
LEAVES = {
    "before the response": Leave(Case("/wait")),
    "while the application looks": Leave(Case("/until-gone")),
    "in a stream": Leave(Case("/endless"), takes=5000),
    "in an upload": Leave(Case("/digest", "POST", (LONGER,)), sends=b"some of it"),
    "in a form": Leave(
        Case("/upload", "POST", (LONGER, MULTIPART)), sends=multipart("text", "a", b"")[:-20]
    ),
}
