"""Hosts and ports as programs give them, and the errors for invalid ones."""

from __future__ import annotations

import pytest

from tests.quic.harness import Recorder, serving
from uringcore import quic
from uringcore.asyncio import connect, serve
from uringcore.http3 import URLError
from uringcore.http3._url import parse_url
from uringcore.quic._errors import QuicConfigurationError

pytestmark = pytest.mark.either_backend


def test_a_port_may_be_text(run, server_configuration, client_configuration):
    async def main():
        async with serving(server_configuration()) as (port, _):
            for host in ("127.0.0.1", "localhost"):
                async with connect(
                    host,
                    str(port),
                    configuration=client_configuration(server_name="localhost"),
                    create_protocol=Recorder,
                ) as client:
                    await client.ping()

    run(main())


@pytest.mark.parametrize("entrance", ["asyncio", "native"])
@pytest.mark.parametrize(
    ("host", "port", "error", "name"),
    [
        ("", 443, ValueError, "host"),
        (None, 443, TypeError, "host"),
        (b"localhost", 443, TypeError, "host"),
        ("127.0.0.1", 0, ValueError, "port"),
        ("127.0.0.1", -1, ValueError, "port"),
        ("127.0.0.1", 65536, ValueError, "port"),
        ("127.0.0.1", "65536", ValueError, "port"),
        ("127.0.0.1", "", ValueError, "port"),
        ("127.0.0.1", None, TypeError, "port"),
        ("127.0.0.1", 4.5, TypeError, "port"),
        ("127.0.0.1", True, TypeError, "port"),
    ],
)
def test_an_invalid_target_is_named(run, client_configuration, entrance, host, port, error, name):
    async def main():
        with pytest.raises(error, match=f"^{name}: "):
            if entrance == "native":
                await quic.connect(host, port)
            else:
                async with connect(host, port, configuration=client_configuration()):
                    pass

    run(main())


def test_an_empty_host_listens_on_all_addresses(run, server_configuration):
    async def main():
        for host in ("", None):
            for port in (0, "0"):
                server = await serve(host, port, configuration=server_configuration())
                assert server.sockname[0] == "0.0.0.0" and server.sockname[1]
                server.close()
        for host, port, error in [
            ("", 65536, ValueError),
            ("", None, TypeError),
            (5, 0, TypeError),
        ]:
            with pytest.raises(error, match="^(host|port): "):
                await serve(host, port, configuration=server_configuration())

    run(main())


@pytest.mark.parametrize(
    ("local", "error", "name"),
    [
        ({"local_port": -1}, ValueError, "local_port"),
        ({"local_port": 65536}, ValueError, "local_port"),
        ({"local_port": None}, TypeError, "local_port"),
        ({"local_host": b"localhost"}, TypeError, "local_host"),
    ],
)
def test_a_local_address_that_cannot_be_is_named(run, client_configuration, local, error, name):
    async def main():
        with pytest.raises(error, match=f"^{name}: "):
            async with connect("127.0.0.1", 1, configuration=client_configuration(), **local):
                pass

    run(main())


def test_a_port_out_of_range_is_the_error_of_sockets_too(run, client_configuration):
    """Programs for aioquic expect it."""

    async def main():
        for port, local_port in ((65536, 0), (1, -1)):
            with pytest.raises(OverflowError):
                async with connect(
                    "127.0.0.1", port, configuration=client_configuration(), local_port=local_port
                ):
                    pass

    run(main())


@pytest.mark.parametrize("field", ["idle_timeout", "initial_rtt", "keep_alive", "ack_delay_max"])
@pytest.mark.parametrize("value", ["5", b"5", True, [], "soon"])
def test_seconds_are_numbers(client_configuration, field, value):
    with pytest.raises(QuicConfigurationError, match=f"^{field}: must be a number of seconds"):
        client_configuration(**{field: value}).setup()


def test_urls_name_ports_and_zones():
    for text in ("0", "65536", "99999", "-1", "x"):
        with pytest.raises(URLError):
            parse_url(f"https://localhost:{text}/")
    assert parse_url("https://localhost:65535/")[0].port == 65535
    for zone in ("%25eth0", "%eth0"):
        origin, _ = parse_url(f"https://[fe80::1{zone}]:4433/")
        assert origin.host == "fe80::1%eth0"
        assert origin.authority == "[fe80::1]:4433"


def test_the_zone_of_an_address_is_no_part_of_the_servers_name(run, client_configuration):
    async def main():
        with pytest.raises(OSError) as caught:
            # No server is there; a bad server name would raise a ValueError earlier.
            async with connect(
                "fe80::1%lo", 4433, configuration=client_configuration(server_name=None)
            ):
                pass
        assert not isinstance(caught.value, ValueError)

    run(main())
