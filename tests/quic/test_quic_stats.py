"""The counters of connections, endpoints and loops, and their OpenMetrics text."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.quic.harness import eventually, serving
from tests.quic.test_quic_sans_io import CLIENT, SERVER
from tests.support.simulated_link import Conditions
from tests.support.udp_proxy import ImpairmentProxy
from uringcore.asyncio import connect
from uringcore.quic import events
from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic.connection import QuicConnection
from uringcore.quic.metrics import CONTENT_TYPE, openmetrics
from uringcore.quic.stats import QuicConnectionStats

pytestmark = pytest.mark.either_backend

SO_TIMESTAMPNS = 35  # Linux's value, on every architecture that Python's wheels are built for


async def _exchange(client, size=300_000):
    reader, writer = await client.create_stream()
    writer.write(bytes(size))
    writer.write_eof()
    assert len(await asyncio.wait_for(reader.read(), 50)) == size


def test_a_connections_statistics_have_all_their_keys_and_make_sense(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        async with (
            serving(server_configuration()) as (port, protocols),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            await _exchange(client)
            await client.ping()
            for stats in (client.stats(), protocols[0].stats()):
                assert stats.keys() == QuicConnectionStats.__annotations__.keys()
                assert 0 < stats["min_rtt"] <= stats["rtt"] < 1
                assert 0 < stats["latest_rtt"] < 5 and 0 <= stats["rtt_variance"] < 5
                assert stats["bytes_sent"] > 300_000 < stats["bytes_received"]
                assert stats["bytes_in_flight"] <= stats["congestion_window"] + 3000
                assert stats["cipher_suite"] == 0x1301 and stats["group"] == 0x001D
                assert stats["version"] in (1, 0x6B3343CF)
                assert 1200 <= stats["path_mtu"] <= 65507
                assert stats["datagrams_sent"] >= stats["ect0_sent"]
            last = client.stats()
        after = client.stats()
        assert after.keys() == last.keys() and after["bytes_sent"] >= last["bytes_sent"]

    run_anywhere(main())


def test_ecn_marks_are_read_and_set_by_the_kernel(run, server_configuration, client_configuration):
    async def main():
        async with (
            serving(server_configuration()) as (port, protocols),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            await _exchange(client)
            for stats in (client.stats(), protocols[0].stats()):
                assert stats["ect0_sent"] > stats["datagrams_sent"] // 2
                # The first datagram of a handshake arrives before its connection exists and is not counted.
                assert stats["ect0_received"] >= stats["datagrams_received"] - 2

    run(main())


@pytest.mark.parametrize("name", ["reno", "cubic", "bbr"])
def test_congestion_control_by_name_under_loss(
    run_anywhere, server_configuration, client_configuration, name
):
    async def main():
        fields = {"congestion_control_algorithm": name}
        conditions = Conditions(delay=0.002, loss=0.02)
        async with (
            serving(server_configuration(**fields)) as (port, _),
            ImpairmentProxy(("127.0.0.1", port), up=conditions, seed=3) as proxy,
            connect(*proxy.address, configuration=client_configuration(**fields)) as client,
        ):
            await _exchange(client)
            stats = client.stats()
            assert stats["packets_lost"] > 0 < stats["bytes_lost"]
            assert (stats["ssthresh"] is None) == (name == "bbr")

    run_anywhere(main())


def test_keys_change_by_volume_and_by_call(run, server_configuration, client_configuration):
    async def main():
        client_side = client_configuration(key_update_packets=50)
        async with (
            serving(server_configuration()) as (port, protocols),
            connect("127.0.0.1", port, configuration=client_side) as client,
        ):
            # A key update waits until the previous one is confirmed, which takes time.
            while client.stats()["key_updates"] < 2:
                await _exchange(client)
            changes = client.stats()["key_updates"]
            await eventually(lambda: protocols[0].stats()["key_updates"] >= changes - 1)
            before = protocols[0].stats()["key_updates"]

            def asked():
                protocols[0].request_key_update()
                return protocols[0].stats()["key_updates"] > before

            # A key update needs the previous one to be confirmed.
            await eventually(asked)
            await _exchange(client)

    run(main())


def test_the_counters_of_a_request_to_acknowledge_less_often(
    server_configuration, client_configuration
):
    """Delivers packet by packet, so that the machine's speed does not decide how many arrive together."""

    def answers(packets):
        client = QuicConnection(
            configuration=client_configuration(
                server_name="localhost", ack_packets_max=packets, ack_delay_max=0.02
            )
        )
        server = QuicConnection(configuration=server_configuration(max_stream_data=8 << 20))
        now, sent, got = 100.0, 0, 0
        client.connect(SERVER, now=now)
        client.send_stream_data(0, bytes(1 << 20), end_stream=True)
        for _ in range(20_000):
            now += 0.0001
            for data, _ in client.datagrams_to_send(now=now):
                server.receive_datagram(data, CLIENT, now=now)
                for answer, _ in server.datagrams_to_send(now=now):
                    sent += 1
                    client.receive_datagram(answer, SERVER, now=now)
            for side in (client, server):
                due = side.get_timer()
                if due is not None and due <= now:
                    side.handle_timer(now=now)
            for answer, _ in server.datagrams_to_send(now=now):
                sent += 1
                client.receive_datagram(answer, SERVER, now=now)
            while (event := server.next_event()) is not None:
                if isinstance(event, events.StreamDataReceived):
                    got += len(event.data)
                    if event.end_stream:
                        assert got == 1 << 20
                        return sent
        raise AssertionError(f"{got} bytes have arrived")

    asked = answers(30)
    assert asked < answers(None) / 3


def test_wrong_transport_settings_name_the_field(server_configuration, client_configuration):
    for fields in (
        {"key_update_packets": 0},
        {"ack_packets_max": 1 << 62},
        {"ack_packets_max": 1, "ack_reordering": 1 << 62},
        {"ack_packets_max": 1, "ack_delay_max": -1.0},
        {"congestion_control_algorithm": "vegas"},
        {"initial_rtt": 0.0},
    ):
        for make in (server_configuration, client_configuration):
            with pytest.raises(QuicConfigurationError) as caught:
                make(**fields).setup()
            assert caught.value.field == list(fields)[-1]


def test_a_loop_counts_what_its_endpoints_did(run, server_configuration, client_configuration):
    async def main():
        loop = asyncio.get_running_loop()
        async with serving(server_configuration()) as (port, _):
            for count in range(1, 4):
                async with connect(
                    "127.0.0.1", port, configuration=client_configuration()
                ) as client:
                    await _exchange(client)
                # The client's endpoint is closed, and its counts remain.
                stats = loop.stats()
                assert stats["quic_connections_opened"] == count
                assert stats["quic_connections_accepted"] == count
                assert stats["quic_bytes_sent"] > count * 600_000
                assert stats["quic_bytes_received"] > count * 600_000
        await eventually(lambda: loop.stats()["quic_endpoints"] == 0)
        assert loop.stats()["quic_connections_closed"] == 6
        assert loop.stats()["quic_bytes_sent"] >= stats["quic_bytes_sent"]

    run(main())


def _parsed(text):
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_openmetrics_text_is_read_by_prometheus(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        async with (
            serving(server_configuration()) as (port, protocols),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            await _exchange(client)
            odd = 'a "name"\nwith \\ all'
            endpoints = {"server": protocols[0]._transport, odd: client._transport}
            text = openmetrics(endpoints, {"up": client, odd: protocols[0]})
            families = _parsed(text)
            payload = families["uringcore_quic_endpoint_payload_bytes"]
            assert (payload.type, payload.unit) == ("counter", "bytes")
            values = {
                (sample.labels["endpoint"], sample.labels["direction"]): sample.value
                for sample in payload.samples
            }
            assert {endpoint for endpoint, _ in values} == {"server", odd}
            assert all(value > 300_000 for value in values.values())
            rtt = families["uringcore_quic_connection_rtt_seconds"]
            assert rtt.type == "gauge" and len(rtt.samples) == 2
            assert rtt.samples[0].value == pytest.approx(client.stats()["rtt"], rel=0.9)
            assert text.endswith("# EOF\n") and text.count("# EOF") == 1
            assert all(name.startswith("uringcore_quic_") for name in families)
            assert _parsed(openmetrics({"one": client._transport}, prefix="mine"))
            assert openmetrics() == "# EOF\n"
            assert "openmetrics-text" in CONTENT_TYPE
            for prefix in ("", "1a", "a-b", "ä"):
                with pytest.raises(ValueError, match="prefix"):
                    openmetrics(prefix=prefix)

    run_anywhere(main())


def test_the_first_packet_is_repeated_after_three_initial_rtts(run, client_configuration):
    async def arrival(sock):
        """Returns the kernel's receive time of the next datagram, however late this program reads it."""
        while True:
            try:
                _, ((_, _, stamp),), _, _ = sock.recvmsg(2048, 64)
            except BlockingIOError:
                await asyncio.sleep(0.01)
                continue
            seconds, nanoseconds = struct.unpack("@ll", stamp)
            return seconds + nanoseconds / 1e9

    async def main():
        gaps = {}
        for initial_rtt in (0.05, 0.4):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:
                nobody.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
                nobody.bind(("127.0.0.1", 0))
                nobody.setblocking(False)
                port = nobody.getsockname()[1]
                configuration = client_configuration(initial_rtt=initial_rtt)
                async with connect(
                    "127.0.0.1", port, configuration=configuration, wait_connected=False
                ):
                    first = await arrival(nobody)
                    gaps[initial_rtt] = await arrival(nobody) - first
        # A busy machine delays the second packet as well as the first.
        assert gaps[0.4] > 0.9
        assert gaps[0.05] < gaps[0.4]

    run(main())
