"""HTTP datagrams (RFC 9297) of an application, over real sockets. `src/http` tests the rules."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

import uringcore
from tests.http import http3_bytes
from tests.http.raw_client import connect_raw, needs_recent_aioquic
from tests.server.harness import command
from uringcore.h3.connection import ErrorCode

pytestmark = [pytest.mark.either_backend, needs_recent_aioquic]

CAPSULE_PROTOCOL = (b"capsule-protocol", b"?1")
OPTIONS = ("--http3-connect", "connect-udp", "--http3-connect", "chat")


def asking(path, protocol="connect-udp", *more):
    return http3_bytes.request(path, CAPSULE_PROTOCOL, *more, method="CONNECT", protocol=protocol)


def capsule(kind, value):
    return http3_bytes.varints(kind, len(value), value)


@contextlib.asynccontextmanager
async def connected(server, *, frames=True):
    """A client that supports HTTP datagrams or, without `frames`, capsules alone."""
    size = 65_535 if frames else None
    async with connect_raw(server, max_datagram_frame_size=size) as raw:
        raw.control({http3_bytes.H3_DATAGRAM: 1} if frames else {})
        settings = await raw.wait_settings()
        assert (
            settings[http3_bytes.H3_DATAGRAM] == settings[http3_bytes.ENABLE_CONNECT_PROTOCOL] == 1
        )
        yield raw


def run(main):
    return uringcore.run(asyncio.wait_for(main, 60))


def test_datagrams_reach_the_application_and_the_client(start_features):
    server = start_features(*OPTIONS)

    async def main():
        async with connected(server) as raw:
            first, second = (raw.bidi(asking("/datagrams/x")) for _ in range(2))
            for stream_id in (first, second):
                await raw.wait(lambda stream_id=stream_id: raw.answer(stream_id).status == 200)
            raw.datagram(second, b"to the second")
            raw.datagram(first, b"")
            raw.datagram(first, b"scope")
            await raw.wait(lambda: len(raw.datagrams) == 3)
            quarter = http3_bytes.varint(second // 4)
            assert sorted(raw.datagrams)[2] == quarter + b"13:to the second"
            assert sorted(raw.datagrams)[0] == b"\x000:"
            shown = json.loads(sorted(raw.datagrams)[1][1:])
            assert shown["protocol"] == "connect-udp"
            assert 1000 < shown["max_size"] < 1500
            raw.datagram(first, b"last")
            assert (await raw.wait_over(first)).ended
            # The client's end of the stream ends it too.
            raw.write(second, b"", fin=True)
            assert (await raw.wait_over(second)).ended

    run(main())
    assert server.stop() == 0
    assert "Traceback" not in server.log()


def test_a_client_without_datagrams_sends_and_gets_capsules(start_features):
    server = start_features(*OPTIONS)

    async def main():
        async with connected(server, frames=False) as raw:
            stream_id = raw.bidi(asking("/datagrams/x"))
            content = capsule(0, b"one") + capsule(0x3F7, b"unknown") + capsule(0, b"scope")
            for byte in content:
                raw.write(stream_id, http3_bytes.frame(http3_bytes.DATA, bytes([byte])))
            raw.write(stream_id, http3_bytes.frame(http3_bytes.DATA, capsule(0, b"last")))
            answer = await raw.wait_answer(stream_id)
            shown = json.dumps({"protocol": "connect-udp", "max_size": None}).encode()
            assert answer.body == capsule(0, b"3:one") + capsule(0, shown)

    run(main())


def test_unread_datagrams_are_dropped_oldest_first(start_features):
    server = start_features(*OPTIONS)
    sent = 2000

    async def main():
        async with connected(server) as raw:
            stream_id = raw.bidi(asking("/many-datagrams/20000"))
            await raw.wait(lambda: raw.answer(stream_id).status == 200)
            for number in range(sent):
                raw.datagram(stream_id, b"%04d" % number * 250)
                if number % 20 == 0:
                    await asyncio.sleep(0)
            # Datagrams sent meanwhile were lost or have arrived: the application has continued.
            asked = raw.bidi(http3_bytes.request("/release/20000"), fin=True)
            assert (await raw.wait_answer(asked)).status == 200
            while not any(len(data) < 20 for data in raw.datagrams):
                raw.datagram(stream_id, b"last")
                await asyncio.sleep(0.05)
            (kept,) = {int(data[1:]) for data in raw.datagrams if len(data) < 20}
            assert kept < 128 << 10

    run(main())


def test_other_protocols_and_requests_have_none(start_features):
    server = start_features(*OPTIONS)

    async def main():
        async with connected(server) as raw:
            refused = raw.bidi(asking("/datagrams/x", "connect-ip"))
            assert (await raw.wait_answer(refused)).status == 501
            plain = raw.request("/plain-datagram")
            assert b"http.datagram.send" in (await raw.wait_answer(plain)).body
            held = raw.bidi(http3_bytes.request("/method/held", method="POST"))
            while not raw.incoming(held).over:
                # A datagram that arrives before its request is dropped.
                raw.datagram(held, b"what for?")
                await asyncio.sleep(0.05)
            assert raw.incoming(held).codes == {ErrorCode.H3_DATAGRAM_ERROR}

    run(main())


@pytest.mark.parametrize("given", ["--no-http3-webtransport", "--interface=wsgi"])
def test_nothing_is_announced_by_default(start_features, given):
    """A WSGI application supports no sessions, and no extended CONNECT at all."""
    server = start_features(given)

    async def main():
        async with connect_raw(server, max_datagram_frame_size=65_535) as raw:
            raw.control()
            assert http3_bytes.H3_DATAGRAM not in await raw.wait_settings()
            assert raw.quic._remote_max_datagram_frame_size is None
            stream_id = raw.bidi(asking("/datagrams/x"))
            if given == "--interface=wsgi":
                # Malformed, since SETTINGS_ENABLE_CONNECT_PROTOCOL was not sent (RFC 8441 section 3).
                await raw.wait(lambda: raw.incoming(stream_id).over)
                assert raw.incoming(stream_id).codes == {ErrorCode.H3_MESSAGE_ERROR}
            else:
                assert (await raw.wait_answer(stream_id)).status == 501

    run(main())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("connect udp", "'connect udp' is not a protocol name"),
        ("websocket", "websocket is served without"),
        ("webtransport-h3", "webtransport-h3 is not available through this option"),
        ("connect-ip", "connect-ip is not supported: ASGI has no message for its capsules"),
    ],
)
def test_invalid_connect_protocols_are_refused(given, said):
    done = command("tests.http.features.application:app", "--dev-cert", "--http3-connect", given)
    assert done.returncode != 0
    assert f"--http3-connect: {said}" in done.stderr
