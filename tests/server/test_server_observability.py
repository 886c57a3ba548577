"""A server's logs as JSON, its metrics, and traces of its connections."""

import asyncio
import contextlib
import http.client
import json
import re
import socket
import stat
import time

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import uringcore
from tests.quic.qlog_sequences import records_of
from tests.server.conftest import backends, starting
from tests.server.harness import ForkedServer, command
from tests.support.free_ports import free_port
from uringcore.quic._openmetrics_text import CONTENT_TYPE, Family, exposition
from uringcore.server import Config
from uringcore.server._listening_sockets import bind_metrics
from uringcore.server._metric_definitions import families
from uringcore.server._metrics_middleware import MetricsMiddleware
from uringcore.server._request_counters import Counters, Histogram
from uringcore.server._stats_snapshot import Report, quantiles

start = starting(ForkedServer)

pytestmark = pytest.mark.either_backend


def json_lines(server):
    return [json.loads(line) for line in server.log().splitlines() if line.startswith("{")]


def test_the_log_as_json(start):
    server = start("--log-format", "json")
    server.get("/scope/logged?x=1", method="POST")
    server.get("/raises")
    with server.http1() as connection:
        connection.request("GET", "/scope/over-tcp")
        connection.getresponse().read()
    server.wait_log("over-tcp")
    assert server.stop() == 0
    lines = json_lines(server)
    others = [line for line in server.log().splitlines() if not line.startswith("{")]
    assert all(line.startswith("LIFESPAN") for line in others), others
    access = [line for line in lines if line["logger"] == "uvicorn.access"]
    first = access[0]
    assert first["method"] == "POST"
    assert first["path"] == "/scope/logged?x=1"
    assert (first["http_version"], first["status"]) == ("3", 200)
    assert re.fullmatch(r"127\.0\.0\.1:\d+", first["client"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"])
    assert first["level"] == "info"
    assert access[-1]["http_version"] == "1.1"
    (failed,) = [line for line in lines if "exception" in line]
    assert "RuntimeError: the application's own fault" in failed["exception"]
    assert failed["level"] == "error"
    assert all("color_message" not in line for line in lines)


def test_an_unknown_log_format():
    done = command("a:b", "--log-format", "xml")
    assert done.returncode == 2
    assert "'xml' is not one of 'text', 'json'" in done.stderr


def scrape(text):
    """Returns every sample of a text that a parser accepts, by name and labels."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics(start):
    server = start("--metrics-path", "/metrics")

    async def requests():
        async with server.connect() as client:
            for _ in range(3):
                await client.get("/")
            await client.request("POST", "/no/such/page")
            await client.request("BREW", "/")
            return await client.get("/metrics")

    response = uringcore.run(requests())
    assert response.header("content-type") == CONTENT_TYPE
    assert response.header("cache-control") == "no-store"
    samples = {}

    def value(name, **labels):
        return samples[(f"uringcore_{name}", *sorted({"worker": "0", **labels}.items()))]

    def requested(version, method, status):
        labels = {"http_version": version, "method": method, "status": status}
        return value("http_requests_total", **labels)

    with server.http1() as connection:
        connection.request("GET", "/")
        connection.getresponse().read()
        deadline = time.monotonic() + 60
        # A collected result is served for a second.
        while ("http_version", "1.1") not in {label for key in samples for label in key[1:]}:
            assert time.monotonic() < deadline, samples
            time.sleep(0.05)
            connection.request("GET", "/metrics")
            samples = scrape(connection.getresponse().read().decode())
    assert requested("3", "GET", "200") == 3
    assert requested("3", "POST", "404") == 1
    assert requested("3", "other", "200") == 1
    assert requested("1.1", "GET", "200") == 1
    assert value("http_request_duration_seconds_count", http_version="3") == 5
    assert value("http_requests_open", http_version="3") == 0
    assert value("quic_endpoint_connections_begun_total", side="server") == 1
    assert value("quic_packets_sent_total") > 0
    assert value("quic_packets_lost_total") >= 0
    assert value("tcp_connections") == 1
    assert value("process_resident_memory_bytes") > 1e6
    assert value("process_open_files") > 3
    assert value("process_cpu_seconds_total") > 0


# This logging configuration changes nothing in the test's own process.
AS_IT_IS = {"version": 1, "incremental": True}

METRICS_ON = r"Metrics on http://127\.0\.0\.1:(\d+)(/\S+)"


def fetch(port, path, method="GET"):
    """Requests a path of the metrics port."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


@pytest.mark.parametrize("backend", backends())
def test_metrics_on_a_port_of_their_own(start, backend):
    server = start("--metrics-port", "0", backend=backend)
    port, path = server.wait_log(METRICS_ON).groups()
    assert path == "/metrics"
    for _ in range(3):
        server.get("/")
    status, fields, text = fetch(int(port), "/metrics?x=1")
    assert (status, fields["content-type"]) == (200, CONTENT_TYPE)
    labels = {"http_version": "3", "method": "GET", "status": "200", "worker": "0"}
    samples = scrape(text.decode())
    assert samples[("uringcore_http_requests_total", *sorted(labels.items()))] == 3
    status, fields, text = fetch(int(port), "/metrics", "HEAD")
    assert (status, fields["content-type"], text) == (200, CONTENT_TYPE, b"")
    assert int(fields["content-length"]) > 100
    # RFC 9110 section 15.5.6.
    status, fields, _ = fetch(int(port), "/metrics", "POST")
    assert (status, fields["allow"]) == (405, "GET, HEAD")
    assert fetch(int(port), "/")[0] == 404
    # The application's port does not have the page.
    assert server.get("/metrics").status == 404
    assert server.stop() == 0
    assert "Traceback" not in server.log()


def test_a_silent_client_of_the_metrics_port_blocks_no_other(start):
    server = start("--metrics-port", "0", "--metrics-path", "/own")
    port, path = server.wait_log(METRICS_ON).groups()
    with contextlib.ExitStack() as stack:
        for said in (b"", b"GET /own", b"x" * 100_000, b"\r\n\r\n"):
            silent = socket.create_connection(("127.0.0.1", int(port)))
            stack.enter_context(silent)
            # The server may refuse the large request and close before it has read all of it.
            with contextlib.suppress(ConnectionError):
                silent.sendall(said)
        assert fetch(int(port), "/own")[0] == 200
        assert server.stop() == 0
    assert "Traceback" not in server.log()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "4433", "--metrics-port", "4433"], "--metrics-port and --port are both 4433"),
        (["--metrics-port", "TAKEN"], "cannot listen on --metrics-port 127.0.0.1:"),
        (["--metrics-host", "0.0.0.0", "--port", "0"], "--metrics-host does nothing"),
    ],
)
def test_a_busy_metrics_port(arguments, said, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken_port = str(taken.getsockname()[1])
        given = [taken_port if word == "TAKEN" else word for word in arguments]
        application = "no_such_module:app" if "nothing" in said else "tests.server.application:app"
        done = command(application, "--no-http3", *given)
    assert done.returncode != 0
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_one_number_on_two_addresses_is_two_ports(start):
    port = str(free_port())
    arguments = ["--host", "127.0.0.2", "--port", port, "--metrics-port", port]
    assert start(*arguments).wait_log(METRICS_ON)[1] == port


def test_one_port_for_application_and_metrics_is_refused_before_the_start():
    port = str(free_port())
    arguments = ["--no-http3", "--host", "0.0.0.0", "--port", port, "--metrics-port", port]
    done = command("tests.server.application:app", *arguments)
    assert done.returncode == 3
    assert f"cannot listen on TCP 0.0.0.0:{port}: Address already in use" in done.stderr
    assert "LIFESPAN" not in done.stderr


def test_a_port_that_is_not_bound_is_anybodys(monkeypatch):
    """With systemd's sockets --port is not bound, so its default is free."""
    monkeypatch.setenv("LISTEN_FDS", "1")
    assert Config("a:b", metrics_port=8000, log_config=AS_IT_IS).metrics_port == 8000


def test_pages_on_two_ports_may_have_one_path():
    pages = {"metrics_path": "/seen", "status_page": "/seen"}
    assert Config("a:b", metrics_port=0, log_config=AS_IT_IS, **pages).is_observed


def test_the_metrics_port_is_bound_on_all_addresses_or_none(monkeypatch):
    """All addresses are released, so that a second attempt can start afresh."""
    port = free_port()
    with socket.create_server(("127.0.0.2", port)):
        addresses = [(socket.AF_INET, (host, 0)) for host in ("127.0.0.1", "127.0.0.2")]
        monkeypatch.setattr(
            "uringcore.server._listening_sockets.addresses_of", lambda host: addresses
        )
        config = Config("a:b", metrics_port=port, log_config=AS_IT_IS)
        with pytest.raises(OSError, match=r"cannot listen on --metrics-port 127\.0\.0\.2:"):
            bind_metrics(config)
        assert config.metrics_sockets == []
        socket.create_server(("127.0.0.1", port)).close()


def test_metrics_of_the_loop(start):
    server = start("--metrics-path", "/metrics")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        samples = scrape(server.get("/metrics").content.decode())
        if samples["uringcore_loop_lag_seconds_count", ("worker", "0")] > 1:
            return
        time.sleep(0.05)
    raise AssertionError("the loop's lag is not measured")


def test_metrics_of_connections_that_are_there(start):
    server = start("--metrics-path", "/metrics")

    async def look():
        async with server.connect() as one, server.connect() as other:
            await other.get("/")
            return (await one.get("/metrics")).content.decode()

    samples = scrape(uringcore.run(look()))
    label = ("worker", "0")
    assert samples["uringcore_http3_connections", label] == 2
    assert samples["uringcore_quic_streams", label] >= 1
    for quantile in ("0", "0.5", "0.99", "1"):
        assert samples["uringcore_quic_connections_rtt_seconds", ("quantile", quantile), label] > 0


def test_counters_never_fall_when_connections_end(start):
    server = start("--metrics-path", "/metrics")

    def sent():
        samples = scrape(server.get("/metrics").content.decode())
        return samples["uringcore_quic_packets_sent_total", ("worker", "0")]

    values = [sent() for _ in range(4)]
    deadline = time.monotonic() + 60
    while values[-1] == values[0]:
        assert time.monotonic() < deadline, values
        time.sleep(0.05)
        values.append(sent())
    assert values == sorted(values)


def test_methods_and_paths_of_a_page(start):
    server = start("--metrics-path", "/metrics", "--root-path", "/api")
    head = server.get("/metrics", method="HEAD")
    assert (head.status, head.content) == (200, b"")
    assert int(head.header("content-length")) > 100
    assert server.get("/metrics", method="POST", content=b"x").status == 405
    assert server.get("/metrics/more").status == 404


def test_no_pages_by_default(server):
    assert server.get("/metrics").status == 404
    assert server.get("/status").status == 404


def test_a_qlog_trace_of_each_connection(start, tmp_path):
    folder = tmp_path / "traces"
    folder.mkdir()
    server = start("--http3-qlog-dir", str(folder))
    assert server.get("/").content == b"hello"
    assert server.stop() == 0
    (path,) = folder.iterdir()
    assert path.suffix == ".sqlog"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    header, *events = records_of(path)
    assert header["trace"]["vantage_point"]["type"] == "server"
    names = {event["name"] for event in events}
    assert {"transport:packet_received", "transport:packet_sent"} <= names
    assert "connectivity:connection_closed" in names


def test_workers_share_a_folder_of_traces_and_its_bounds(start, tmp_path):
    folder = tmp_path / "traces"
    folder.mkdir()
    server = start("--workers", "2", "--http3-qlog-dir", str(folder), "--http3-qlog-traces", "3")
    server.wait_log(r"(?s)(HTTP/3 running.*){2}")
    for _ in range(12):
        assert server.get("/").content == b"hello"
    assert server.stop() == 0
    paths = list(folder.iterdir())
    # Each of the two workers may have traced one connection at once.
    assert 1 <= len(paths) <= 4
    for path in paths:
        assert records_of(path)[0]["trace"]["vantage_point"]["type"] == "server"


# The parts of metrics


def test_labels_have_few_values():
    """Methods and statuses of clients and applications cannot grow the number of labels."""
    counts = Counters()
    for number in range(1000):
        counts.requests_open["3"] += 1
        counts.request_ended("3", f"METHOD{number}", 100 + number % 900, 0.1)
    assert {method for _, method, _ in counts.requests} == {"other"}
    assert len(counts.requests) < 80


def test_a_histogram():
    histogram = Histogram([1, 2])
    for value in (0.5, 1, 1.5, 2, 3):
        histogram.add(value)
    assert histogram.counts == [2, 2, 1]
    family = Family("times", "histogram", 'With "quotes"\nand lines', unit="seconds")
    family.add_histogram(histogram.bounds, histogram.counts, histogram.total, {"a": 'b"\n\\'})
    samples = scrape(exposition([family, Family("nothing", "gauge", "")]))
    label = ("a", 'b"\n\\')
    assert samples["times_seconds_bucket", label, ("le", "1.0")] == 2
    assert samples["times_seconds_bucket", label, ("le", "2.0")] == 4
    assert samples["times_seconds_bucket", label, ("le", "+Inf")] == 5
    assert samples["times_seconds_count", label] == 5
    assert samples["times_seconds_sum", label] == 8


def test_quantiles():
    assert quantiles([]) == {}
    assert quantiles([3.0]) == {"0": 3.0, "0.5": 3.0, "0.9": 3.0, "0.99": 3.0, "1": 3.0}
    found = quantiles([float(value) for value in reversed(range(100))])
    assert found == {"0": 0.0, "0.5": 50.0, "0.9": 90.0, "0.99": 99.0, "1": 99.0}


def request(observer, path="/", method="GET", query=b"", answers=()):
    """Returns the messages that an application behind an observer sends for a request."""

    async def main():
        sent = []

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query,
            "http_version": "3",
        }
        try:
            await observer(scope, None, send)
        except RuntimeError as exc:
            sent.append(exc)
        return sent

    return asyncio.run(main())


def test_applications_that_fail_are_counted():
    async def application(scope, receive, send):
        if scope["path"] == "/raises":
            raise RuntimeError
        if scope["path"] == "/head":
            await send({"type": "http.response.start", "status": 201})
        if scope["path"] == "/later":
            await send({"type": "http.response.start", "status": 200})
            await send({"type": "http.response.body", "more_body": True})
            await send({"type": "http.response.body"})
            raise RuntimeError

    observer = MetricsMiddleware(metrics_path="/m", status_path=None)
    observer.before(application, "")
    for path in ("/raises", "/head", "/later", "/nothing"):
        request(observer, path)
    assert observer.counts.requests == {
        ("3", "GET", "500"): 2,
        ("3", "GET", "201"): 1,
        ("3", "GET", "200"): 1,
    }
    assert observer.counts.requests_open == {"3": 0}


@pytest.mark.parametrize("path", ["/m", "/s"])
def test_each_process_reports_all_processes(tmp_path, path, monkeypatch):
    """Each process reports all of them. A process that died without removing its socket is left out."""

    async def nothing(scope, receive, send):
        pass

    async def main():
        observers = []
        for pid in (1001, 1002):
            monkeypatch.setattr("os.getpid", lambda pid=pid: pid)
            observer = MetricsMiddleware(metrics_path="/m", status_path="/s", folder=str(tmp_path))
            observer.before(nothing, "")
            await observer.start()
            observer.counts.requests["3", "GET", "200"] += pid
            observers.append(observer)
        dead = tmp_path / "1003"
        server = await asyncio.start_unix_server(lambda *_: None, dead)
        server.close()
        await server.wait_closed()
        sent = []

        async def send(message):
            sent.append(message)

        for observer in observers:
            scope = {"type": "http", "method": "GET", "path": path, "query_string": b"data"}
            await observer(scope, None, send)
        for observer in observers:
            observer.close()
        return [sent[1]["body"].decode(), sent[3]["body"].decode()]

    for text in asyncio.run(main()):
        if path == "/m":
            samples = scrape(text)
            labels = [("http_version", "3"), ("method", "GET"), ("status", "200")]
            for pid in (1001, 1002):
                key = ("uringcore_http_requests_total", *labels, ("worker", str(pid)))
                assert samples[key] == pid
        else:
            assert json.loads(text)["requests"] == {"3": 2003}
    assert not (tmp_path / "1001").exists()


def test_every_family_is_written_once():
    report = Report("0", 1, 0.0, Counters(), 0, 0, process={}, endpoint={"connections": 1})
    report.process = {"resident_memory_bytes": 1.0, "open_fds": 1.0, "cpu_seconds": 1.0}
    names = [family.full_name for family in families([report, report])]
    assert len(names) == len(set(names))
