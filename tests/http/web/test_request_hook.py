"""`--request-hook`: an observer of requests, with OpenTelemetry's SDK."""

from __future__ import annotations

import importlib.util
import json

import pytest

from tests.http.web.conftest import VERSIONS
from tests.server.harness import command

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HOOKED = "tests.http.web.hooked_application"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("opentelemetry") is None
    or importlib.util.find_spec("opentelemetry.sdk") is None,
    reason="opentelemetry-sdk is not installed here",
)


def spans(site, path):
    found = json.loads(site.get("/spans").body)
    return [span for span in found if span["attributes"]["url.path"] == path]


@pytest.mark.parametrize("version", VERSIONS)
def test_spans_have_the_attributes_of_the_conventions(version, make_site):
    site = make_site(version, "--request-hook", f"{HOOKED}:hook", app=f"{HOOKED}:app")
    parent = f"00-{TRACE}-{PARENT}-01"
    answer = site.get("/some?q=1", traceparent=parent, user_agent="test/1")
    # The span is current in the application.
    assert json.loads(answer.body) == {"trace_id": TRACE}
    (span,) = spans(site, "/some")
    assert (span["name"], span["kind"]) == ("GET", "SERVER")
    assert (span["trace_id"], span["parent"], span["status"]) == (TRACE, PARENT, "UNSET")
    attributes = span["attributes"]
    assert attributes.pop("client.port") > 0
    assert attributes == {
        "http.request.method": "GET",
        "http.response.status_code": 200,
        "url.scheme": "https",
        "url.path": "/some",
        "url.query": "q=1",
        "network.protocol.name": "http",
        "network.protocol.version": "3" if version == "http3" else "1.1",
        "client.address": "127.0.0.1",
        "server.address": "127.0.0.1",
        "server.port": site.server.port,
        "user_agent.original": "test/1",
    }
    site.get("/busy")
    (span,) = spans(site, "/busy")
    assert span["attributes"]["error.type"] == "503" and span["status"] == "ERROR"
    site.get("/fails")
    (span,) = spans(site, "/fails")
    assert span["attributes"]["error.type"] == "ValueError"
    assert span["attributes"]["http.response.status_code"] == 500
    site.get("/odd", "BREW", content_length="0")
    (span,) = spans(site, "/odd")
    assert span["attributes"]["http.request.method"] == "_OTHER"
    assert span["attributes"]["http.request.method_original"] == "BREW"


def test_a_hook_that_fails_is_logged_and_disturbs_no_request(make_site):
    site = make_site("native", "--request-hook", f"{HOOKED}:broken", app=f"{HOOKED}:app")
    assert site.get("/some").status == 200
    site.server.wait_log("The request hook has failed at the start of a request")


def test_a_hook_that_does_not_exist_is_refused_in_one_line():
    ended = command(f"{HOOKED}:app", "--request-hook", f"{HOOKED}:nothing", "--no-http3")
    assert ended.returncode == 1
    assert ended.stderr.startswith("Error: --request-hook: ") and ended.stderr.count("\n") == 1
