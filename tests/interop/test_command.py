"""`examples.interop` as started by the public runner: orders in the environment, statuses, folders."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.interop.runner import certificates
from tests.support.child_processes import bound

COMMAND = [sys.executable, "-m", "examples.interop"]


@pytest.fixture
def folders(tmp_path):
    for name in ("www/below", "downloads"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "www" / "file").write_bytes(b"content" * 1000)
    (tmp_path / "www" / "below" / "deep").write_bytes(b"deep")
    (tmp_path / "secret").write_bytes(b"not served")
    certificates.make(tmp_path / "certs", 2)
    return tmp_path


def environment(**orders):
    kept = {name: value for name, value in os.environ.items() if name not in ("ROLE", "TESTCASE")}
    return {**kept, **orders}


@pytest.fixture
def server(folders):
    command = [*COMMAND, "--www", folders / "www", "--certs", folders / "certs"]
    process = subprocess.Popen(
        bound([*command, "--host", "127.0.0.1", "--port", "0"]),
        env=environment(ROLE="server", TESTCASE="transfer"),
        stdout=subprocess.PIPE,
        text=True,
    )
    line = process.stdout.readline()
    assert line.startswith("READY "), line
    yield int(line.split()[1])
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    process.stdout.close()


def client(folders, port, *paths, **orders):
    urls = " ".join(f"https://127.0.0.1:{port}{path}" for path in paths)
    return subprocess.run(
        [*COMMAND, "--downloads", str(folders / "downloads"), "--certs", str(folders / "certs")],
        env=environment(**{"ROLE": "client", "TESTCASE": "transfer", "REQUESTS": urls, **orders}),
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_files_keys_and_traces_are_where_the_runner_looks(folders, server):
    keys, traces = folders / "keys.log", folders / "qlog"
    orders = {"SSLKEYLOGFILE": str(keys), "QLOGDIR": str(traces)}
    done = client(folders, server, "/file", "/below/deep", **orders)
    assert done.returncode == 0, done.stderr
    assert (folders / "downloads" / "file").read_bytes() == b"content" * 1000
    assert (folders / "downloads" / "deep").read_bytes() == b"deep"
    assert "CLIENT_TRAFFIC_SECRET_0" in keys.read_text()
    assert len(list(traces.iterdir())) == 1


def test_an_unknown_case_is_not_supported(folders):
    for role in ("server", "client"):
        done = client(folders, 1, "/file", ROLE=role, TESTCASE="something-new")
        assert done.returncode == 127
        assert "something-new" in done.stderr


def test_nothing_outside_of_the_folder_is_served(folders, server):
    # The raw path: the client does not normalise it.
    done = client(folders, server, "/../secret", "/%2e%2e/secret", "/file")
    assert done.returncode == 0, done.stderr
    assert (folders / "downloads" / "secret").read_bytes() == b""


def test_a_server_that_is_not_there_is_a_failure(folders):
    done = client(folders, 9, "/file")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_a_certificate_that_is_not_the_authoritys_is_a_failure(folders, server, tmp_path):
    other = certificates.make(tmp_path / "others", 2)
    (folders / "certs" / "ca.pem").write_bytes((other / "ca.pem").read_bytes())
    done = client(folders, server, "/file")
    assert done.returncode == 1
    assert "QuicCertificateError" in done.stderr


def test_a_server_without_a_certificate_prints_an_error(folders):
    done = subprocess.run(
        [*COMMAND, "server", "--certs", str(folders / "nowhere"), "--port", "0"],
        env=environment(TESTCASE="handshake"),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "cert.pem" in done.stderr and "Traceback" not in done.stderr
