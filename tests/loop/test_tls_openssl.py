"""TLS data that bypasses CPython's ssl module: on every supported interpreter, with fallback to the module's
calls if anything differs, and with equal results for a program.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import shutil
import ssl
import subprocess
import sys
import sysconfig
import textwrap
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.loop.harness import Echo, Recorder, Runner, listen
from tests.loop.test_tls_data import end, pattern, tls_pair
from tests.loop.tls_peer import Authority, Peer
from uringcore import _uringcore

KNOWN = ((3, 10), (3, 11), (3, 12), (3, 13), (3, 14), (3, 15))
RECORD_HEADER = 5
Contexts = tuple[ssl.SSLContext, ssl.SSLContext]
Scenario = Callable[[ssl.SSLContext, ssl.SSLContext], Coroutine[Any, Any, Any]]


def is_past_the_module(transport: Any) -> bool:
    return bool(transport._ssl_protocol._is_past_the_module)


def contexts(certificate: tuple[Path, Path], *, module: bool = False) -> Contexts:
    """(a server's, a client's); `module`: of connections that take the ssl module's calls."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*certificate)
    client = ssl.create_default_context(cafile=str(certificate[0]))
    if module:
        use_module(server, client)
    return server, client


def use_module(*given: Any) -> None:
    """A callback that may raise requires the module's calls."""
    for context in given:
        context._msg_callback = lambda *_: None


def both_ways(run: Runner, certificate: tuple[Path, Path], scenario: Scenario) -> Any:
    """Returns the scenario's result, which has to be equal with the module's calls and without."""
    past = run(scenario(*contexts(certificate)))
    first = [str(one.get("exception")) for one in run.complaints.contexts]
    run.complaints.contexts.clear()
    through = run(scenario(*contexts(certificate, module=True)))
    second = [str(one.get("exception")) for one in run.complaints.contexts]
    run.complaints.contexts.clear()
    assert past == through
    assert first == second
    return past, first


def shown(error: Any) -> Any:
    """All that a program can see of an exception."""
    names = ("errno", "reason", "library", "verify_code", "verify_message")
    return type(error), str(error), error.args, *(getattr(error, name, None) for name in names)


async def served_by(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> tuple[Any, ...]:
    """(a scripted client after its handshake, the server's protocol, the server)."""
    made: list[Recorder] = []

    def accept() -> Recorder:
        made.append(Recorder())
        return made[0]

    server, address = await listen(accept, ssl=server_tls)
    peer = await Peer.connect(address, client_tls)
    await peer.handshake()
    await made[0].until_call("made")
    return peer, made[0], server


async def finish(peer: Peer, served: Recorder, server: asyncio.AbstractServer) -> None:
    await served.until_call("lost")
    peer.abort()
    server.close()
    await server.wait_closed()


def records(data: bytes) -> list[bytearray]:
    """The TLS records in these bytes."""
    found = []
    while data:
        size = RECORD_HEADER + int.from_bytes(data[3:RECORD_HEADER], "big")
        found.append(bytearray(data[:size]))
        data = data[size:]
    return found


# Where it is taken --------------------------------------------------------------------------------


@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="a free-threaded interpreter locks by itself",
)
@pytest.mark.skipif(
    os.environ.get("URINGCORE_DIRECT_TLS") == "0", reason="direct TLS is switched off"
)
@pytest.mark.skipif(sys.version_info[:2] not in KNOWN, reason="a later version of Python")
@pytest.mark.skipif(
    not hasattr(__import__("_ssl"), "__file__"), reason="OpenSSL is linked into the interpreter"
)
def test_this_interpreter_is_known(
    run_ours: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    assert _uringcore.tls_fallback_reason() is None

    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls)
        assert is_past_the_module(client.transport)
        assert is_past_the_module(served.transport)
        await end(client, server)

    run_ours(main())


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this interpreter has the GIL"
)
def test_a_free_threaded_interpreter_takes_the_modules_calls() -> None:
    reason = _uringcore.tls_fallback_reason()
    assert reason is not None
    assert "free-threaded" in reason


class OtherObject(ssl.SSLObject):
    """A program's own, whose methods might do anything."""


def test_an_ssl_object_of_the_programs_own_takes_its_methods(
    run_ours: Runner, certificate: tuple[Path, Path]
) -> None:
    server_tls, client_tls = contexts(certificate)
    server_tls.sslobject_class = OtherObject  # type: ignore[assignment]

    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls, Echo)
        assert isinstance(served.transport.get_extra_info("ssl_object"), OtherObject)
        assert not is_past_the_module(served.transport)
        data = pattern(1 << 20)
        client.transport.write(data)
        await client.until(lambda: len(client.data) == len(data))
        assert client.data == data
        await end(client, server)

    run_ours(main())


@pytest.mark.parametrize("backend", ["uring", "epoll"])
@pytest.mark.parametrize(
    ("change", "environment", "reason"),
    [
        ("", {"URINGCORE_DIRECT_TLS": "0"}, "URINGCORE_DIRECT_TLS is 0"),
        ("_ssl.OPENSSL_VERSION = 'OpenSSL 0.0.0'", {}, "CPython uses OpenSSL 0.0.0"),
        ("_ssl.RAND_status = len", {}, "the OpenSSL that CPython uses|linked into the executable"),
        ("_ssl.RAND_status = print_nothing", {}, "not a C function"),
        ("_ssl._SSLSocket = Larger", {}, "is not known"),
    ],
)
def test_a_check_that_fails_leaves_the_modules_calls(
    backend: str,
    change: str,
    environment: dict[str, str],
    reason: str,
    certificate: tuple[Path, Path],
) -> None:
    program = f"""
        import asyncio, logging, ssl, sys, _ssl
        import uringcore
        from uringcore import _uringcore

        logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s %(message)s")

        def print_nothing():
            return 1

        class Larger:
            __slots__ = tuple("abcdefghijklmnop")

        {change}

        class Echo(asyncio.Protocol):
            def connection_made(self, transport):
                self.transport = transport
            def data_received(self, data):
                self.transport.write(data)

        async def main():
            server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            server_tls.load_cert_chain(*{[str(path) for path in certificate]!r})
            client_tls = ssl.create_default_context(cafile={str(certificate[0])!r})
            loop = asyncio.get_running_loop()
            server = await loop.create_server(Echo, "127.0.0.1", 0, ssl=server_tls)
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=client_tls, server_hostname="localhost"
            )
            writer.write(bytes(300_000))
            assert await reader.readexactly(300_000) == bytes(300_000)
            print("past:", writer.transport._ssl_protocol._is_past_the_module)
            writer.close()
            server.close()

        uringcore.run(main(), backend={backend!r})
        print("reason:", _uringcore.tls_fallback_reason())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "URINGCORE_DIRECT_TLS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "past: False" in lines
    assert re.search(reason, lines[-1])
    told = [line for line in lines if line.startswith("asyncio TLS uses CPython's ssl module")]
    assert len(told) == 1
    assert re.search(reason, told[0])


# Equal results for a program --------------------------------------------------------------------


def test_a_record_that_was_changed(run_ours: Runner, certificate: tuple[Path, Path]) -> None:
    async def scenario(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> Any:
        peer, served, server = await served_by(server_tls, client_tls)
        peer.tls.write(b"good")
        peer.tls.write(b"changed")
        good, changed = records(peer.outgoing.read())
        changed[-1] ^= 1
        peer.writer.write(good + changed)
        await served.until_call("lost")
        # The alert names the failure for the peer.
        with pytest.raises(ssl.SSLError) as alert:
            await peer.read()
        await finish(peer, served, server)
        return bytes(served.data), served.calls, shown(served.lost_with), shown(alert.value)

    (data, calls, lost, alert), _ = both_ways(run_ours, certificate, scenario)
    assert data == b"good"
    assert calls == ["made", "data", "lost"]
    assert lost[0] is ssl.SSLError
    assert re.search("BAD_RECORD_MAC|RECORD_LAYER_FAILURE", lost[1])  # OpenSSL 3.0, 3.6
    assert "BAD_RECORD_MAC" in alert[1]


def test_a_stream_that_is_not_tls(run_ours: Runner, certificate: tuple[Path, Path]) -> None:
    async def scenario(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> Any:
        peer, served, server = await served_by(server_tls, client_tls)
        peer.writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await finish(peer, served, server)
        return served.calls, shown(served.lost_with)

    (calls, lost), _ = both_ways(run_ours, certificate, scenario)
    assert calls == ["made", "lost"]
    assert lost[0] is ssl.SSLError


def test_an_alert_of_the_peer(run_ours: Runner, certificate: tuple[Path, Path]) -> None:
    async def scenario(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> Any:
        peer, served, server = await served_by(server_tls, client_tls)
        served.transport.write(b"changed on its way")
        ticket_and_data = await peer.reader.read(65536)
        *_, last = records(ticket_and_data)
        last[-1] ^= 1
        peer.incoming.write(ticket_and_data[: -len(last)] + bytes(last))
        with pytest.raises(ssl.SSLError):
            peer.tls.read(100)
        peer.flush()
        await finish(peer, served, server)
        return served.calls, shown(served.lost_with)

    (calls, lost), _ = both_ways(run_ours, certificate, scenario)
    assert calls == ["made", "lost"]
    assert "ALERT_BAD_RECORD_MAC" in lost[1]


@pytest.mark.parametrize("within_a_record", [False, True])
def test_an_end_without_close_notify(
    run_ours: Runner, certificate: tuple[Path, Path], within_a_record: bool
) -> None:
    async def scenario(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> Any:
        peer, served, server = await served_by(server_tls, client_tls)
        peer.tls.write(b"whole")
        peer.tls.write(b"half")
        sent = peer.outgoing.read()
        peer.writer.write(sent[:-3] if within_a_record else sent)
        peer.writer.write_eof()
        await finish(peer, served, server)
        return bytes(served.data), served.calls, served.lost_with

    (data, calls, lost), complaints = both_ways(run_ours, certificate, scenario)
    assert data == (b"whole" if within_a_record else b"wholehalf")
    assert calls == ["made", "data", "eof", "lost"]
    assert lost is None
    assert complaints == []


def test_a_certificate_that_is_not_trusted(
    run_ours: Runner, certificate: tuple[Path, Path]
) -> None:
    async def scenario(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> Any:
        strict = ssl.create_default_context()
        if client_tls._msg_callback is not None:  # type: ignore[attr-defined]
            use_module(strict)
        server, address = await listen(Recorder, ssl=server_tls)
        with pytest.raises(ssl.SSLCertVerificationError) as caught:
            await asyncio.get_running_loop().create_connection(
                Recorder, *address, ssl=strict, server_hostname="localhost"
            )
        server.close()
        await server.wait_closed()
        return shown(caught.value)

    found, _ = both_ways(run_ours, certificate, scenario)
    assert found[0] is ssl.SSLCertVerificationError


@pytest.mark.parametrize("has_certificate", [True, False])
def test_a_certificate_that_is_requested_later(
    run_ours: Runner, certificate: tuple[Path, Path], tmp_path: Path, has_certificate: bool
) -> None:
    """Post-handshake authentication (RFC 8446 section 4.6.2): OpenSSL answers within a read."""
    users = Authority(tmp_path)

    async def scenario(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> Any:
        server_tls.post_handshake_auth = client_tls.post_handshake_auth = True
        server_tls.verify_mode = ssl.CERT_REQUIRED
        server_tls.load_verify_locations(users.file)
        if has_certificate:
            client_tls.load_cert_chain(*users.issue("somebody"))
        client, served, server = await tls_pair(server_tls, client_tls)
        served_object = served.transport.get_extra_info("ssl_object")
        assert served_object.getpeercert() is None
        served_object.verify_client_post_handshake()
        served.transport.write(b"who are you?")
        await client.until(lambda: b"?" in client.data)
        client.transport.write(b"me")
        if has_certificate:
            await served.until(lambda: bytes(served.data) == b"me")
            subject = served_object.getpeercert()["subject"]
            await end(client, server)
            return subject
        await served.until_call("lost")
        await client.until_call("lost")
        server.close()
        await server.wait_closed()
        return shown(served.lost_with)

    found, _ = both_ways(run_ours, certificate, scenario)
    if has_certificate:
        assert found[-1] == (("commonName", "uringcore test somebody"),)
    else:
        assert "PEER_DID_NOT_RETURN_A_CERTIFICATE" in found[1]


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_a_session_that_is_resumed(
    run_ours: Runner, certificate: tuple[Path, Path], version: str
) -> None:
    async def scenario(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> Any:
        client_tls.maximum_version = ssl.TLSVersion[version]
        server, address = await listen(Echo, ssl=server_tls)
        found, session = [], None
        for _ in range(2):
            peer = await Peer.connect(address, client_tls)
            if session is not None:
                peer.tls.session = session
            await peer.handshake()
            peer.write(b"hello")
            assert await peer.read_exactly(5) == b"hello"
            session = peer.tls.session
            found.append((peer.tls.session_reused, peer.tls.version()))
            peer.say_goodbye()
            peer.writer.close()
        server.close()
        await server.wait_closed()
        return found

    found, _ = both_ways(run_ours, certificate, scenario)
    assert [reused for reused, _ in found] == [False, True]


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_the_ssl_objects_attributes_and_methods(
    run_ours: Runner, certificate: tuple[Path, Path], version: str, tmp_path: Path
) -> None:
    names: list[Any] = []

    async def scenario(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> Any:
        server_tls.minimum_version = server_tls.maximum_version = ssl.TLSVersion[version]
        for context in (server_tls, client_tls):
            context.set_alpn_protocols(["http/1.1"])
        server_tls.sni_callback = lambda sslobject, name, context: names.append(name)
        client_tls.keylog_filename = str(tmp_path / "keys")
        client, served, server = await tls_pair(server_tls, client_tls)
        one = client.transport.get_extra_info("ssl_object")
        other = served.transport.get_extra_info("ssl_object")
        # A program that writes past the transport: its bytes leave with the next ones, in order.
        one.write(b"first ")
        client.transport.write(b"second")
        await served.until(lambda: len(served.data) == 12)
        assert served.data == b"first second"
        binding = version == "TLSv1_2" and one.get_channel_binding() is not None
        if binding:
            assert one.get_channel_binding() == other.get_channel_binding()
        found = [
            (each.version(), each.cipher(), each.selected_alpn_protocol(), each.pending())
            for each in (one, other)
        ]
        kept = one.getpeercert()["subject"]
        await end(client, server)
        # After the connection: as many errors as before, and no crash.
        with pytest.raises(ssl.SSLError) as caught:
            one.write(b"too late")
        return found, binding, kept, shown(caught.value)

    (found, binding, _, _), _ = both_ways(run_ours, certificate, scenario)
    assert found[0][0] == found[1][0] == version.replace("_", ".")
    assert found[0][2] == "http/1.1"
    assert binding == (version == "TLSv1_2")
    assert names == ["localhost"] * 2
    assert (tmp_path / "keys").read_text().count("CLIENT") >= 2


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl program")
@pytest.mark.parametrize("version", ["tls1_2", "tls1_3"])
def test_new_keys_in_the_middle(
    run_ours: Runner, certificate: tuple[Path, Path], version: str
) -> None:
    """`openssl s_client` requests new keys: by KeyUpdate in TLS 1.3, before by a renegotiation, which OpenSSL
    refuses as a server or performs as its options permit.
    """

    async def scenario(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> Any:
        server_tls.options |= getattr(ssl, "OP_ALLOW_CLIENT_RENEGOTIATION", 1 << 8)
        made: list[Recorder] = []

        def accept() -> Recorder:
            made.append(Recorder())
            return made[-1]

        server, (host, port) = await listen(accept, ssl=server_tls)
        program = await asyncio.create_subprocess_exec(
            *("openssl", "s_client", "-connect", f"{host}:{port}", f"-{version}"),
            *("-CAfile", str(certificate[0])),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdin.write(b"before\n")
        while not made:
            await asyncio.sleep(0.01)
        await made[0].until(lambda: b"before\n" in made[0].data)
        # The program accepts a command only if it arrives alone, and prints a confirmation.
        command, answer = {
            "tls1_3": (b"K\n", b"KEYUPDATE"),
            "tls1_2": (b"R\n", b"RENEGOTIATING"),
        }[version]
        program.stdin.write(command)
        line = b""
        while answer not in line:
            line = await program.stderr.readline()
            assert line, "the program ended"
        program.stdin.write(b"after\n")
        await made[0].until(lambda: b"after\n" in made[0].data)
        made[0].transport.write(b"answered\n" * 10_000 + b"done\n")
        while b"done" not in (line := await program.stdout.readline()):
            assert line, "the program ended"
        made[0].transport.close()
        program.stdin.close()
        await program.wait()
        await made[0].until_call("lost")
        server.close()
        await server.wait_closed()
        return bytes(made[0].data)

    found, _ = both_ways(run_ours, certificate, scenario)
    assert found == b"before\nafter\n"


def test_many_sizes_each_way(run_ours: Runner, certificate: tuple[Path, Path]) -> None:
    sizes = [1, 100, 4095, 4096, 16383, 16384, 16385, 65536, 262143, 262144, 300_000, 1 << 20]

    async def scenario(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> Any:
        client, _, server = await tls_pair(server_tls, client_tls, Echo)
        for size in sizes:
            client.data.clear()
            data = pattern(size)
            client.transport.write(data)
            await client.until(lambda size=size: len(client.data) == size)
            assert client.data == data
        await end(client, server)

    both_ways(run_ours, certificate, scenario)


def test_a_connection_leaves_nothing(run_ours: Runner, certificate: tuple[Path, Path]) -> None:
    """OpenSSL owns the BIO, the connection owns OpenSSL's object, and no reference keeps either."""
    kept: list[Any] = []

    async def scenario(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
        for _ in range(3):
            client, _, server = await tls_pair(server_tls, client_tls, Echo)
            client.transport.write(pattern(100_000))
            await client.until(lambda client=client: len(client.data) == 100_000)
            kept.append(weakref.ref(client.transport.get_extra_info("ssl_object")))
            await end(client, server)

    run_ours(scenario(*contexts(certificate)))
    gc.collect()
    assert [each() for each in kept] == [None] * 3
