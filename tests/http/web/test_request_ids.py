"""`--request-ids`: identifiers and trace context in the scope, the response and the log."""

from __future__ import annotations

import json
import logging
import re

import pytest

from tests.http.web.conftest import VERSIONS, Site
from uringcore.server._request_ids import IdentifyingAccessFormatter

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
VALID = f"00-{TRACE}-{PARENT}-01"
HEX_32 = re.compile(r"[0-9a-f]{32}")


@pytest.fixture(scope="module", params=VERSIONS)
def site(request, backend, certificate, tmp_path_factory):
    made = Site(
        request.param,
        tmp_path_factory.mktemp("ids"),
        certificate,
        backend,
        "tests.http.web.application:app",
        ["--request-ids", "--log-format", "json"],
    )
    yield made
    made.end()


def line_of(site, path):
    """The access log's object of a request with this path."""
    site.server.wait_log(re.escape(path))
    lines = [json.loads(line) for line in site.server.log().splitlines() if f'"{path}"' in line]
    return lines[-1]


def test_each_request_has_an_identifier_in_the_scope_the_answer_and_the_log(site):
    found = [site.get("/state/first"), site.get("/state/second")]
    for answer, path in zip(found, ["/state/first", "/state/second"], strict=True):
        state = json.loads(answer.body)
        assert HEX_32.fullmatch(state["request_id"]) and HEX_32.fullmatch(state["trace_id"])
        assert answer["x-request-id"] == state["request_id"]
        assert state["parent_span_id"] is None
        line = line_of(site, path)
        for name in ("request_id", "trace_id", "span_id"):
            assert line[name] == state[name]
    assert found[0]["x-request-id"] != found[1]["x-request-id"]


def test_the_identifier_of_a_trusted_proxy_is_accepted(site):
    found = site.get("/state", x_request_id="abc-123/x")
    assert found["x-request-id"] == json.loads(found.body)["request_id"] == "abc-123/x"


@pytest.mark.parametrize("value", ["", "a b", 'a"b', "a;b", "x" * 129, "\u00e9"])
def test_an_odd_identifier_is_replaced(site, value):
    found = site.get("/state", x_request_id=value.encode().decode("latin-1"))
    assert HEX_32.fullmatch(found["x-request-id"])


@pytest.mark.parametrize("value", [VALID, f"cc-{TRACE}-{PARENT}-01-what-follows", f" {VALID}\t"])
def test_a_valid_trace_is_continued(site, value):
    state = json.loads(site.get("/state", traceparent=value.strip()).body)
    assert (state["trace_id"], state["parent_span_id"]) == (TRACE, PARENT)
    assert state["span_id"] != PARENT and len(state["span_id"]) == 16


@pytest.mark.parametrize(
    "value",
    [
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}{PARENT}-01",
        "cc-" + VALID[3:] + "-" + "x" * 600,
    ],
)
def test_an_invalid_trace_is_not_continued(site, value):
    state = json.loads(site.get("/state", traceparent=value).body)
    assert state["trace_id"] != TRACE and state["parent_span_id"] is None


@pytest.mark.parametrize("version", VERSIONS)
def test_other_clients_cannot_choose_their_identifier(version, make_site):
    site = make_site(version, "--request-ids", "--forwarded-allow-ips", "192.0.2.1")
    found = site.get("/state/x", x_request_id="mine", x_forwarded_for="192.0.2.1")
    assert HEX_32.fullmatch(found["x-request-id"])
    # The text of the log has the fields at the end.
    site.server.wait_log(
        rf'"GET /state/x HTTP/[\d.]+" 200 .*request_id={found["x-request-id"]} trace_id='
    )


def test_without_the_option_nothing_is_added(make_site):
    site = make_site("native")
    found = site.get("/state", x_request_id="given")
    assert found["x-request-id"] is None and b"request_id" not in found.body


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("options", [(), ("--request-ids",)])
def test_an_application_cannot_write_log_lines_by_its_state(version, options, make_site):
    site = make_site(version, *options)
    found = site.get("/renamed?x%0AFORGED")
    line = site.server.wait_log(r'"GET /renamed\S* HTTP/[\d.]+" 200.*').group()
    assert ("request_id=" in line) is bool(options)
    if options:
        assert f"request_id={found['x-request-id']} trace_id=" in line
    assert not re.search("^FORGED", site.server.log(), re.MULTILINE)


@pytest.mark.parametrize("value", ["a\nb", "a b", "", "\x1b[31m", "x" * 129, "\u0660", 7, None])
def test_fields_that_a_program_adds_to_records_are_printed_only_if_they_are_plain(value):
    record = logging.makeLogRecord(
        {
            "name": "uvicorn.access",
            "msg": '%s - "%s %s HTTP/%s" %d',
            "args": ("127.0.0.1:1", "GET", "/", "1.1", 200),
            "request_id": value,
            "span_id": "plain-1",
        }
    )
    form = '%(client_addr)s - "%(request_line)s" %(status_code)s'
    line = IdentifyingAccessFormatter(form, use_colors=False).format(record)
    assert line == '127.0.0.1:1 - "GET / HTTP/1.1" 200 OK span_id=plain-1'
