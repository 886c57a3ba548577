"""Frameworks over HTTP/3, and native HTTP/1.1 and HTTP/2, beside uvicorn over HTTP/1.1: each response, and
the application's view of its request.

The development environment contains all of them; it belongs to the default interpreter.
"""

from __future__ import annotations

import importlib.util
import json
import time
from dataclasses import replace

import pytest

from tests.http.applications.cases import CASES, LEAVES
from tests.http.applications.exchange import (
    UVICORN,
    WAIT_SECONDS,
    Case,
    HTTP2Side,
    Side,
    without,
)
from tests.server.harness import ForkedServer
from tests.support.interpreter_roles import is_default_interpreter

pytestmark = [
    pytest.mark.either_backend("sides"),
    pytest.mark.skipif(
        not is_default_interpreter(), reason="frameworks are compared on the default interpreter"
    ),
]
# The module that must be installed, by framework.
FRAMEWORKS = {
    "fastapi": "fastapi",
    "starlette": "starlette",
    "django": "django",
    "litestar": "litestar",
    "quart": "quart",
    "flask": "a2wsgi",
}

# FastAPI's application loses the disconnect that its own middleware has received.
CANNOT_LOOK = {"fastapi", "litestar", "flask"}
# The random parts of a Socket.IO session.
SESSION = """"sid":"[^"]*"|disconnected' [^"]*"""


def application(name):
    return f"tests.http.applications.{name}_app:app"


def needed(name, module):
    lacking = importlib.util.find_spec(module) is None
    return pytest.param(
        name, marks=pytest.mark.skipif(lacking, reason=f"{module} is not installed here")
    )


@pytest.fixture(scope="module")
def serve(backend, certificate, tmp_path_factory):
    """Starts both servers of an application."""
    started = []

    def both(app):
        ours = ForkedServer(
            tmp_path_factory.mktemp("ours"),
            certificate,
            *("--no-access-log", "--http", "native"),
            backend=backend,
            app=app,
        )
        started.append(ours)
        theirs = ForkedServer(
            tmp_path_factory.mktemp("theirs"),
            certificate,
            http3=False,
            program=UVICORN.format(app=app),
        )
        started.append(theirs)
        return (
            Side(theirs, over_http3=False),
            Side(ours, over_http3=True),
            Side(ours, over_http3=False),
            HTTP2Side(ours, over_http3=False),
        )

    yield both
    for server in started:
        server.kill()
    for server in started:
        server.check_log()


@pytest.fixture(scope="module", params=[needed(*pair) for pair in FRAMEWORKS.items()])
def sides(request, serve):
    """uvicorn, and our server over all versions, with one framework's application."""
    return serve(application(request.param))


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_the_same_response(sides, case):
    (theirs, seen_theirs), *ours = (side.ask(case) for side in sides)
    # The number of calls to `receive` after the end depends on scheduling.
    del seen_theirs["told"]
    for reply, seen in ours:
        assert reply == theirs
        del seen["told"]
        assert seen == seen_theirs


@pytest.mark.parametrize("leave", LEAVES.values(), ids=list(LEAVES))
def test_the_same_end_for_who_leaves(sides, leave, request):
    name = request.node.callspec.params["sides"]
    if leave.case.path == "/until-gone" and name in CANNOT_LOOK:
        pytest.skip("its views cannot detect a disconnect")
    theirs, *ours = (side.leave(leave) for side in sides)
    assert ours == [theirs] * 3


def test_background_tasks_are_done(sides):
    for side in sides:
        reply, _ = side.ask(Case("/notes"))
        if reply.status == 404:
            pytest.skip("the framework has no background tasks")
        side.ask(Case("/background", "POST"))
        before, deadline = len(json.loads(reply.body)), time.monotonic() + WAIT_SECONDS
        while len(json.loads(side.ask(Case("/notes"))[0].body)) == before:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def conversation(side):
    """Runs a Socket.IO session over long polling (Engine.IO protocol 4), reply by reply."""
    polling = "/socket.io/?EIO=4&transport=polling"
    opened, _ = side.ask(Case(polling))
    yield without(opened, SESSION)
    session = f"{polling}&sid={json.loads(opened.body[1:])['sid']}"
    for packets in (
        b'40{"who":"me"}',
        b'421["echo",{"n":[1,2,"\xc3\xa9"]}]',
        b'42["echo",1]\x1e42["echo",2]',
    ):
        yield side.ask(Case(session, "POST", (("content-type", "text/plain"),), packets))[0]
        yield without(side.ask(Case(session))[0], SESSION)
    yield side.ask(Case(session, "POST", (), b"41"))[0]
    yield side.ask(Case(session, "POST", (), b"1"))[0]
    for wrong in (session, f"{polling}&sid=nobody", "/socket.io/?EIO=4&transport=none", "/else"):
        yield without(side.ask(Case(wrong))[0], SESSION)
    yield side.ask(Case(polling, "OPTIONS", (("origin", "https://elsewhere"),)))[0]


@pytest.mark.parametrize("name", [needed("socketio", "socketio")])
def test_the_same_conversation(serve, name):
    conversations = [conversation(side) for side in serve(application(name))]
    for theirs, *ours in zip(*conversations, strict=True):
        assert [without_added_length(reply, theirs) for reply in ours] == [theirs] * 3


def without_added_length(reply, theirs):
    """Removes a Content-Length that native HTTP/1.1 adds to whole content. uvicorn sends it in chunks."""
    length = (b"content-length", b"%d" % len(reply.body))
    if any(name == b"content-length" for name, _ in theirs.headers):
        return reply
    return replace(reply, headers=[field for field in reply.headers if field != length])


def test_no_framework_is_left_out_everywhere():
    wanted = {*FRAMEWORKS.values(), "socketio"}
    assert {name for name in wanted if importlib.util.find_spec(name) is None} == set()
