"""An operator's mistakes: each ends in one line that names the fault and the remedy, or in a warning."""

import functools
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.server.harness import APPLICATION, ROOT, Server, environment, forked_command
from tests.support.certificates import DAY, LOCAL, Authority, local
from tests.support.handmade_certificates import self_signed, version_1


def one_line(*arguments, status=1):
    """Returns the only line of a command that refuses to start."""
    done = forked_command(*arguments)
    output = done.stdout + done.stderr
    assert done.returncode == status, output
    for word in ("Traceback", "never awaited", "LIFESPAN"):
        assert word not in output, output
    assert output.count("\n") == 1, output
    return output


@pytest.fixture
def files(certificate):
    return ["--ssl-certfile", certificate[0], "--ssl-keyfile", certificate[1]]


def test_an_invalid_port():
    done = forked_command(APPLICATION, "--port", "80000")
    assert done.returncode == 2
    assert "'--port': 80000 is not in the range 0<=x<=65535" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_invalid_port_from_a_program():
    program = (
        "from uringcore.server import Config, StartupError\n"
        "try:\n    Config('a:b', port=80000)\n"
        "except StartupError as exc:\n    print(exc)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "--port: must be 0 to 65535, not 80000\n", done.stderr


def test_unknown_ciphers(files):
    said = one_line(APPLICATION, *files, "--ssl-ciphers", "NOPE")
    assert "--ssl-ciphers: OpenSSL has no cipher of 'NOPE'" in said


@pytest.mark.parametrize("version", ["99", "-1"])
def test_an_unknown_tls_version(files, version):
    assert f"--ssl-version: {version} is not one" in one_line(
        APPLICATION, *files, "--ssl-version", version
    )


def test_faulty_options_for_client_certificates(files, tmp_path):
    said = one_line(APPLICATION, *files, "--ssl-cert-reqs", "7")
    assert "--ssl-cert-reqs: must be 0 (none), 1 (optional) or 2 (required), not 7" in said
    for asked in ("1", "2"):
        said = one_line(APPLICATION, *files, "--ssl-cert-reqs", asked)
        assert f"--ssl-cert-reqs {asked} needs --ssl-ca-certs" in said
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    said = one_line(APPLICATION, *files, "--ssl-cert-reqs", "2", "--ssl-ca-certs", str(empty))
    assert f"--ssl-ca-certs: {empty} has no certificate in PEM" in said


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (
            "nowhere/socket",
            "No such file or directory (the folder {folder}/nowhere does not exist)",
        ),
        ("file", "the file exists and is not a socket"),
        ("x" * 108, "longer than the 107 bytes that a socket may have"),
    ],
)
def test_an_invalid_unix_socket(tmp_path, path, said):
    (tmp_path / "file").write_text("precious")
    where = tmp_path / path
    assert f"cannot listen on --uds {where}: {said.format(folder=tmp_path)}" in one_line(
        *(APPLICATION, "--uds", str(where)), status=3
    )
    assert (tmp_path / "file").read_text() == "precious"


def test_an_unknown_backend():
    """The message is about the backend and does not mention coroutines."""
    env = environment() | {"URINGCORE_BACKEND": "kqueue"}
    done = subprocess.run(
        [sys.executable, "-m", "uringcore", APPLICATION],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    (said,) = [line for line in done.stderr.splitlines() if not line.startswith("WARNING")]
    assert said == "Error: URINGCORE_BACKEND must be 'uring', 'epoll' or 'auto', not 'kqueue'"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--http2"], "--http2 needs --http zttp"),
        (["--uds", "/tmp/socket", "--fd", "3"], "--uds and --fd: both set the address"),
        (
            ["--http3-port", "1", "--http3-fd", "3"],
            "--http3-port and --http3-fd: both set the address of HTTP/3",
        ),
        (["--http", "no_such_thing"], "--http no_such_thing: "),
        (["--ws", "no_such_thing:Protocol"], "--ws no_such_thing:Protocol: "),
        (["--header", "X: ☃"], "--header: X: ☃ is not in ISO 8859-1"),
        (["--metrics-path", "metrics"], "--metrics-path: must be a path that begins with /"),
        (["--status-page", "/a?b"], "--status-page: must be a path that begins with /"),
        (
            ["--status-page", "/a", "--metrics-path", "/a"],
            "--metrics-path and --status-page are both /a",
        ),
        (["--http3-qlog-dir", "/nonexistent"], "--http3-qlog-dir: there is no folder /nonexistent"),
        (["--http3-qlog-traces", "0"], "--http3-qlog-traces: must be 1 to"),
        (
            ["--http3-qlog-total-bytes", "1000"],
            "--http3-qlog-total-bytes: must be 16777216 to",
        ),
        (
            ["--status-on-metrics-port", "--status-page", "/a"],
            "--status-on-metrics-port: there is no --metrics-port",
        ),
        (
            ["--status-on-metrics-port", "--metrics-port", "0"],
            "--status-on-metrics-port: there is no --status-page",
        ),
        (
            ["--status-on-metrics-port", "--metrics-port", "0", "--status-page", "/metrics"],
            "--metrics-path and --status-page are both /metrics",
        ),
    ],
)
def test_an_invalid_option(arguments, said):
    assert said in one_line(APPLICATION, *arguments)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "JSONDecodeError: "),
        ("{}", "ValueError: dictionary doesn't specify a version"),
        ('{"version": 1, "handlers": {"a": {"class": "no.such.Class"}}}', "ValueError: Unable to"),
    ],
)
def test_an_invalid_log_configuration(tmp_path, content, said):
    path = tmp_path / "log.json"
    path.write_text(content)
    assert f"--log-config: {path}: {said}" in one_line(APPLICATION, "--log-config", str(path))


def test_an_invalid_number_of_workers(monkeypatch):
    monkeypatch.setenv("WEB_CONCURRENCY", "many")
    said = one_line(APPLICATION)
    assert "WEB_CONCURRENCY: must be a number of workers, not 'many'" in said


@pytest.mark.parametrize(
    ("option", "value", "module", "package"),
    [
        ("--ws", "wsproto", "wsproto", "wsproto"),
        ("--env-file", "/dev/null", "dotenv", "python-dotenv"),
    ],
)
def test_a_missing_package_is_named(tmp_path, option, value, module, package):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] == {module!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
    )
    env = environment()
    env["PYTHONPATH"] = f"{tmp_path}:{env.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [sys.executable, "-m", "uringcore", APPLICATION, option, value],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: {option}"), done.stderr
    assert f" needs {package}, which is not installed: pip install {package}\n" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("since", "until", "said"),
    [
        (-2 * DAY, -DAY, "expired on "),
        (DAY, 2 * DAY, "is not valid before "),
    ],
)
def test_a_certificate_out_of_its_time_is_warned_of(start, tmp_path, since, until, said):
    """It is not refused: it may be renewed soon, and some clients do not check it."""
    authority = Authority(tmp_path)
    files = authority.issue(tmp_path, "server", *LOCAL, since=since, until=until).files
    server = start(certificate=files)
    assert f"The certificate in {files[0]} {said}" in server.log()
    assert forked_command("get", "--insecure", server.url).stdout == "hello"


def test_a_certificate_in_its_time_is_not_warned_of(start, tmp_path):
    server = start(certificate=local(tmp_path).files)
    assert "WARNING" not in server.log()


def test_a_certificate_that_has_changed_since_it_was_looked_at(tmp_path):
    certfile, keyfile = local(tmp_path).files
    program = (
        "import sys\n"
        "from tests.server.application import app\n"
        "from uringcore.server import Config, Server, StartupError\n"
        "config = Config(app, port=0, ssl_certfile=sys.argv[1], ssl_keyfile=sys.argv[2])\n"
        "open(sys.argv[1], 'w').write('nonsense')\n"
        "try:\n    Server(config).run()\n"
        "except StartupError as exc:\n    print(exc)\n"
    )
    command = [sys.executable, "-c", program, certfile, keyfile]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "are not a certificate and its key in PEM" in done.stdout, done.stderr


def test_a_key_that_is_too_small(tmp_path):
    key = rsa.generate_private_key(65537, 1024)
    certfile, keyfile = self_signed(tmp_path, key=key).files
    said = one_line(APPLICATION, "--ssl-certfile", certfile, "--ssl-keyfile", keyfile)
    assert f"--ssl-certfile: {certfile} has a key that is too small: RSA needs 2048 bits" in said


def with_key(key):
    return functools.partial(self_signed, key=key)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            with_key(ec.generate_private_key(ec.SECP256K1())),
            "ECDSA with P-256, P-384 or P-521, Ed25519, Ed448, and RSA",
        ),
        (version_1, "it is of X.509 version 1: make one of version 3"),
    ],
)
def test_a_certificate_that_http3_has_no_use_for(tmp_path, make, said):
    """The message is in plain words and names a way out."""
    certfile, keyfile = make(tmp_path).files
    done = forked_command(
        APPLICATION, "--ssl-certfile", certfile, "--ssl-keyfile", keyfile, "--port", "0"
    )
    output = done.stdout + done.stderr
    assert done.returncode == 1, output
    assert "HTTP/3 cannot use --ssl-" in output
    assert "--no-http3 serves without HTTP/3" in output
    assert "Traceback" not in output
    assert said in output
    # Rust's debug format of an error would contain a parenthesis.
    assert "(" not in output.partition("HTTP/3 cannot use")[2].partition("(--no-http3")[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--no-http3", "--http", "h11", "--http3-max-requests", "5"],
            "--http3-max-requests does nothing: HTTP/3 is off.",
        ),
        (
            ["--no-http3", "--limit-max-requests-jitter", "5"],
            "--limit-max-requests-jitter does nothing: there is no --limit-max-requests.",
        ),
        (
            ["--no-http3", "--ws", "none", "--ws-max-size", "5"],
            "--ws-max-size does nothing: --ws none serves no WebSocket.",
        ),
        (
            ["--no-http3", "--no-proxy-headers", "--forwarded-allow-ips", "*"],
            "--forwarded-allow-ips does nothing: --no-proxy-headers is given.",
        ),
        (
            ["--no-http3", "--loop", "asyncio", "--backend", "epoll"],
            "--backend does nothing: --loop asyncio is not uringcore's.",
        ),
        (
            ["--no-http3", "--log-format", "json", "--use-colors"],
            "--use-colors does nothing: --log-format json has no colours.",
        ),
        (
            ["--no-http3", "--reload", "--timeout-worker-healthcheck", "9"],
            "--timeout-worker-healthcheck does nothing: --reload has no workers.",
        ),
        (
            ["--no-http3", "--interface", "wsgi", "--ws-max-size", "5"],
            "--ws-max-size does nothing: WSGI does not support WebSocket.",
        ),
    ],
)
def test_an_option_that_does_nothing_is_warned_of(start, arguments, said):
    server = start(*arguments, http3=False)
    assert said in server.log()
    assert server.log().count("does nothing") == 1


MEMORY = ["--http3-memory", str(8 << 20)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--http3-qlog-trace-bytes", "1000000"],
            "--http3-qlog-trace-bytes does nothing: there is no --http3-qlog-dir.",
        ),
        (
            [*MEMORY, "--http3-max-connections-per-address", "65"],
            "--http3-max-connections-per-address does nothing: "
            "--http3-memory has room for 64 of them, of 32 KiB each.",
        ),
        (
            ["--workers", "2", *MEMORY, "--http3-max-connections", "65"],
            "--http3-max-connections does nothing: "
            "--http3-memory has room for 64 of them, of 32 KiB each.",
        ),
        (
            ["--http3-accept-burst", "5"],
            "--http3-accept-burst does nothing: there is no --http3-accept-rate.",
        ),
        (
            ["--http3-retry", "never", "--http3-retry-handshakes", "5"],
            "--http3-retry-handshakes does nothing: --http3-retry is not auto.",
        ),
        (
            ["--http3-send-rate", "0", "--http3-send-rate-grace", "5"],
            "--http3-send-rate-grace does nothing: --http3-send-rate 0 sets no minimum rate.",
        ),
        (
            ["--no-http3-webtransport", "--http3-max-sessions", "5"],
            "--http3-max-sessions does nothing: --no-http3-webtransport accepts no sessions.",
        ),
        (
            ["--ws", "none", "--http3-max-large-messages", "5"],
            "--http3-max-large-messages does nothing: --ws none serves no WebSocket.",
        ),
        (
            ["--interface", "wsgi", "--http3-connect", "connect-udp"],
            "--http3-connect does nothing: WSGI does not support extended CONNECT.",
        ),
    ],
)
def test_an_option_of_http3_that_needs_another_is_warned_of(start, arguments, said):
    server = start(*arguments)
    assert said in server.log()
    assert server.log().count("does nothing") == 1


def test_sessions_for_an_application_without_support(start):
    server = start("--interface", "wsgi", "--http3-webtransport")
    said = "--http3-webtransport does nothing: WSGI does not support WebTransport."
    assert server.log().count(said) == 1


def test_tls_options_without_a_certificate_are_warned_of(tmp_path):
    server = Server(tmp_path, (None, None), "--ssl-ciphers", "HIGH", http3=False)
    try:
        assert "--ssl-ciphers does nothing: there is no certificate" in server.log()
    finally:
        server.kill()


def test_options_in_the_environment_are_options(tmp_path, monkeypatch):
    monkeypatch.setenv("UVICORN_LIMIT_MAX_REQUESTS_JITTER", "3")
    server = Server(tmp_path, (None, None), http3=False)
    try:
        assert "--limit-max-requests-jitter does nothing" in server.log()
    finally:
        server.kill()
