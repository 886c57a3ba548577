"""Metrics and the status page of a server with several processes: each process reports all of them."""

import json
import signal
import time

import pytest

from tests.server.conftest import backends
from tests.server.test_server_observability import METRICS_ON, fetch, scrape

pytestmark = pytest.mark.either_backend


def workers(samples):
    return {
        dict(labels)["worker"]
        for (name, *labels) in samples
        if name == "uringcore_process_open_files"
    }


def wait_for_workers(server):
    """Waits until each worker's report contains both."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if len(workers(scrape(server.get("/metrics").content.decode()))) == 2:
            return
        time.sleep(0.05)
    raise AssertionError(server.log())


@pytest.mark.parametrize("backend", backends())
def test_each_worker_reports_all_workers(start, backend):
    server = start(
        *("--workers", "2", "--metrics-path", "/metrics", "--status-page", "/status"),
        backend=backend,
    )
    wait_for_workers(server)
    requests = 12
    for _ in range(requests):
        assert server.get("/").content == b"hello"

    def answered(samples):
        counts = {
            dict(labels)["worker"]: value
            for (name, *labels), value in samples.items()
            if name == "uringcore_http_requests_total"
        }
        return sum(counts.values())

    def asked():
        with server.http1() as connection:
            connection.request("GET", "/metrics")
            return scrape(connection.getresponse().read().decode())

    deadline = time.monotonic() + 60
    for _ in range(4):
        # A result that was collected earlier is served for a second.
        while answered(samples := asked()) != requests:
            assert time.monotonic() < deadline, samples
        assert len(workers(samples)) == 2
        assert str(server.process.pid) not in workers(samples)
    numbers = {}
    while numbers.get("requests") != {"3": requests}:
        assert time.monotonic() < deadline, numbers
        numbers = json.loads(server.get("/status?data").content)
    assert {str(pid) for pid in numbers["processes"]} == workers(samples)
    assert server.stop() == 0


def test_one_metrics_port_reports_all_workers(start):
    server = start("--workers", "2", "--metrics-port", "0")
    port = int(server.wait_log(METRICS_ON).group(1))

    def eventually(condition):
        deadline = time.monotonic() + 60
        while not condition(workers(scrape(fetch(port, "/metrics")[2].decode()))):
            assert time.monotonic() < deadline, server.log()
            time.sleep(0.05)

    server.wait_log(r"(?s)(HTTP/3 running.*){2}")
    eventually(lambda found: len(found) == 2)
    before = workers(scrape(fetch(port, "/metrics")[2].decode()))
    # While all workers are replaced, one of them always answers.
    server.send_signal(signal.SIGHUP)
    eventually(lambda found: len(found) == 2 and not found & before)
    assert server.stop() == 0
