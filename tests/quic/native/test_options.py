"""Each setting of the typed API takes effect with uringcore's and aioquic's peers; impossible settings are
refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import inspect
import io
import multiprocessing
import pickle
import socket

import pytest

import uringcore
from tests.quic.aioquic_peer import (
    AioquicRecorder,
    aioquic_asyncio,
    aioquic_client,
    aioquic_serving,
)
from tests.quic.harness import eventually, kept, patterned
from tests.quic.native.connection_pairs import (
    client_config,
    connecting,
    listening,
    pair,
    server_config,
    stream_pair,
)
from tests.support.free_ports import free_port
from uringcore import quic
from uringcore.quic.logger import QuicLogger
from uringcore.quic.packet import QuicProtocolVersion
from uringcore.quic.sessions import SharedSessionStore
from uringcore.tls import CipherSuite, Group

pytestmark = pytest.mark.either_backend

aioquic_crypto = pytest.importorskip("aioquic.quic.crypto")
aioquic_tls = pytest.importorskip("aioquic.tls")

V1, V2 = QuicProtocolVersion.VERSION_1, QuicProtocolVersion.VERSION_2
RESERVED = 0x1A2A3A4A


def aioquic_connecting(pki, listener, **fields):
    fields.setdefault("server_name", "localhost")
    return aioquic_asyncio.connect(
        *listener.address,
        configuration=aioquic_client(pki, **fields),
        create_protocol=AioquicRecorder,
    )


# The client's versions, its first version, the server's versions, and the negotiated version.
VERSIONS = {
    "v1": ([V1, V2], None, [V1, V2], V1),
    "v2": ([V2], None, [V1, V2], V2),
    "changed-within-the-handshake": ([V2, V1], V1, [V1, V2], V2),
    "asked-for-another": ([V1, V2], None, [V2], V2),
    "unknown-first": ([V2, V1], RESERVED, [V1, V2], V2),
}


@pytest.mark.parametrize(
    ("clients", "first", "servers", "expected"), VERSIONS.values(), ids=VERSIONS
)
def test_versions_are_negotiated(run_anywhere, pki, clients, first, servers, expected):
    async def main():
        fields = {"versions": clients, "first_version": first}
        async with pair(pki, fields, {"versions": servers}) as (one, other):
            assert one.version == other.version == expected
            await one.ping()

    run_anywhere(main())


def test_a_version_in_common_is_needed(run, pki):
    async def main():
        async with listening(pki, versions=[V2]) as listener:
            with pytest.raises(quic.QuicVersionError):
                async with connecting(pki, listener, versions=[V1]):
                    pass

    run(main())


@pytest.mark.skipif("quicv2 ku" not in inspect.getsource(aioquic_crypto), reason="an old aioquic")
def test_versions_are_negotiated_with_aioquic(run, pki):
    async def main():
        fields = {"versions": [V2, V1], "first_version": V1}
        async with aioquic_serving(pki, supported_versions=[V1, V2]) as port:
            async with quic.connect("localhost", port, client_config(pki, **fields)) as one:
                assert one.version == V2
                await one.ping()
        async with listening(pki, versions=[V2]) as listener:
            async with aioquic_connecting(pki, listener, supported_versions=[V1, V2]) as client:
                await client.ping()
                assert client._quic._version == V2

    run(main())


@pytest.mark.parametrize("suite", list(CipherSuite))
def test_cipher_suites_are_obeyed(run, pki, suite):
    async def main():
        async with listening(pki, cipher_suites=[suite]) as listener:
            async with connecting(pki, listener) as one:
                assert one.stats()["cipher_suite"] == suite
            async with aioquic_connecting(pki, listener) as client:
                await client.ping()
                assert client._quic.tls.key_schedule.cipher_suite == suite
            others = [other for other in CipherSuite if other != suite]
            with pytest.raises(quic.QuicTlsError):
                async with connecting(pki, listener, cipher_suites=others):
                    pass
        async with aioquic_serving(pki) as port:
            config = client_config(pki, cipher_suites=[suite])
            async with quic.connect("localhost", port, config) as one:
                await one.ping()
                assert one.stats()["cipher_suite"] == suite

    run(main())


@pytest.mark.parametrize("group", list(Group))
def test_groups_are_obeyed(run, pki, group):
    theirs = aioquic_tls.Context(is_client=True)._supported_groups

    async def main():
        async with listening(pki, groups=[group]) as listener:
            # The first group is the client's own choice, or the one that the server requests.
            for groups in ([group], [*(other for other in Group if other != group), group]):
                async with connecting(pki, listener, groups=groups) as one:
                    async with await listener.accept() as other:
                        assert one.stats()["group"] == other.stats()["group"] == group
            others = [other for other in Group if other != group]
            with pytest.raises(quic.QuicTlsError):
                async with connecting(pki, listener, groups=others):
                    pass
            if group in theirs:
                async with aioquic_connecting(pki, listener) as client:
                    await client.ping()
                    async with await listener.accept() as other:
                        assert other.stats()["group"] == group
        if group in theirs:
            async with aioquic_serving(pki) as port:
                config = client_config(pki, groups=[group])
                async with quic.connect("localhost", port, config) as one:
                    await one.ping()
                    assert one.stats()["group"] == group

    run(main())


def test_a_server_takes_the_post_quantum_group_of_a_client_that_prefers_it(run_anywhere, pki):
    async def main():
        for groups in (None, [Group.X25519MLKEM768, Group.X25519]):
            async with pair(pki, {"groups": groups}) as (one, _):
                expected = Group.X25519 if groups is None else Group.X25519MLKEM768
                assert one.stats()["group"] == expected

    run_anywhere(main())


def test_packets_begin_with_the_size_that_was_set(run_anywhere, pki):
    async def main():
        client, server = {"initial_mtu": 1300}, {"initial_mtu": 1400}
        for fields in (client, server):
            fields["mtu_discovery"] = False
        async with stream_pair(pki, client, server) as (here, there):
            await here.send_all(bytes(100_000))
            await there.readexactly(100_000)
            assert here.connection.stats()["path_mtu"] == 1300
            assert there.connection.stats()["path_mtu"] == 1400
            assert there.connection.stats()["mtu_probes_sent"] == 0
        async with stream_pair(pki) as (here, there):

            async def send():
                while True:
                    await here.send(bytes(1000))

            async def read():
                while True:
                    await there.read(100_000)

            traffic = [asyncio.ensure_future(task) for task in (send(), read())]
            await eventually(lambda: here.connection.stats()["path_mtu"] > 1400)
            for task in traffic:
                task.cancel()
            await asyncio.wait(traffic)

    run_anywhere(main())


def test_connection_ids_have_the_length_that_was_set(run, pki):
    async def main():
        async with listening(pki, connection_id_length=12) as listener:
            async with aioquic_connecting(pki, listener) as client:
                await client.ping()
                assert len(client._quic._peer_cid.cid) == 12

    run(main())


def test_keys_change_after_as_many_packets_as_were_set(run_anywhere, pki):
    async def main():
        async with stream_pair(pki, {"key_update_packets": 50}) as (here, there):
            # A key update waits until the previous one is confirmed.
            while here.connection.stats()["key_updates"] < 2:
                sending = asyncio.ensure_future(here.send_all(patterned(100_000)))
                assert await there.readexactly(100_000) == patterned(100_000)
                await sending
            assert there.connection.stats()["key_updates"] >= 1

    run_anywhere(main())


def test_the_first_round_trip_is_assumed_as_it_was_set(run_anywhere, pki):
    async def main():
        async with listening(pki, early_data=True) as listener:
            async with connecting(pki, listener) as one:
                await eventually(lambda: one.session_ticket is not None)
            # The client connects without waiting for the server, so no round trip has been measured yet.
            fields = {"session_ticket": one.session_ticket, "early_data": True, "initial_rtt": 0.25}
            async with connecting(pki, listener, **fields) as two:
                assert two.stats()["rtt"] == 0.25
                await two.wait_connected()
                await two.ping()
                assert two.stats()["latest_rtt"] > 0

    run_anywhere(main())


def test_a_peer_is_requested_to_acknowledge_less_often(run, pki):
    """Proof is the ACK_FREQUENCY frame in the sender's trace."""

    async def main():
        for fields, expected in (
            ({}, False),
            ({"ack_packets_max": 30, "ack_delay_max": 0.02}, True),
        ):
            qlog = QuicLogger()
            async with stream_pair(pki, {**fields, "qlog": qlog}) as (here, there):
                await here.send_all(bytes(200_000))
                await there.readexactly(200_000)
                await here.connection.ping()
            assert ("ack_frequency" in str(qlog.to_dict())) is expected

    run(main())


def test_clients_move_to_the_preferred_address(run, pki):
    async def main():
        preferred = ("127.0.0.5", free_port())
        async with listening(pki, preferred_address=[preferred]) as listener:
            async with connecting(pki, listener) as one, await listener.accept() as other:
                await one.ping()
                await eventually(lambda: one.peer_address == preferred)
                async with one.open_stream() as stream:
                    await stream.send(b"there", finish=True)
                    async with await other.accept_stream() as there:
                        assert await there.read() == b"there"
                assert one.peer_address == preferred
            async with connecting(pki, listener, use_preferred_address=False) as one:
                await one.ping()
                await one.ping()
                assert one.peer_address == listener.address

    run(main())


def test_a_preferred_address_needs_uringcores_loop(pki):
    async def main():
        with pytest.raises(quic.QuicConfigurationError) as caught:
            async with listening(pki, preferred_address=[("127.0.0.5", 4433)]):
                pass
        assert caught.value.field == "preferred_address"

    asyncio.run(main())


def test_clients_prove_their_address_by_a_retry_or_a_token(run_anywhere, pki):
    async def main():
        async with listening(pki, retry=True) as listener:

            def retries():
                return listener.stats()["incoming_retried"]

            async with connecting(pki, listener) as one:
                await eventually(lambda: one.address_token is not None)
            assert retries() == 1
            token = pickle.loads(pickle.dumps(one.address_token))
            async with connecting(pki, listener, address_token=token) as two:
                assert retries() == 1
                await two.ping()
            # A token is valid once.
            async with connecting(pki, listener, address_token=token):
                assert retries() == 2
            # An object with settings keeps the tokens that its connections get.
            config = client_config(pki)
            for _ in range(2):
                async with quic.connect(*listener.address, config) as one:
                    await eventually(lambda: one.address_token is not None)
            assert retries() == 3
        async with listening(pki, retry=False) as listener:
            async with aioquic_connecting(pki, listener) as client:
                await client.ping()
            assert listener.stats()["incoming_retried"] == 0

    run_anywhere(main())


def test_tokens_are_good_at_another_server_with_the_keys(run, pki):
    async def main():
        key, other_key = b"k" * 32, b"o" * 32
        async with listening(pki, token_keys=[key]) as listener:

            async def token():
                async with connecting(pki, listener) as one:
                    await eventually(lambda: one.address_token is not None)
                    return one.address_token

            tokens = [await token() for _ in range(3)]
        for keys, retries in (([key], 0), ([other_key, key], 0), ([other_key], 1)):
            async with listening(pki, retry=True, token_keys=keys) as other:
                async with connecting(pki, other, address_token=tokens.pop()) as one:
                    await one.ping()
                assert other.stats()["incoming_retried"] == retries

    run(main())


def test_sessions_are_kept_in_the_store_that_was_set(run, pki, tmp_path):
    store = SharedSessionStore(tmp_path / "sessions")

    async def main():
        async with listening(pki, session_store=store) as listener:
            async with connecting(pki, listener) as one:
                await eventually(lambda: one.session_ticket is not None)
                await kept(store._path, one.session_ticket)
        async with listening(pki) as listener:
            async with connecting(pki, listener, session_ticket=one.session_ticket) as two:
                assert not two.is_resumed
        async with listening(pki, session_store=store) as listener:
            async with connecting(pki, listener, session_ticket=one.session_ticket) as two:
                assert two.is_resumed

    run(main())


def test_secrets_and_traces_are_written(run, pki):
    async def main():
        logs, traces = [io.StringIO(), io.StringIO()], [QuicLogger(), QuicLogger()]
        client, server = (
            {"key_log": log, "qlog": trace} for log, trace in zip(logs, traces, strict=True)
        )
        async with pair(pki, client, server) as (one, _):
            await one.ping()
        for log, trace in zip(logs, traces, strict=True):
            assert "CLIENT_TRAFFIC_SECRET_0" in log.getvalue()
            assert len(trace.to_dict()["traces"]) == 1
        assert sorted(logs[0].getvalue().splitlines()) == sorted(logs[1].getvalue().splitlines())

    run(main())


def test_more_connections_than_the_limits_allow_are_refused(run, pki):
    async def main():
        limits = quic.ServerLimits(max_connections=1, max_connections_per_address=None)
        async with listening(pki, limits=limits) as listener:
            async with connecting(pki, listener):
                with pytest.raises(quic.QuicConnectionRefusedError):
                    async with connecting(pki, listener):
                        pass
            assert listener.stats()["refused_for_connections"] == 1

    run(main())


def test_a_socket_of_the_programs_own_is_served(run_anywhere, pki):
    async def main():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        name = sock.getsockname()
        async with quic.listen(config=server_config(pki), sock=sock) as listener:
            assert listener.address == name
            async with connecting(pki, listener) as one:
                await one.ping()
        # The listener has closed the socket.
        assert sock.fileno() == -1
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
            again.bind(name)

    run_anywhere(main())


def _serve(config, port, kind, ready):
    async def main():
        async with quic.listen("127.0.0.1", port, config):
            ready.set()
            await asyncio.Event().wait()

    uringcore.run(main(), backend=kind)


@contextlib.contextmanager
def serving_process(config, port, kind):
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    process = context.Process(target=_serve, args=(config, port, kind, ready))
    process.start()
    try:
        assert ready.wait(30)
        yield process
    finally:
        process.kill()
        process.join()


async def listening_again(port, settings):
    """Opens a listener on the port of a killed process, as soon as the kernel has closed that process's
    ring.
    """
    while True:
        try:
            return await quic.listen("127.0.0.1", port, settings)
        except OSError as error:
            assert error.errno == errno.EADDRINUSE
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("same", [True, False])
def test_a_server_resets_the_connections_of_a_process_that_was_killed(run, pki, same):
    keys = [b"r" * 32, b"r" * 32 if same else b"s" * 32]
    port = free_port()

    async def main():
        settings = server_config(pki, stateless_reset_key=keys[0])
        with serving_process(settings, port, run.kind) as process:
            one = await quic.connect("127.0.0.1", port, client_config(pki))
            await one.ping()
            process.kill()
            await asyncio.to_thread(process.join)
            settings = server_config(pki, stateless_reset_key=keys[1])
            async with await listening_again(port, settings) as listener:
                stream = await one.open_stream()
                await stream.send(bytes(100))
                if same:
                    await one.wait_closed()
                    with pytest.raises(quic.QuicConnectionError):
                        await one.ping()
                else:
                    # The client sends the packet again, so it did not accept the reset.
                    await eventually(lambda: listener.stats()["stateless_resets_sent"] > 1)
                    assert not one.is_closed
                    one.close()

    run(main())


def test_a_reset_key_and_a_port_of_several_programs_exclude_each_other(run_anywhere, pki):
    async def main():
        settings = server_config(pki, stateless_reset_key=bytes(32))
        with pytest.raises(quic.QuicConfigurationError) as caught:
            await quic.listen("127.0.0.1", 0, settings, reuse_port=True)
        assert caught.value.field == "stateless_reset_key"

    run_anywhere(main())


def test_settings_can_be_pickled(run, pki):
    async def main():
        settings = pickle.loads(
            pickle.dumps(
                server_config(
                    pki,
                    certificate=None,
                    certificates=[quic.Certificate(pki.server.certfile, pki.server.keyfile)],
                    token_keys=[bytes(32)],
                    groups=[Group.X25519],
                )
            )
        )
        assert "key" not in repr(settings).replace("key_", "")
        async with quic.listen("127.0.0.1", 0, settings) as listener:
            async with connecting(pki, listener) as one:
                await one.ping()

    run(main())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alpn", b"test"),
        ("versions", [RESERVED]),
        ("versions", []),
        ("versions", [1 << 32]),
        ("versions", ["1"]),
        ("versions", "1"),
        ("cipher_suites", []),
        ("cipher_suites", [0x1399]),
        ("groups", []),
        ("groups", [0x001E]),
        ("groups", ["x25519"]),
        ("groups", "x25519"),
        ("initial_rtt", 0),
        ("initial_mtu", 1199),
        ("initial_mtu", "1200"),
        ("connection_id_length", 3),
        ("connection_id_length", "8"),
        ("key_update_packets", 0),
        ("ack_delay_max", 0.1),
        ("ack_reordering", 0),
        ("ack_packets_max", -1),
    ],
)
def test_an_impossible_setting_is_named(pki, field, value):
    for config in (client_config, server_config):
        with pytest.raises(quic.QuicConfigurationError) as caught:
            config(pki, **{field: value})
        assert caught.value.field == field


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        (client_config, "first_version", 0),
        (client_config, "first_version", "1"),
        (client_config, "address_token", "token"),
        (client_config, "address_token", bytes(5000)),
        (server_config, "retry", "never"),
        (server_config, "limits", None),
        (server_config, "token_keys", bytes(32)),
        (server_config, "token_keys", [bytes(31)]),
        (server_config, "token_keys", ["k" * 32]),
        (server_config, "stateless_reset_key", bytes(31)),
        (server_config, "stateless_reset_key", "k" * 32),
        (server_config, "preferred_address", ("127.0.0.1", 4433)),
        (server_config, "preferred_address", [("localhost", 4433)]),
        (server_config, "preferred_address", [("0.0.0.0", 4433)]),
        (server_config, "session_store", {}),
    ],
)
def test_an_impossible_setting_of_one_side_is_named(pki, config, field, value):
    with pytest.raises(quic.QuicConfigurationError) as caught:
        config(pki, **{field: value})
    assert caught.value.field == field
    assert "kkk" not in str(caught.value)


@pytest.mark.parametrize("config", [client_config, server_config])
@pytest.mark.parametrize(
    ("fields", "values"),
    [
        (["alpn"], ["x", None, 1, [1], [b"x"]]),
        (["versions"], [None, 1]),
        (["cipher_suites", "groups"], [1, "x"]),
        (["datagrams", "mtu_discovery", "early_data"], ["no", 1, None]),
        (["idle_timeout", "keep_alive", "initial_rtt", "close_timeout"], ["x", True, [1], b"x"]),
        (["max_streams", "receive_window", "send_buffer", "datagram_buffer"], ["x", 1.5, None]),
        (["connection_id_length", "key_update_packets", "ack_packets_max"], ["x", 1.5, True]),
        (["send_buffer", "datagram_buffer"], [1 << 80]),
    ],
)
def test_a_value_of_another_type_is_refused(pki, config, fields, values):
    _check_refused(pki, config, fields, values)


@pytest.mark.parametrize(
    ("config", "fields", "values"),
    [
        (client_config, ["verify", "use_preferred_address"], ["no", 1, None]),
        (client_config, ["server_name"], [1, b"x"]),
        (client_config, ["authorities"], [1, ["a.pem"]]),
        (client_config, ["certificate_hashes"], [1, b"x", None]),
        (server_config, ["backlog"], ["z", 1.5, True, None, 0]),
        (server_config, ["client_certificate_required"], ["no", 1, None]),
        (server_config, ["client_authorities"], [1, ["a.pem"]]),
        (server_config, ["token_keys", "preferred_address"], [None, 1, "x"]),
    ],
)
def test_a_value_of_another_type_is_refused_on_one_side(pki, config, fields, values):
    _check_refused(pki, config, fields, values)


def _check_refused(pki, config, fields, values):
    for field in fields:
        for value in values:
            with pytest.raises(quic.QuicConfigurationError) as caught:
                config(pki, **{field: value})
            assert caught.value.field == field, value


def test_authorities_without_verification_are_refused(pki):
    with pytest.raises(quic.QuicConfigurationError) as caught:
        quic.ClientConfig(authorities=pki.authority.certfile, verify=False)
    assert caught.value.field == "authorities"


def test_arguments_of_listen_that_exclude_each_other_are_named(pki):
    config = server_config(pki)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for match, fields in (
            ("host and a port", {"config": config}),
            ("host and a port", {"config": config, "host": "::"}),
            ("certificate", {"host": "::", "port": 0}),
            ("PortWorker", {"config": config, "workers": 4}),
        ):
            with pytest.raises(TypeError, match=match):
                quic.listen(**fields)
        sock.bind(("127.0.0.1", 0))
        for match, fields in (
            ("bound already", {"config": config, "sock": sock, "host": "::", "port": 0}),
            ("bound already", {"config": config, "sock": sock, "reuse_port": True}),
        ):
            with pytest.raises(ValueError, match=match):
                quic.listen(**fields)


def test_a_socket_that_cannot_serve_is_refused(pki):
    with contextlib.ExitStack() as opened:
        unbound, connected = (
            opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2)
        )
        connected.connect(("127.0.0.1", 9))
        tcp = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        local, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        opened.enter_context(local)
        opened.enter_context(other)
        closed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        closed.close()
        for sock in (unbound, connected, tcp, local, closed):
            with pytest.raises(ValueError, match="^sock: must be a bound, unconnected UDP socket$"):
                quic.listen(config=server_config(pki), sock=sock)
