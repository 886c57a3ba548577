"""WSGI applications: one with a path for each provoked situation, under the validator of the standard
library; one of Flask and one of Django."""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import tempfile
import threading
import time
from wsgiref.validate import validator

PART = b"part of a response\n" * 1000
FILE = tempfile.NamedTemporaryFile(suffix=".txt")  # noqa: SIM115 - open as long as the process
FILE.write(PART * 20)
FILE.flush()
EVENTS = []
RUNNING = {"now": 0, "most": 0}
LOCK = threading.Lock()


def plain(environ, start_response):
    name = environ["PATH_INFO"].split("/")[1]
    return ROUTES.get(name, show)(environ, start_response)


checked = validator(plain)


def app(environ, start_response):
    """The validator's function has no names for its arguments."""
    return checked(environ, start_response)


def show(environ, start_response):
    shown = {key: value for key, value in environ.items() if isinstance(value, str)}
    shown["thread"] = threading.current_thread().name
    body = json.dumps(shown).encode()
    start_response(
        "200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    )
    return [body]


def echo(environ, start_response):
    """Reads the content in pieces, and sends its digest."""
    digest, lines = hashlib.sha256(), 0
    first = environ["wsgi.input"].readline()
    digest.update(first)
    while data := environ["wsgi.input"].read(10_000):
        digest.update(data)
        lines += 1
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [digest.hexdigest().encode(), b" ", str(lines).encode()]


class Parts:
    """Ten parts; it records its end."""

    def __init__(self, name, count=10, pause=0.0):
        self.left, self.name, self.pause = count, name, pause

    def __iter__(self):
        return self

    def __next__(self):
        if self.left == 0:
            raise StopIteration
        self.left -= 1
        time.sleep(self.pause)
        return PART

    def close(self):
        EVENTS.append([self.name, self.left])


def parts(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return Parts("parts")


def endless(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return Parts("endless", 1_000_000_000)


def written(environ, start_response):
    write = start_response("200 OK", [("Content-Type", "text/plain")])
    write(b"written, ")
    return [b"returned"]


def changed(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    try:
        raise ValueError("changed its mind")
    except ValueError:
        import sys

        start_response("500 Oops", [("Content-Type", "text/plain")], sys.exc_info())
    return [b"an error page"]


def late(environ, start_response):
    """Calls start_response again after content was sent."""
    import sys

    write = start_response("200 OK", [("Content-Type", "text/plain")])
    write(b"begun")
    try:
        raise KeyError("too late")
    except KeyError:
        start_response("500 Oops", [("Content-Type", "text/plain")], sys.exc_info())
    return []


def file(environ, start_response):
    size = os.path.getsize(FILE.name)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(size))])
    return environ["wsgi.file_wrapper"](open(FILE.name, "rb"))


def temporary(content, **options):
    made = tempfile.NamedTemporaryFile(**options)  # noqa: SIM115 - closed with the response
    made.write(content)
    made.seek(0)
    return made


OPENED = {
    "gzip": lambda: gzip.open(temporary(gzip.compress(PART))),  # noqa: SIM115 - closed with the response
    "bz2": lambda: bz2.open(temporary(bz2.compress(PART))),  # noqa: SIM115 - closed with the response
    "lzma": lambda: lzma.open(temporary(lzma.compress(PART))),  # noqa: SIM115 - closed with the response
    "buffered-gzip": lambda: io.BufferedReader(OPENED["gzip"]()),
    "temporary": lambda: temporary(PART),
    "unbuffered": lambda: temporary(PART, buffering=0),
}


def opened(environ, start_response):
    """Wraps a file of the kind that the path names, of which one byte is read."""
    found = OPENED[environ["PATH_INFO"].split("/")[2]]()
    assert found.read(1) == PART[:1]
    start_response("200 OK", [("Content-Type", "text/plain")])
    return environ["wsgi.file_wrapper"](found)


def fails(environ, start_response):
    raise RuntimeError("an application's own error")


def silent(environ, start_response):
    return Parts("silent")


def events(environ, start_response):
    body = json.dumps([EVENTS, RUNNING]).encode()
    start_response("200 OK", [("Content-Type", "application/json")])
    return [body]


def busy(environ, start_response):
    with LOCK:
        RUNNING["now"] += 1
        RUNNING["most"] = max(RUNNING["most"], RUNNING["now"])
    time.sleep(0.1)
    with LOCK:
        RUNNING["now"] -= 1
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"busy"]


ROUTES = {
    "echo": echo,
    "parts": parts,
    "endless": endless,
    "written": written,
    "changed": changed,
    "late": late,
    "fails": fails,
    "silent": silent,
    "events": events,
    "busy": busy,
}

# The validator does not know `wsgi.file_wrapper`, and the close of `silent` is not reached through it.
unchecked = {"file": file, "opened": opened, "silent": silent}


def unvalidated(environ, start_response):
    name = environ["PATH_INFO"].split("/")[1]
    return {**ROUTES, **unchecked}.get(name, show)(environ, start_response)


def make_flask():
    from flask import Flask, request, send_file, stream_with_context

    made = Flask(__name__)

    @made.post("/form")
    def form():
        return {"name": request.form["name"], "file": len(request.files["file"].read())}

    @made.get("/stream")
    def stream():
        return made.response_class(stream_with_context(iter(["one ", "two ", "three"])))

    @made.get("/file")
    def whole_file():
        return send_file(FILE.name)

    @made.get("/url")
    def url():
        return {"url": request.url, "root": request.script_root, "address": request.remote_addr}

    return made


def make_django():
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import FileResponse, JsonResponse, StreamingHttpResponse
    from django.urls import path

    def form(request):
        body = request.FILES["file"].read()
        return JsonResponse({"name": request.POST["name"], "file": len(body)})

    def stream(request):
        return StreamingHttpResponse(iter(["one ", "two ", "three"]))

    def whole_file(request):
        return FileResponse(open(FILE.name, "rb"))

    def url(request):
        found = request.build_absolute_uri()
        return JsonResponse(
            {
                "url": found,
                "root": request.META["SCRIPT_NAME"],
                "address": request.META["REMOTE_ADDR"],
            }
        )

    class Urls:
        urlpatterns = (
            path("form", form),
            path("stream", stream),
            path("file", whole_file),
            path("url", url),
        )

    settings.configure(
        ROOT_URLCONF=Urls, SECRET_KEY="for tests", ALLOWED_HOSTS=["*"], MIDDLEWARE=[]
    )
    django.setup()
    return get_wsgi_application()


def __getattr__(name):
    """Makes the applications of frameworks when the server imports them."""
    if name in ("flask", "django"):
        return make_flask() if name == "flask" else make_django()
    raise AttributeError(name)
