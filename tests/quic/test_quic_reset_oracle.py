"""Only a connection's own endpoint has the tokens that end it (RFC 9000 section 21.11)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from unittest import mock

import pytest

from tests.support.reset_oracle import asked_for, victim
from uringcore._uringcore import steer_by_connection_id
from uringcore.asyncio import QuicConnectionProtocol, serve
from uringcore.quic import _udp_sockets
from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic._open_endpoint import create_quic_endpoint
from uringcore.quic.workers import PortGroup

KEY = b"k" * 32
PORTS_TRIED = 20


def bound(address, *, only_v6=True, reuse=False):
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only_v6)
    if reuse:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


@contextlib.asynccontextmanager
async def endpoint(configuration, sock):
    loop = asyncio.get_running_loop()
    transport, _ = await create_quic_endpoint(
        loop, QuicConnectionProtocol, configuration=configuration, sock=sock
    )
    try:
        yield transport
    finally:
        transport.close()
        await transport.wait_closed()


def unreadable_tables():
    """The kernel's tables of sockets cannot be opened."""
    failure = OSError(errno.EMFILE, "no descriptor")
    return mock.patch.object(_udp_sockets, "open", side_effect=failure, create=True)


@pytest.fixture
def ipv6():
    """Skips the test on a machine without ::1."""
    try:
        bound(("::1", 0)).close()
    except OSError as exc:
        pytest.skip(f"::1 cannot be bound here: {exc.strerror}")


def both_families():
    """Returns two sockets on one port, one of each address family."""
    for _ in range(PORTS_TRIED):
        four = bound(("127.0.0.1", 0))
        try:
            return four, bound(("::1", four.getsockname()[1]))
        except OSError as exc:
            four.close()
            if exc.errno != errno.EADDRINUSE:
                raise
    raise AssertionError(f"::1 has other sockets on each of {PORTS_TRIED} ports")


async def asked(tokens, sock_address):
    """Runs `asked_for` in a thread, beside the loop that serves."""
    family = socket.AF_INET6 if ":" in sock_address[0] else socket.AF_INET
    return await asyncio.to_thread(asked_for, tokens, sock_address, family)


@pytest.mark.parametrize("named", ["127.0.0.1", "::1"])
@pytest.mark.usefixtures("ipv6")
def test_endpoints_of_both_families_with_one_key(run_anywhere, server_configuration, named):
    async def main():
        four, six = both_families()
        addresses = {"127.0.0.1": four.getsockname()[:2], "::1": six.getsockname()[:2]}
        async with (
            endpoint(server_configuration(stateless_reset_key=KEY), four),
            endpoint(server_configuration(stateless_reset_key=KEY), six),
            victim(*addresses.pop(named), "test") as alive,
        ):
            (other,) = addresses.values()
            tokens = alive.tokens()
            assert await asked(tokens, other) == len(tokens), "it answers, with tokens of its own"
            await alive.protocol.ping()

    run_anywhere(main())


@pytest.mark.parametrize(
    ("host", "same_port"), [("127.0.0.2", True), ("127.0.0.1", False)], ids=["address", "port"]
)
def test_an_endpoint_on_another_address_or_port(run, server_configuration, host, same_port):
    async def main():
        first = bound(("127.0.0.1", 0))
        address = first.getsockname()
        second = bound((host, address[1] if same_port else 0))
        other = second.getsockname()
        async with (
            endpoint(server_configuration(stateless_reset_key=KEY), first),
            endpoint(server_configuration(stateless_reset_key=KEY), second),
            victim(*address, "test") as alive,
        ):
            tokens = alive.tokens()
            assert await asked(tokens, other) == len(tokens)
            await alive.protocol.ping()

    run(main())


def test_one_address_beside_all_addresses(run, server_configuration):
    """The kernel prefers the exact address, so the newer socket receives packets of open connections."""

    async def main():
        wide = bound(("0.0.0.0", 0), reuse=True)
        port = wide.getsockname()[1]
        with wide.dup() as again:
            await one_beside(again, wide, port)

    async def one_beside(again, wide, port):
        async with (
            endpoint(server_configuration(stateless_reset_key=KEY), wide),
            victim("127.0.0.1", port, "test") as alive,
        ):
            tokens = alive.tokens()
            # The endpoint has switched SO_REUSEADDR off; another program may switch it on again.
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            exact = bound(("127.0.0.1", port), reuse=True)
            async with endpoint(server_configuration(stateless_reset_key=KEY), exact):
                assert await asked(tokens, ("127.0.0.1", port)) == len(tokens)
            await alive.protocol.ping()

    run(main())


@pytest.mark.usefixtures("ipv6")
def test_no_other_socket_takes_the_address_of_an_endpoint_with_a_key(
    run_anywhere, server_configuration
):
    """With SO_REUSEADDR on both, packets go to the newer socket, whose endpoint would use the same tokens."""

    async def main():
        sock = bound(("127.0.0.1", 0), reuse=True)
        address = sock.getsockname()
        async with (
            endpoint(server_configuration(stateless_reset_key=KEY), sock),
            victim(*address, "test") as alive,
        ):
            with pytest.raises(OSError, match="in use"):
                bound(address, reuse=True).close()
            await alive.protocol.ping()

    run_anywhere(main())


@pytest.mark.parametrize("other", ["127.0.0.1", "::ffff:127.0.0.1"])
@pytest.mark.usefixtures("ipv6")
def test_a_key_and_a_shared_address_do_not_go_together(run_anywhere, server_configuration, other):
    """Both sockets had SO_REUSEADDR before the endpoint opened: packets go to the newer one."""

    async def main():
        configuration = server_configuration(stateless_reset_key=KEY)
        older = bound(("127.0.0.1", 0), reuse=True)
        address = older.getsockname()
        with bound((other, address[1]), only_v6=False, reuse=True) as newer, older:
            with pytest.raises(OSError, match="no descriptor"), unreadable_tables():
                async with endpoint(configuration, older.dup()):
                    pass
            for sock in (older, newer):
                with pytest.raises(QuicConfigurationError, match="SO_REUSEADDR") as caught:
                    async with endpoint(configuration, sock.dup()):
                        pass
                assert caught.value.field == "stateless_reset_key"
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 1
            # The option of one socket says nothing about another one, which was bound when both had it.
            older.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
            with pytest.raises(QuicConfigurationError, match="SO_REUSEADDR"):
                async with endpoint(configuration, older.dup()):
                    pass
            newer.close()
            async with (
                endpoint(configuration, older.dup()),
                victim(*address, "test") as alive,
            ):
                await alive.protocol.ping()

    run_anywhere(main())


def test_an_endpoint_on_both_families_answers_for_no_connection_that_it_has(
    run, server_configuration
):
    async def main():
        sock = bound(("::", 0), only_v6=False)
        port = sock.getsockname()[1]
        async with endpoint(server_configuration(stateless_reset_key=KEY), sock):
            for host in ("127.0.0.1", "::1"):
                async with victim(host, port, "test") as alive:
                    for other in ("127.0.0.1", "::1"):
                        assert await asked(alive.tokens(), (other, port)) == 0
                    await alive.protocol.ping()

    run(main())


def test_a_worker_answers_for_another_only_while_that_is_gone(run_anywhere, server_configuration):
    async def main():
        configuration = server_configuration(stateless_reset_key=KEY)
        with PortGroup("127.0.0.1", 0, workers=2) as group:
            async with contextlib.AsyncExitStack() as stack:
                for worker in group:
                    server = await serve("", 0, configuration=configuration, workers=worker)
                    await stack.enter_async_context(server)
                alive = await stack.enter_async_context(victim(*group.sockname, "test"))
                tokens = alive.tokens()
                place = next(iter(tokens))[0] % 2
                # Steers packets to the wrong worker, as another program's steering or a broadcast to all
                # sockets may.
                steer_by_connection_id(group[0].socket.fileno(), bytes([1, 0]))
                assert await asked(tokens, group.sockname) == 0
                # The worker is marked as dead, so the other one answers with the tokens of both.
                group.mark(place, serving=False)
                with pytest.raises(AssertionError, match="not its own"):
                    await asked(tokens, group.sockname)
                group.mark(place, serving=True)
                assert await asked(tokens, group.sockname) == 0
                steer_by_connection_id(group[0].socket.fileno(), bytes([1, 0]))
                assert await asked(tokens, group.sockname) == 0
                group.mark(place, serving=False)
                group.mark(place, serving=True)
                await alive.protocol.ping()

    run_anywhere(main())


@pytest.mark.parametrize("hosts", [("127.0.0.1", "::1"), ("127.0.0.1", "127.0.0.2")])
def test_groups_on_two_addresses_with_one_key(run, server_configuration, hosts, request):
    if "::1" in hosts:
        request.getfixturevalue("ipv6")

    async def main():
        with contextlib.ExitStack() as groups:
            first = groups.enter_context(PortGroup(hosts[0], 0, workers=2, stateless_reset_key=KEY))
            port = first.sockname[1]
            second = groups.enter_context(
                PortGroup(hosts[1], port, workers=2, stateless_reset_key=KEY, only_v6=True)
            )
            async with contextlib.AsyncExitStack() as stack:
                for worker in [*first, *second]:
                    server = await serve(
                        "", 0, configuration=server_configuration(), workers=worker
                    )
                    await stack.enter_async_context(server)
                alive = await stack.enter_async_context(victim(hosts[0], port, "test"))
                tokens = alive.tokens()
                assert await asked(tokens, second.sockname[:2]) == len(tokens)
                await alive.protocol.ping()

    run(main())


def test_a_key_and_a_shared_port_do_not_go_together(run_anywhere, server_configuration):
    """The kernel delivers packets of one socket's connections to the other."""

    async def main():
        configuration = server_configuration(stateless_reset_key=KEY)
        with pytest.raises(QuicConfigurationError, match="PortGroup") as caught:
            await create_quic_endpoint(
                asyncio.get_running_loop(),
                QuicConnectionProtocol,
                ("127.0.0.1", 0),
                configuration=configuration,
                reuse_port=True,
            )
        assert caught.value.field == "stateless_reset_key"
        # Without a configured key each endpoint has its own.
        transport, _ = await create_quic_endpoint(
            asyncio.get_running_loop(),
            QuicConnectionProtocol,
            ("127.0.0.1", 0),
            configuration=server_configuration(),
            reuse_port=True,
        )
        transport.close()
        await transport.wait_closed()

    run_anywhere(main())


@pytest.mark.parametrize("host", ["127.0.0.1", "::"])
def test_a_group_has_its_port_for_itself(host):
    """A second group's sockets on this port would receive packets for the workers of the first."""
    with PortGroup(host, 0, workers=2) as group:
        with pytest.raises(OSError, match="error while binding"):
            PortGroup(host, group.sockname[1], workers=2)
        if host == "::":
            with pytest.raises(OSError, match="error while binding"):
                PortGroup("127.0.0.1", group.sockname[1], workers=2)
