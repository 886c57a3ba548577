"""The server's command line: messages for faulty options, and --dev-cert."""

import base64
import hashlib
import re
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from tests.server.harness import (
    APPLICATION,
    ROOT,
    Server,
    command,
    environment,
    forked_command,
)
from uringcore import http3
from uringcore.devcert import DevelopmentCertificate
from uringcore.quic._qlog_files import TraceLimits
from uringcore.server import Config
from uringcore.server._http3_limits import HTTP3Limits, SessionLimits, limit_options
from uringcore.server._startup_errors import INSTALL_SERVER, StartupError


@pytest.fixture
def files(certificate):
    return ["--ssl-certfile", certificate[0], "--ssl-keyfile", certificate[1]]


def fails(*arguments, status=1):
    """Runs the command, which must end with this status and without a traceback."""
    done = forked_command(*arguments)
    output = done.stdout + done.stderr
    assert done.returncode == status, output
    assert "Traceback" not in output
    return output


def test_no_arguments_show_the_usage():
    output = fails(status=2)
    assert "uringcore MODULE:APP" in output
    assert "uringcore get URL" in output


def test_help_shows_the_default_of_each_limit():
    words = " ".join(forked_command("--help").stdout.split())
    for name, said in (
        ("--http3-memory", "a quarter of the memory, divided by --workers"),
        ("--http3-accept-burst", "one second of --http3-accept-rate"),
        ("--http3-accept-rate", "no limit"),
        (
            "--http3-max-connections-per-address",
            "a quarter of --http3-max-connections, 8,192 at most",
        ),
    ):
        after = words.partition(f" {name} ")[2]
        assert after.partition("[default: ")[2].startswith(f"({said})"), (name, after[:200])


def test_help_shows_uvicorns_options_and_ours():
    output = forked_command("--help").stdout
    for option in ("--lifespan", "--proxy-headers", "--root-path", "--dev-cert", "--no-http3"):
        assert option in output
    assert "--backend" in output


def test_version():
    assert re.search(r"uringcore \d+\.\d+\.\d+ with uvicorn", command("--version").stdout)


def test_missing_certificate_file(tmp_path):
    missing = tmp_path / "none.pem"
    output = fails(APPLICATION, "--ssl-certfile", str(missing), "--ssl-keyfile", str(missing))
    assert f"--ssl-certfile: {missing}: No such file or directory" in output


def test_unreadable_key(certificate, tmp_path):
    """The key's path is a directory, because root can read any file."""
    output = fails(APPLICATION, "--ssl-certfile", certificate[0], "--ssl-keyfile", str(tmp_path))
    assert f"--ssl-keyfile: {tmp_path}: Is a directory" in output


def test_key_without_certificate(certificate):
    output = fails(APPLICATION, "--ssl-keyfile", certificate[1])
    assert "--ssl-keyfile needs --ssl-certfile too" in output


def test_key_of_another_certificate(certificate, tmp_path):
    _, other_key = DevelopmentCertificate.make().write(tmp_path)
    output = fails(APPLICATION, "--ssl-certfile", certificate[0], "--ssl-keyfile", other_key)
    assert f"--ssl-keyfile: {other_key} is not the key of {certificate[0]}" in output


def test_file_without_a_certificate(certificate, tmp_path):
    text = tmp_path / "text.pem"
    text.write_text("hello")
    output = fails(APPLICATION, "--ssl-certfile", str(text), "--ssl-keyfile", certificate[1])
    assert "are not a certificate and its key in PEM" in output


@pytest.mark.parametrize(("password", "how"), [(None, "missing"), ("wrong", "wrong")])
def test_password_of_an_encrypted_key(certificate, tmp_path, password, how):
    key = load_pem_private_key(Path(certificate[1]).read_bytes(), None)
    path = tmp_path / "key.pem"
    path.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"right"))
    )
    arguments = [APPLICATION, "--ssl-certfile", certificate[0], "--ssl-keyfile", str(path)]
    if password is not None:
        arguments += ["--ssl-keyfile-password", password]
    assert f"{path} is encrypted: --ssl-keyfile-password is {how}" in fails(*arguments)


def test_dev_cert_and_files(files):
    output = fails(APPLICATION, "--dev-cert", *files)
    assert "--dev-cert makes a certificate: drop --ssl-certfile/--ssl-keyfile" in output


def test_failing_import_of_the_application(files):
    output = fails("no_such_module:app", *files, status=3)
    assert 'Error loading ASGI app. Could not import module "no_such_module"' in output


def test_application_without_that_attribute(files):
    output = fails("tests.server.application:nothing", *files, status=3)
    assert 'Attribute "nothing" not found in module "tests.server.application"' in output


def test_bad_header_option():
    assert "'oops' is not of the form Name:Value" in fails(APPLICATION, "--header", "oops")


def test_unknown_option():
    assert "No such option" in fails(APPLICATION, "--no-such-option", status=2)


@pytest.mark.parametrize("arguments", [[APPLICATION], ["get", "https://localhost:1/"]])
def test_impossible_backend(arguments):
    env = environment() | {"URINGCORE_BACKEND": "kqueue"}
    done = subprocess.run(
        [sys.executable, "-m", "uringcore", *arguments],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode != 0
    assert "kqueue" in done.stderr
    assert "Traceback" not in done.stderr


def test_uvicorn_is_not_installed(tmp_path):
    """The client works without uvicorn; the server names the package to install."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('uvicorn', 'click'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
    )
    env = environment()
    env["PYTHONPATH"] = str(tmp_path) + ":" + env.get("PYTHONPATH", "")
    base = [sys.executable, "-m", "uringcore"]
    done = subprocess.run([*base, "app:app"], env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stderr == (
        f"uringcore: the server needs uvicorn, which is not installed: {INSTALL_SERVER}\n"
    )
    done = subprocess.run([*base, "get", "--help"], env=env, capture_output=True, timeout=30)
    assert done.returncode == 0


def test_dev_cert(tmp_path):
    server = Server(tmp_path, (None, None), "--dev-cert")
    try:
        log = server.log()
        pem = ssl.get_server_certificate(("127.0.0.1", server.port))
        assert server.stop() == 0
    finally:
        server.kill()
    certificate = x509.load_pem_x509_certificate(pem.encode())
    digest = hashlib.sha256(certificate.public_bytes(Encoding.DER)).digest()
    public_key = certificate.public_key()
    spki = public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    spki_digest = hashlib.sha256(spki).digest()
    assert f"SHA-256 (hex)          {digest.hex()}\n" in log
    assert f"SHA-256 (base64)       {base64.b64encode(digest).decode()}\n" in log
    assert f"SPKI SHA-256 (base64)  {base64.b64encode(spki_digest).decode()}\n" in log
    assert isinstance(public_key.curve, ec.SECP256R1)
    lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert lifetime.days <= 14
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    addresses = names.get_values_for_type(x509.IPAddress)
    assert [str(address) for address in addresses] == ["127.0.0.1", "::1"]


def test_dev_cert_key_is_private_and_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    server = Server(tmp_path, (None, None), "--dev-cert")
    try:
        (key,) = tmp_path.glob("uringcore-dev-cert-*/key.pem")
        assert key.stat().st_mode & 0o777 == 0o600
        assert server.stop() == 0
        assert not list(tmp_path.glob("uringcore-dev-cert-*"))
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("names", "days", "named"),
    [([], 1, "names"), (["a b"], 1, "names"), (["localhost"], 0, "days"), (["x"], 15, "days")],
)
def test_bad_dev_cert_arguments(names, days, named):
    with pytest.raises(ValueError, match=named):
        DevelopmentCertificate.make(names, days)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--http3-max-requests", "0", "must be at least 1, not 0"),
        ("--http3-max-header-bytes", "10", "must be 1024 to 65536, not 10"),
        ("--http3-header-timeout", "0", "must be a number of seconds above 0"),
        ("--http3-send-timeout", "nan", "must be a number of seconds above 0"),
        ("--http3-send-rate", "-1", "must be at least 0, not -1"),
        ("--http3-send-rate-grace", "0", "must be a number of seconds above 0"),
        ("--http3-early-reset-rate", "-1", "must be above 0, not -1"),
        ("--http3-max-handshakes", "0", "must be 1 to 4294967295, not 0"),
        ("--http3-max-connections", "4294967296", "must be 1 to 4294967295, not 4294967296"),
        ("--http3-memory", "5", "must be 4194304 to 4611686018427387903 bytes, not 5"),
        ("--http3-max-sessions", "0", "must be 1 to 4294967296, not 0"),
        ("--http3-max-session-streams", "-1", "must be 0 to 65536, not -1"),
        ("--http3-qlog-trace-bytes", "1", "must be 65536 to"),
    ],
)
def test_an_invalid_limit(files, option, value, said):
    """The message names the option on the command line, and the argument in a program."""
    assert f"Error: {option}: {said}" in fails(APPLICATION, *files, option, value)
    name = option.removeprefix("--").replace("-", "_")
    known = limit_options().get(name.removeprefix("http3_"))
    number = int(value) if known is None else known.type(value)
    with pytest.raises(StartupError) as caught:
        Config(APPLICATION, **{name: number})
    assert str(caught.value).startswith(f"{name}: {said}")


@pytest.mark.parametrize(
    ("kind", "field", "value", "said"),
    [
        (HTTP3Limits, "max_requests", 1e3, "must be a whole number, not 1000.0"),
        (HTTP3Limits, "max_process_files", "5", "must be a whole number, not '5'"),
        (HTTP3Limits, "max_requests", None, "must be a whole number, not None"),
        (HTTP3Limits, "send_timeout", "5", "must be a number, not '5'"),
        (SessionLimits, "max_sessions", 1.5, "must be a whole number, not 1.5"),
        (TraceLimits, "traces", 1.5, "must be a whole number, not 1.5"),
        (http3.Limits, "waiting", 1.5, "must be a whole number of at least 1, not 1.5"),
        (http3.Limits, "idle_timeout", float("nan"), "must be 0 or more, not nan"),
    ],
)
def test_a_limit_of_another_kind_is_refused_where_it_is_made(kind, field, value, said):
    with pytest.raises(ValueError, match=f"^{field}:? {re.escape(said)}$"):
        kind(**{field: value})


def test_a_key_that_is_too_short(files, tmp_path):
    key = tmp_path / "key"
    key.write_bytes(b"short")
    for name in ("token", "reset"):
        output = fails(APPLICATION, *files, f"--http3-{name}-key", str(key))
        assert f"--http3-{name}-key: must be a secret of at least 32 bytes, not 5" in output


def test_a_key_is_taken_as_it_is(start, tmp_path):
    """A random key may begin and end with bytes that are white space in text."""
    key = tmp_path / "key"
    key.write_bytes(b" " + b"k" * 30 + b"\n")
    server = start("--http3-token-key", str(key), "--http3-reset-key", str(key))
    assert server.get("/").status == 200


def test_keys_and_retry(start, tmp_path):
    """A client that has to prove its address first gets its response a round trip later."""
    key = tmp_path / "key"
    key.write_bytes(b"k" * 48)
    server = start(
        *("--http3-token-key", str(key), "--http3-reset-key", str(key)),
        *("--http3-retry", "always", "--http3-max-connections", "10"),
    )
    assert server.get("/").status == 200
