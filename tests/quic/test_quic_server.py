"""Options of a server: several application protocols, limits and their responses, keys, restarts."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.quic.harness import Echo, Recorder, eventually, serving
from uringcore.asyncio import connect, serve
from uringcore.quic import events
from uringcore.quic._errors import (
    QuicAlpnError,
    QuicConfigurationError,
    QuicConnectionRefusedError,
)
from uringcore.quic._open_endpoint import create_quic_endpoint
from uringcore.quic.connection import QuicConnection
from uringcore.quic.limits import ServerLimits


class Named(Recorder):
    """Answers every stream with the protocol's name."""

    name = b""

    def quic_event_received(self, event):
        super().quic_event_received(event)
        if isinstance(event, events.StreamDataReceived) and event.end_stream:
            self._quic.send_stream_data(event.stream_id, self.name, True)
            self.transmit()


class Http3(Named):
    name = b"h3"


class Http09(Named):
    name = b"hq-interop"


FACTORIES = {"h3": Http3, "hq-interop": Http09}


async def _ask(port, configuration):
    async with connect("127.0.0.1", port, configuration=configuration) as client:
        reader, writer = await client.create_stream()
        writer.write(b"who are you?")
        writer.write_eof()
        return await reader.read()


# Application protocols ----------------------------------------------------------------------------


def test_the_application_protocol_chooses_the_factory(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        made = []

        def factory(kind):
            def make(quic, stream_handler=None):
                made.append(kind)
                return kind(quic, stream_handler=stream_handler)

            return make

        server = await serve(
            "127.0.0.1",
            0,
            configuration=server_configuration(alpn_protocols=None),
            create_protocol={name: factory(kind) for name, kind in FACTORIES.items()},
        )
        port = server.sockname[1]
        async with server:
            for names, expected in [
                (["h3"], b"h3"),
                (["hq-interop"], b"hq-interop"),
                (["something", "hq-interop"], b"hq-interop"),
                # The server's order of preference decides.
                (["hq-interop", "h3"], b"h3"),
            ]:
                answer = await _ask(port, client_configuration(alpn_protocols=names))
                assert answer == expected
            assert made == [Http3, Http09, Http09, Http3]
            with pytest.raises(QuicAlpnError):
                await _ask(port, client_configuration(alpn_protocols=["nothing"]))
            assert len(made) == 4

    run_anywhere(main())


def test_no_event_is_lost_to_a_late_factory(
    run_anywhere, server_configuration, client_configuration
):
    """The protocol sees the events that a protocol created at once would see."""

    async def main():
        seen = {}
        for kind in ("late", "early"):
            create = Recorder if kind == "early" else {"test": Recorder}
            made = []

            def factory(quic, create=create, made=made, **options):
                one = create if create is Recorder else create["test"]
                made.append(one(quic, **options))
                return made[-1]

            server = await serve(
                "127.0.0.1",
                0,
                configuration=server_configuration(),
                create_protocol=factory if kind == "early" else {"test": factory},
            )
            async with server:
                async with connect(
                    "127.0.0.1", server.sockname[1], configuration=client_configuration()
                ) as client:
                    client._quic.send_stream_data(0, b"hello", end_stream=True)
                    await client.ping()
                    await made[0].wait_for(events.StreamDataReceived)
                await made[0].wait_for(events.ConnectionTerminated)
            seen[kind] = [
                type(event)
                for event in made[0].events
                if not isinstance(event, (events.ConnectionIdIssued, events.ConnectionIdRetired))
            ]
        assert seen["late"] == seen["early"]
        assert seen["late"][0] is events.ProtocolNegotiated

    run_anywhere(main())


def test_one_socket_serves_by_protocol_and_connects(
    run, server_configuration, client_configuration
):
    """A connection that the server's own endpoint starts does not count as accepted."""

    async def main():
        loop = asyncio.get_running_loop()
        transport, _ = await create_quic_endpoint(
            loop,
            FACTORIES,
            ("127.0.0.1", 0),
            configuration=server_configuration(alpn_protocols=None),
        )
        port = transport.get_extra_info("sockname")[1]
        configuration = client_configuration(alpn_protocols=["h3"], server_name="localhost")
        client = transport.connect(Recorder, ("127.0.0.1", port), configuration=configuration)
        await client.wait_connected()
        client._quic.send_stream_data(0, b"who?", end_stream=True)
        await client.wait_for(events.StreamDataReceived, end_stream=True)
        assert client.data[0] == b"h3"
        transport.close()
        await transport.wait_closed()

    run(main())


def test_factories_and_alpn_protocols_must_agree(run, server_configuration):
    async def main():
        async def serving_with(create_protocol, alpn):
            configuration = server_configuration(alpn_protocols=alpn)
            server = await serve(
                "127.0.0.1", 0, configuration=configuration, create_protocol=create_protocol
            )
            server.close()
            await server.wait_closed()

        with pytest.raises(ValueError, match="'extra' is not among alpn_protocols"):
            await serving_with({**FACTORIES, "extra": Http3}, ["h3", "hq-interop"])
        with pytest.raises(ValueError, match="nothing is mapped to 'h2'"):
            await serving_with(FACTORIES, ["h3", "h2", "hq-interop"])
        with pytest.raises(ValueError, match="no application protocol"):
            await serving_with({}, None)
        await serving_with(FACTORIES, ["hq-interop", "h3"])

    run(main())


# Limits -------------------------------------------------------------------------------------------


def test_connections_beyond_the_limits_are_refused(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        of_all = ServerLimits(max_connections=2, max_connections_per_address=None)
        for limits, reason in [
            (of_all, "refused_for_connections"),
            (ServerLimits(max_connections_per_address=2), "refused_for_address"),
            # The default limit for one address: a quarter of them.
            (ServerLimits(max_connections=8), "refused_for_address"),
        ]:
            server = await serve(
                "127.0.0.1", 0, configuration=server_configuration(), limits=limits
            )
            port = server.sockname[1]

            def client(port=port):
                return connect("127.0.0.1", port, configuration=client_configuration())

            async with server, client():
                async with client():
                    with pytest.raises(QuicConnectionRefusedError):
                        async with client():
                            raise AssertionError("not refused")
                    assert server.stats()["incoming_refused"] == server.stats()[reason] == 1
                await eventually(lambda server=server: server.stats()["connections"] == 1)
                async with client():
                    pass

    run_anywhere(main())


def test_more_clients_than_the_accept_rate_come_in_later(
    run, server_configuration, client_configuration
):
    async def main():
        limits = ServerLimits(accept_rate=2, accept_burst=1)
        async with serving(server_configuration(), limits=limits) as (port, protocols):
            configuration = client_configuration(initial_rtt=0.05)

            async def one():
                async with connect("127.0.0.1", port, configuration=configuration) as client:
                    await client.ping()

            begin = asyncio.get_running_loop().time()
            await asyncio.gather(*(one() for _ in range(3)))
            assert asyncio.get_running_loop().time() - begin >= 0.9
            stats = protocols[0]._transport.stats()
            assert stats["ignored_for_rate"] >= 1
            assert stats["connections_accepted"] == 3

    run(main())


def test_a_flood_from_invented_addresses_excludes_no_real_client(
    run, server_configuration, client_configuration
):
    """Thousands of first packets, each from another client that sends nothing more."""

    async def main():
        server = await serve(
            "127.0.0.1",
            0,
            configuration=server_configuration(),
            create_protocol=Echo,
            limits=ServerLimits(max_handshakes=40),
        )
        port = server.sockname[1]
        configuration = client_configuration(server_name="localhost")
        flooder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        most = 0

        async def flood(count):
            nonlocal most
            for number in range(count):
                ghost = QuicConnection(configuration=configuration)
                ghost.connect(("127.0.0.1", port), now=0.0)
                flooder.sendto(ghost.datagrams_to_send(now=0.0)[0][0], ("127.0.0.1", port))
                if number % 5 == 4:
                    await asyncio.sleep(0.001)
                    most = max(most, server.stats()["connections"])

        with flooder:
            flooder.setblocking(False)
            await flood(100)
            background = asyncio.ensure_future(flood(100_000))
            for number in range(5):
                await _talk(port, client_configuration(), b"%d" % number)
            assert not background.done()
            background.cancel()
        stats = server.stats()
        assert stats["connections_accepted"] <= 40 + 5
        assert most <= 40
        # All other packets were answered with a Retry, and only the five clients returned.
        assert stats["incoming_retried"] > 80
        assert stats["incoming_refused"] == 0
        server.transport.close()
        await server.wait_closed()

    run(main())


async def _talk(port, configuration, message):
    async with connect("127.0.0.1", port, configuration=configuration) as client:
        reader, writer = await client.create_stream()
        writer.write(message)
        writer.write_eof()
        assert await reader.read() == message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_connections", 0),
        ("max_connections_per_address", 0),
        ("max_handshakes", -1),
        ("accept_burst", 0),
        ("accept_rate", 0),
        ("accept_rate", float("inf")),
        ("handshake_timeout", float("nan")),
        ("retry_handshakes", -1),
        ("memory", 2e9),
        ("memory", "2 GB"),
        ("max_connections", 1e3),
        ("max_connections", None),
        ("max_handshakes", float("nan")),
        ("accept_burst", 1.5),
        ("accept_rate", "10"),
        ("handshake_timeout", None),
        ("handshake_timeout", 10**400),
    ],
)
def test_impossible_limits_name_the_field(field, value):
    with pytest.raises(QuicConfigurationError) as caught:
        ServerLimits(**{field: value})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("max_connections", 1 << 32, "must be 1 to 4294967295, not 4294967296"),
        ("max_connections_per_address", 1 << 40, "must be 1 to 4294967295, not 1099511627776"),
        ("retry_handshakes", 1 << 32, "must be 0 to 4294967295, not 4294967296"),
        (
            "memory",
            1 << 62,
            "must be 4194304 to 4611686018427387903 bytes, not 4611686018427387904",
        ),
        ("memory", 2e9, "must be a whole number, not 2000000000.0"),
    ],
)
def test_a_limit_that_is_too_large_is_refused_with_its_bounds(field, value, said):
    with pytest.raises(QuicConfigurationError) as caught:
        ServerLimits(**{field: value})
    assert str(caught.value) == f"{field}: {said}"


def test_retry_always_never_and_under_load(run, server_configuration, client_configuration):
    async def main():
        for retry, limits, expected in [
            (True, None, 1),
            (False, ServerLimits(retry_handshakes=0), 0),
            ("auto", None, 0),
            ("auto", ServerLimits(retry_handshakes=0), 1),
        ]:
            async with serving(server_configuration(), retry=retry, limits=limits) as (
                port,
                protocols,
            ):
                async with connect(
                    "127.0.0.1", port, configuration=client_configuration()
                ) as client:
                    await client.ping()
                assert protocols[0]._transport.stats()["incoming_retried"] == expected
        with pytest.raises(ValueError, match="retry"):
            await serve("127.0.0.1", 0, configuration=server_configuration(), retry="sometimes")

    run(main())


# Keys ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("same", [True, False], ids=["same-key", "other-key"])
def test_a_restarted_server_resets_old_connections_at_once(
    run, server_configuration, client_configuration, same
):
    async def main():
        loop = asyncio.get_running_loop()
        configuration = server_configuration(stateless_reset_key=b"k" * 32)
        first, _ = await create_quic_endpoint(
            loop, Echo, ("127.0.0.1", 0), configuration=configuration
        )
        port = first.get_extra_info("sockname")[1]
        path = await Path.start(("127.0.0.1", port))
        async with connect(
            "127.0.0.1",
            path.port,
            configuration=client_configuration(idle_timeout=30.0 if same else 2.0),
            create_protocol=Recorder,
        ) as client:
            await client.ping()
            # The client receives nothing of the first server's end.
            path.server = ("127.0.0.1", 9)
            first.close()
            await first.wait_closed()
            key = b"k" * 32 if same else b"j" * 32
            configuration = server_configuration(stateless_reset_key=key)
            second, _ = await create_quic_endpoint(
                loop, Echo, ("127.0.0.1", port), configuration=configuration
            )
            path.server = ("127.0.0.1", port)
            client._quic.send_stream_data(0, b"x" * 100)
            end = await client.wait_for(events.ConnectionTerminated)
            assert end.kind == ("stateless_reset" if same else "idle_timeout")
            assert second.stats()["stateless_resets_sent"] > 0
        second.close()
        await second.wait_closed()
        path.transport.close()

    run(main())


class Path(asyncio.DatagramProtocol):
    """Forwards between one client and the current server, which a test may replace."""

    @classmethod
    async def start(cls, server):
        loop = asyncio.get_running_loop()
        transport, self = await loop.create_datagram_endpoint(cls, local_addr=("127.0.0.1", 0))
        self.transport, self.server, self.client = transport, server, None
        self.port = transport.get_extra_info("sockname")[1]
        return self

    def datagram_received(self, data, addr):
        if addr == self.server:
            self.transport.sendto(data, self.client)
        elif self.client in (None, addr):
            self.client = addr
            self.transport.sendto(data, self.server)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stateless_reset_key", b"short"),
        ("token_key", b"short"),
        ("token_key", [b"k" * 32, b"short"]),
    ],
)
def test_impossible_keys_name_the_field(run, server_configuration, field, value):
    async def main():
        with pytest.raises(QuicConfigurationError) as caught:
            await serve("127.0.0.1", 0, configuration=server_configuration(**{field: value}))
        assert caught.value.field == field

    run(main())


def test_several_servers_share_a_loop(run, server_configuration, client_configuration):
    async def main():
        servers = [
            await serve("127.0.0.1", 0, configuration=server_configuration(), create_protocol=kind)
            for kind in (Http3, Http09) * 10
        ]
        ports = [server.sockname[1] for server in servers]
        configuration = client_configuration()
        answers = await asyncio.gather(*(_ask(port, configuration) for port in ports))
        assert answers == [b"h3", b"hq-interop"] * 10
        assert all(server.stats()["connections_accepted"] == 1 for server in servers)
        for server in servers:
            server.close()
        for server in servers:
            await asyncio.wait_for(server.wait_closed(), 10)
        assert asyncio.get_running_loop().stats()["quic_endpoints"] <= 20

    run(main())
