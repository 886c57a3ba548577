"""A WebTransport server in operation: renewed certificates, draining, workers, keys, sockets, settings."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket

import pytest

from tests.quic.harness import eventually
from tests.quic.native.connection_pairs import settled
from tests.support.reset_oracle import answers, victim
from tests.webtransport.session_pairs import accepting, connecting, serving
from uringcore import quic, webtransport
from uringcore.devcert import DevelopmentCertificate
from uringcore.quic.limits import ServerLimits
from uringcore.quic.workers import PortGroup
from uringcore.tls import CipherSuite, Group
from uringcore.webtransport._server_connection import (
    over_http3,
    quic_configuration,
    session_limits,
)

pytestmark = pytest.mark.either_backend

PORT_TRIED = 100


async def echo(session):
    async for stream in session.streams():
        await stream.send(await stream.read(), finish=True)


async def answered(session):
    async with session.open_stream() as stream:
        await stream.send(b"hello", finish=True)
        assert await stream.read() == b"hello"


def identity(certificate):
    return (certificate.certificate_pem, certificate.key_pem)


@pytest.fixture
def renewed():
    return DevelopmentCertificate.make()


# Reload ---------------------------------------------------------------------------------------------


def test_renewed_files_are_for_new_connections(run_anywhere, certificate, renewed, tmp_path):
    files = certificate.write(tmp_path)

    async def main():
        serving_files = webtransport.serve("127.0.0.1", 0, certificate=files, handler=echo)
        async with serving_files as server, connecting(certificate, server) as first:
            renewed.write(tmp_path)
            async with connecting(certificate, server) as other:
                await answered(other)
            server.reload()
            async with connecting(renewed, server) as other:
                await answered(other)
            with pytest.raises(quic.QuicConnectionError):
                await connecting(certificate, server)
            await answered(first)

    run_anywhere(main())


def test_invalid_files_change_nothing(run_anywhere, certificate, renewed, tmp_path):
    files = certificate.write(tmp_path)

    async def main():
        serving_files = webtransport.serve("127.0.0.1", 0, certificate=files, handler=echo)
        async with serving_files as server:
            with open(files[1], "wb") as key:
                key.write(renewed.key_pem)
            with pytest.raises(quic.QuicConfigurationError, match="key") as caught:
                server.reload()
            assert caught.value.field == "certificate"
            async with connecting(certificate, server) as session:
                await answered(session)

    run_anywhere(main())


def test_other_settings_are_for_new_connections(run_anywhere, certificate):
    async def main():
        accepted = []
        async with serving(certificate, {"max_uni_streams": 1}) as server:
            async with accepting(server, accepted), connecting(certificate, server) as first:
                settings = quic.ServerConfig(
                    certificate=identity(certificate), max_uni_streams=3, backlog=1
                )
                server.reload(settings)
                async with connecting(certificate, server) as second:
                    for _ in range(3):
                        await second.open_uni_stream()
                await first.open_uni_stream()
                opening = await settled(asyncio.ensure_future(first.open_uni_stream()))
                # The settings of before stay with its connection.
                assert not opening.done()
                opening.cancel()

    run_anywhere(main())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alpn", ["chat"]),
        ("connection_id_length", 12),
        ("datagrams", False),
        ("limits", ServerLimits(max_connections=5)),
        ("preferred_address", [("127.0.0.5", 4433)]),
    ],
)
def test_settings_that_cannot_change_are_named(run_anywhere, certificate, field, value):
    async def main():
        async with serving(certificate, handler=echo) as server:
            fields = {field: value}
            with pytest.raises(quic.QuicConfigurationError) as caught:
                server.reload(quic.ServerConfig(certificate=identity(certificate), **fields))
            assert caught.value.field == field
            async with connecting(certificate, server) as session:
                await answered(session)

    run_anywhere(main())


def test_a_server_that_does_not_accept_has_nothing_to_reload(run_anywhere, certificate):
    async def main():
        async with serving(certificate, handler=echo) as server:
            server.stop_accepting()
            with pytest.raises(quic.ListenerClosedError):
                server.reload()

    run_anywhere(main())


# Draining -------------------------------------------------------------------------------------------


def test_draining_waits_for_sessions(run_anywhere, certificate):
    async def main():
        ended = asyncio.Event()

        async def handle(session):
            await echo(session)
            ended.set()

        server = await serving(certificate, handler=handle)
        session = await connecting(certificate, server)
        draining = asyncio.ensure_future(server.drain())
        await session.wait_draining()
        await answered(session)
        assert not draining.done() and not server.is_closed
        session.close()
        await draining
        assert server.is_closed and ended.is_set()
        await server.drain()

    run_anywhere(main())


def test_draining_ends_with_its_time(run_anywhere, certificate):
    async def main():
        server = await serving(certificate, handler=echo)
        session = await connecting(certificate, server)
        await server.drain(timeout=0.01)
        assert server.is_closed
        await session.wait_closed()
        assert session.close_code == 0

    run_anywhere(main())


def test_draining_closes_connections_without_sessions(run_anywhere, certificate):
    async def main():
        server = await serving(certificate, handler=echo)
        config = quic.ClientConfig(alpn=["h3"], certificate_hashes=[certificate.sha256])
        client = await quic.connect(*server.address, config)
        await eventually(lambda: len(server._transports) == 1)
        await server.drain()
        await client.wait_closed()
        with pytest.raises(quic.QuicConnectionError) as caught:
            await client.ping()
        assert caught.value.code == 0x100

    run_anywhere(main())


def test_a_request_that_waits_can_be_accepted_while_the_server_drains(run_anywhere, certificate):
    async def main():
        server = await serving(certificate)
        opening = asyncio.ensure_future(connecting(certificate, server))
        await eventually(lambda: server.stats()["sessions_asked"] == 1)
        draining = await settled(asyncio.ensure_future(server.drain()))
        accepted = await (await anext(server)).accept()
        session = await opening
        await session.wait_draining()
        assert not draining.done()
        session.close()
        await accepted.wait_closed()
        await draining
        with pytest.raises(StopAsyncIteration):
            await anext(server)

    run_anywhere(main())


# Sockets --------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def workers(group, certificate, **options):
    """A server for each worker, all on the running loop; sessions get the index of theirs."""

    def handler(index):
        async def handle(session):
            async for stream in session.streams():
                await stream.send(b"%d" % index, finish=True)

        return handle

    async with contextlib.AsyncExitStack() as stack:
        servers = []
        for worker in group:
            serving = webtransport.serve(
                certificate=identity(certificate),
                handler=handler(worker.index),
                workers=worker,
                **options,
            )
            servers.append(await stack.enter_async_context(serving))
        yield servers


async def index_of(session):
    async with session.open_stream() as stream:
        await stream.finish()
        return int(await stream.read())


def test_workers_share_a_port_and_one_drains(run_anywhere, certificate):
    async def main():
        with PortGroup("127.0.0.1", 0, workers=2) as group:
            async with workers(group, certificate) as servers:
                assert {server.address for server in servers} == {group.sockname}
                sessions = {}
                while len(sessions) < 2:
                    session = await connecting(certificate, servers[0])
                    index = await index_of(session)
                    if index in sessions:
                        session.close()
                    else:
                        sessions[index] = session
                for server in servers:
                    server.reload()
                draining = asyncio.ensure_future(servers[0].drain())
                await sessions[0].wait_draining()
                for _ in range(5):
                    async with connecting(certificate, servers[1]) as session:
                        assert await index_of(session) == 1
                assert await index_of(sessions[0]) == 0
                sessions[0].close()
                await draining
                assert await index_of(sessions[1]) == 1
                sessions[1].close()

    run_anywhere(main())


def test_a_bound_socket_is_served_and_closed(run_anywhere, certificate):
    async def main():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        address = sock.getsockname()
        options = {"certificate": identity(certificate), "handler": echo}
        async with webtransport.serve(sock=sock, **options) as server:
            assert server.address == address
            async with connecting(certificate, server) as session:
                await answered(session)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
            again.bind(address)

    run_anywhere(main())


def test_arguments_that_exclude_each_other_are_named(certificate):
    pem = identity(certificate)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unbound:
        with PortGroup("127.0.0.1", 0, workers=1) as group:
            refused = [
                (TypeError, "host", {}),
                (TypeError, "workers", {"workers": 3}),
                (ValueError, "sock", {"sock": unbound}),
                (ValueError, "sock", {"sock": group[0].socket, "workers": group[0]}),
                (ValueError, "workers", {"workers": group[0], "host": "", "port": 0}),
                (ValueError, "sock", {"sock": group[0].socket, "reuse_port": True}),
            ]
            for kind, name, arguments in refused:
                with pytest.raises(kind, match=name):
                    webtransport.serve(certificate=pem, **arguments)
    with pytest.raises(TypeError, match="certificate"):
        webtransport.serve("127.0.0.1", 0)


# Certificates and keys ------------------------------------------------------------------------------


def test_a_client_is_shown_the_certificate_of_its_name(run_anywhere, certificate, renewed):
    certificates = [
        quic.Certificate(*identity(certificate), server_names=["*"]),
        quic.Certificate(*identity(renewed), server_names=["localhost"]),
    ]

    async def main():
        serving_both = webtransport.serve("127.0.0.1", 0, certificates=certificates, handler=echo)
        async with serving_both as server:
            for name, shown in {"localhost": renewed, "other.example": certificate}.items():
                config = {"server_name": name}
                async with connecting(shown, server, config=config) as session:
                    await answered(session)

    run_anywhere(main())


def test_token_keys_are_rotated(run_anywhere, certificate):
    """A token that the former key has sealed is good for as long as that key is listed."""
    old, new = b"o" * 32, b"n" * 32

    async def main():
        fields = {"certificate": identity(certificate), "retry": True}
        async with serving(certificate, {"retry": True, "token_keys": [old]}) as server:

            async def connected(token=b""):
                """The token that a connection with ``token`` gets, and the Retry packets that it cost."""
                before = server.stats()["incoming_retried"]
                config = quic.ClientConfig(
                    alpn=["h3"], certificate_hashes=[certificate.sha256], address_token=token
                )
                async with quic.connect(*server.address, config) as one:
                    await eventually(lambda: one.address_token is not None)
                    return one.address_token, server.stats()["incoming_retried"] - before

            first, retries = await connected()
            assert retries == 1
            second, retries = await connected(first)
            assert retries == 0
            server.reload(quic.ServerConfig(token_keys=[new, old], **fields))
            third, retries = await connected(second)
            assert retries == 0
            server.reload(quic.ServerConfig(token_keys=[new], **fields))
            assert (await connected(third))[1] == 0

    run_anywhere(main())


def test_connections_are_reset_with_the_key_of_their_time(run_anywhere, certificate):
    old, new = b"o" * 32, b"n" * 32

    async def main():
        server = await serving(certificate, {"stateless_reset_key": old})
        address = server.address
        async with victim(*address, "h3") as first:
            server.reload(
                quic.ServerConfig(certificate=identity(certificate), stateless_reset_key=new)
            )
            async with victim(*address, "h3") as second:
                tokens = first.tokens() | second.tokens()
        server.close()
        await server.wait_closed()
        sock = await bound_again(address)
        config = quic.ServerConfig(
            certificate=identity(certificate), stateless_reset_key=[new, old]
        )
        async with webtransport.serve(sock=sock, config=config):
            for connection_id, token in tokens.items():
                (reset,) = await asyncio.to_thread(answers, address, connection_id)
                assert reset.endswith(token)

    run_anywhere(main())


async def bound_again(address):
    """A socket on the port of a server that was closed: the kernel closes its ring a little later."""
    for _ in range(PORT_TRIED):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            sock.bind(address)
        except OSError:
            sock.close()
            await asyncio.sleep(0.05)
        else:
            return sock
    raise AssertionError(f"{address} stays in use")


# Settings -------------------------------------------------------------------------------------------

REFUSED = {"alpn": ["chat"], "datagrams": False}
OTHERS = {
    "versions": [1],
    "cipher_suites": [CipherSuite.AES_256_GCM_SHA384],
    "groups": [Group.X25519],
    "idle_timeout": 5.0,
    "keep_alive": 3.0,
    "max_streams": 7,
    "max_uni_streams": 7,
    "receive_window": 70_000,
    "connection_receive_window": 70_000,
    "send_buffer": 70_000,
    "datagram_buffer": 70_000,
    "datagram_overflow": "newest",
    "congestion": "bbr",
    "initial_rtt": 0.5,
    "initial_mtu": 1_300,
    "mtu_discovery": False,
    "connection_id_length": 12,
    "key_update_packets": 1_000,
    "ack_packets_max": 5,
    "ack_delay_max": 0.01,
    "ack_reordering": 3,
    "close_timeout": 1.0,
    "early_data": True,
    "backlog": 3,
    "limits": ServerLimits(max_connections=5),
    "retry": True,
    "token_keys": [b"t" * 32],
    "stateless_reset_key": b"r" * 32,
    "preferred_address": [("127.0.0.1", 4433)],
}
# Those with objects as values; the QUIC tests prove each.
OBJECTS = {
    "certificate",
    "certificates",
    "client_authorities",
    "client_certificate_required",
    "key_log",
    "qlog",
    "session_store",
}


def test_every_setting_is_looked_at():
    fields = {field.name for field in dataclasses.fields(quic.ServerConfig)}
    assert fields == REFUSED.keys() | OTHERS.keys() | OBJECTS


@pytest.mark.parametrize("field", REFUSED)
def test_settings_without_webtransport_are_refused(certificate, field):
    config = quic.ServerConfig(certificate=identity(certificate), **{field: REFUSED[field]})
    with pytest.raises(quic.QuicConfigurationError) as caught:
        webtransport.serve("127.0.0.1", 0, config=config)
    assert caught.value.field == field
    config = quic.ClientConfig(**{field: REFUSED[field]})
    with pytest.raises(quic.QuicConfigurationError) as caught:
        webtransport.connect("https://localhost/", config)
    assert caught.value.field == field


@pytest.mark.parametrize("field", OTHERS)
def test_every_other_setting_reaches_connections_or_sessions(certificate, field, monkeypatch):
    """Each one changes the configuration, the limits of sessions, or a field that the server itself reads."""
    monkeypatch.setattr("uringcore.webtransport._server_connection.WebTransportLimits", dict)
    if field in ("ack_delay_max", "ack_reordering"):
        base = {"ack_packets_max": 9}
    else:
        base = {}

    def effect(**fields):
        config = over_http3(quic.ServerConfig(certificate=identity(certificate), **base, **fields))
        made = quic_configuration(config)
        values = {one.name: getattr(made, one.name) for one in dataclasses.fields(made)}
        own = (config.retry, config.limits, config.backlog, config.close_timeout)
        return values, session_limits(config), own

    assert effect() == effect()
    assert effect(**{field: OTHERS[field]}) != effect()


def test_a_request_beyond_the_backlog_is_refused(run_anywhere, certificate):
    async def main():
        async with serving(certificate, {"backlog": 1}) as server:
            first = asyncio.ensure_future(connecting(certificate, server))
            await eventually(lambda: server.stats()["sessions_asked"] == 1)
            with pytest.raises(webtransport.SessionRefusedError) as refused:
                await connecting(certificate, server)
            assert refused.value.status == 503
            accepted = await (await anext(server)).accept()
            async with await first:
                pass
            await accepted.wait_closed()

    run_anywhere(main())


def test_a_connection_beyond_the_limits_is_refused(run_anywhere, certificate):
    async def main():
        fields = {"limits": ServerLimits(max_connections=1)}
        async with serving(certificate, fields, handler=echo) as server:
            async with connecting(certificate, server) as session:
                with pytest.raises(quic.QuicConnectionRefusedError):
                    await connecting(certificate, server)
                await answered(session)

    run_anywhere(main())
