"""Stateless resets of a server's processes and machines: none ends a live connection."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from aioquic.h3.connection import H3Connection

from tests.server.conftest import starting
from tests.server.harness import APPLICATION, ROOT, ForkedServer, environment
from tests.support.reset_oracle import asked_for, asked_of_one_that_ends, mark, victim
from uringcore.quic._errors import QuicConfigurationError
from uringcore.server import _config as config
from uringcore.server import _stateless_reset_key as reset_key
from uringcore.server._credential_reload import reload_keys
from uringcore.server._startup_errors import StartupError

start = starting(ForkedServer)

HOSTS = {"127.0.0.1": socket.AF_INET, "::1": socket.AF_INET6}


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "reset.key"
    path.write_bytes(os.urandom(32))
    path.chmod(0o600)
    return str(path)


async def asked(tokens, host, port):
    return await asyncio.to_thread(asked_for, tokens, (host, port), HOSTS[host])


async def no_family_has_the_others_tokens(port, between=None):
    for host in HOSTS:
        async with victim(host, port, "h3") as alive:
            tokens = alive.tokens()
            if between is not None:
                await asyncio.to_thread(between)
            for other in HOSTS:
                answered = await asked(tokens, other, port)
                assert answered == (0 if other == host else len(tokens))
            await alive.protocol.ping()


def test_one_process_with_a_key_on_both_families(start, key, backend):
    server = start("--host", "", "--http3-reset-key", key, backend=backend)
    asyncio.run(no_family_has_the_others_tokens(server.port))


@pytest.mark.parametrize("has_key", [True, False], ids=["key", "no-key"])
def test_workers_on_both_families(crowd, key, backend, has_key):
    given = ("--http3-reset-key", key) if has_key else ()
    server = crowd("--host", "", *given, backend=backend)
    asyncio.run(no_family_has_the_others_tokens(server.port))


def test_workers_while_a_generation_takes_over(crowd):
    """The old processes drain under their indices, and the new processes use the same keys."""
    server = crowd("--host", "", "--timeout-graceful-shutdown", "30")

    async def main():
        async with victim("127.0.0.1", server.port, "h3") as alive:
            # The open request keeps the connection alive while its process drains.
            h3 = H3Connection(alive.protocol._quic)
            head = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"localhost")]
            h3.send_headers(0, [*head, (b":path", b"/sleep/600")], end_stream=True)
            await alive.protocol.ping()
            tokens = alive.tokens()
            server.send_signal(signal.SIGHUP)
            # The last new process serves and the last old one drains.
            await asyncio.to_thread(server.wait_log, r"(?s)(HTTP/3 running.*){4}")
            place = ("127.0.0.1", server.port)
            await asyncio.to_thread(asked_of_one_that_ends, tokens, place)
            await alive.protocol.ping()

    asyncio.run(main())


def test_one_secret_is_another_key_on_another_machine(monkeypatch, tmp_path):
    """The key depends on machine id and host name, except the key of a group of machines."""
    secret, keys = b"k" * 40, set()
    number = tmp_path / "machine-id"
    monkeypatch.setattr(reset_key, "MACHINE_ID", str(number))
    for host in ("one", "two"):
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        for machine in (None, "1" * 32, "2" * 32):
            number.unlink(missing_ok=True)
            if machine is not None:
                number.write_text(machine + "\n")
            keys.add(reset_key.reset_key(secret))
            assert reset_key.reset_key(secret) in keys, "a restart keeps the key"
            group = reset_key.reset_key(secret, "balanced")
            assert group == reset_key.reset_key(secret, "balanced")
            assert group not in keys
            assert reset_key.reset_key(secret, "other") not in keys | {group}
    assert len(keys) == 6
    assert all(len(key) == 32 for key in keys)
    assert reset_key.reset_key(b"j" * 40) not in keys


def test_a_group_is_the_same_on_all_machines(monkeypatch):
    groups = set()
    for host in ("one", "two"):
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        made = config.Config(APPLICATION, http3_reset_key=b"k" * 32, http3_reset_group="balanced")
        groups.add(made.keys.reset[0])
    assert len(groups) == 1


@pytest.mark.parametrize("given", [{"http3_reset_group": "name"}, {"http3_reset_group": ""}])
def test_a_group_needs_a_key_and_a_name(given):
    with pytest.raises(
        StartupError, match="--http3-reset-group: needs a name, and --http3-reset-key"
    ):
        config.Config(APPLICATION, **given)


def test_a_socket_that_shares_its_port_and_a_key(certificate, key):
    """For example, systemd's ReusePort=: the other sockets on the port are unknown."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(("127.0.0.1", 0))
        sock.set_inheritable(True)
        command = [sys.executable, "-m", "uringcore", APPLICATION, "--port", "0"]
        command += ["--ssl-certfile", certificate[0], "--ssl-keyfile", certificate[1]]
        command += ["--http3-fd", str(sock.fileno()), "--http3-reset-key", key]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            pass_fds=[sock.fileno()],
            timeout=60,
        )
    assert done.returncode == 3, done
    assert "--http3-reset-key: the UDP socket that was passed shares its port" in done.stderr
    assert "Traceback" not in done.stderr


def first_reset(place, connection_id):
    """The first answer to packets with this connection ID: none while the server has its connection."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.2)
        for _ in range(300):
            sock.sendto(b"\x41" + connection_id + os.urandom(100), place)
            with contextlib.suppress(TimeoutError):
                return sock.recv(2048)
    raise AssertionError("no reset")


async def reset_with(tokens, place):
    """Checks that the server resets these connections with their own tokens."""
    for connection_id, token in tokens.items():
        datagram = await asyncio.to_thread(first_reset, place, connection_id)
        assert not datagram[0] & 0x80 and datagram.endswith(token)


def rotate(key):
    """Replaces the key by one with another mark, so that connection IDs show which key is theirs."""

    def mark_of(secret):
        return mark(reset_key.reset_key(secret, None))

    path = Path(key)
    before, secret = path.read_bytes(), os.urandom(32)
    while mark_of(secret) == mark_of(before):
        secret = os.urandom(32)
    path.write_bytes(secret)


def test_sighup_changes_the_reset_key(start, key):
    server = start("--http3-reset-key", key)
    place = ("127.0.0.1", server.port)

    async def main():
        async with victim(*place, "h3") as before:
            tokens = before.tokens()
            rotate(key)
            server.send_signal(signal.SIGHUP)
            await asyncio.to_thread(server.wait_log, "The reset key was reloaded from")
            async with victim(*place, "h3") as after:
                tokens |= after.tokens()
                assert len({connection_id[-1] for connection_id in tokens}) == 2
                assert await asked(tokens, *place) == 0
                await before.protocol.ping()
        await reset_with(tokens, place)

    asyncio.run(asyncio.wait_for(main(), 60))
    with open(key, "wb") as file:
        file.write(b"short")
    server.send_signal(signal.SIGHUP)
    server.wait_log("The keys were not reloaded: --http3-reset-key: must be a secret")
    assert server.get("/").status == 200
    assert server.log().count("was reloaded from") == 1


def test_sighup_changes_the_reset_key_of_workers(crowd, key):
    """The next generation resets connections of the one before with the key of that one."""
    server = crowd("--http3-reset-key", key)
    place = ("127.0.0.1", server.port)

    async def main():
        async with victim(*place, "h3") as before:
            tokens = before.tokens()
            rotate(key)
            server.send_signal(signal.SIGHUP)
            await asyncio.to_thread(server.wait_log, r"(?s)(HTTP/3 running.*){4}")
            # The last old worker may accept clients a little longer.
            while len({connection_id[-1] for connection_id in tokens}) == 1:
                async with victim(*place, "h3") as after:
                    tokens |= after.tokens()
        await reset_with(tokens, place)

    asyncio.run(asyncio.wait_for(main(), 60))


class Listener:
    """Records the keys that HTTP/3 gets, and raises the given exceptions at first."""

    def __init__(self, made, *refusals):
        self.made, self.refusals, self.tokens = made, list(refusals), []

    def reload(self):
        self.tokens.append(self.made.quic.token_key)
        if self.refusals:
            raise self.refusals.pop()


@pytest.fixture
def made(certificate, key, tmp_path):
    """Returns a loaded ``Config`` with both kinds of keys in one file, and a copy of the certificate."""
    files = [shutil.copy(path, tmp_path) for path in certificate]
    secret = Path(key).read_bytes()
    made = config.Config(
        APPLICATION,
        ssl_certfile=files[0],
        ssl_keyfile=files[1],
        http3_reset_key=secret,
        http3_token_key=secret,
        log_config=None,
    )
    made.keys.files.update(reset=key, token=key)
    made.load()
    return made


def test_keys_that_the_socket_refuses_are_read_again(made, key, caplog):
    """A reload that fails leaves the server as it was, and the next SIGHUP tries once more."""
    before, tls = made.keys.reset, made.tls_setup
    refusal = QuicConfigurationError("stateless_reset_key", "the socket shares its port")
    listener = Listener(made, refusal)
    rotate(key)
    reload_keys(made, listener)
    assert "The keys were not reloaded" in caplog.text
    assert "the socket shares its port" in caplog.text
    assert made.keys.reset == before == made.quic.stateless_reset_key
    assert made.tls_setup is tls
    # Another socket of the listener may have had the new keys.
    assert listener.tokens[-1] == made.keys.token
    reload_keys(made, listener)
    assert made.keys.reset[1:] == before
    assert made.quic.stateless_reset_key == made.keys.reset
    assert made.tls_setup is not tls


def test_keys_change_while_a_certificate_is_renewed(made, key, caplog):
    """The certificate that was read before is used until its files, which may be incomplete, are checked."""
    caplog.set_level("INFO")
    listener = Listener(made)
    certificate = Path(made.ssl_certfile)
    for change in (certificate.unlink, lambda: certificate.write_text("nonsense")):
        change()
        before, tls, files = made.keys.token, made.tls_setup, made.tls_files
        rotate(key)
        reload_keys(made, listener)
        assert listener.tokens[-1] == made.keys.token == made.quic.token_key != before
        assert made.tls_setup is not tls and made.tls_files is files
    assert caplog.text.count("The token key was reloaded from") == 2
