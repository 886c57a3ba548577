"""One connection of the client (`uringcore.http3.connect`), with a server that has nothing of ours in it."""

import asyncio
from importlib.metadata import version

import pytest

from tests.client.scripted_server import BODY, Peer
from uringcore.http3 import RequestNotProcessedError, RequestResetError, URLError
from uringcore.http3._unpooled_connection import connect
from uringcore.quic._errors import (
    QuicAlpnError,
    QuicCertificateError,
    QuicConnectionError,
    QuicConnectionRefusedError,
    QuicTlsError,
)

AIOQUIC = tuple(int(part) for part in version("aioquic").split(".")[:2])


def test_requests(peer, run_ours):
    async def main():
        async with connect(peer.url, cafile=peer.certificate) as client:
            empty = await client.get("/empty")
            assert (empty.status, empty.content) == (200, b"")
            assert empty.header("x-path") == "/empty"
            body = await client.get("/body")
            assert body.content == BODY
            assert body.trailers == [(b"x-trailer", b"yes")]
            echo = await client.request("POST", "/echo", content=BODY)
            assert echo.content == BODY
            many = await asyncio.gather(
                *(client.request("POST", "/echo", content=b"%d" % n * 1000) for n in range(20))
            )
            assert [answer.content for answer in many] == [b"%d" % n * 1000 for n in range(20)]

    run_ours(main())


def test_reset(peer, run_ours):
    async def main():
        async with connect(peer.url, cafile=peer.certificate) as client:
            with pytest.raises(RequestResetError, match="H3_INTERNAL_ERROR") as raised:
                await client.get("/reset")
            assert raised.value.error_code == 0x102
            assert (await client.get("/empty")).status == 200

    run_ours(main())


def test_a_rejected_request_is_retryable(peer, run_ours):
    async def main():
        async with connect(peer.url, cafile=peer.certificate) as client:
            with pytest.raises(RequestResetError, match="H3_REQUEST_REJECTED") as raised:
                await client.get("/rejected")
            assert raised.value.retryable

    run_ours(main())


def test_goaway_fails_what_is_not_processed_and_nothing_else(peer, run_ours):
    """RFC 9114 section 5.2: the server has processed stream 0 and no other."""

    async def main():
        async with connect(peer.url, cafile=peer.certificate) as client:
            first = asyncio.ensure_future(client.get("/gate"))
            await peer.wait_gated(1)
            with pytest.raises(
                RequestNotProcessedError, match="repeat it on a new connection"
            ) as raised:
                await client.get("/goaway-once")
            assert raised.value.retryable
            assert not first.done()
            with pytest.raises(RequestNotProcessedError):
                await client.get("/")
            peer.release()
            assert (await first).content == b"released"

    run_ours(main())
    assert peer.paths == [(0, "/gate"), (0, "/goaway-once")]


def test_a_connection_closed_by_the_server(peer, run_ours):
    async def main():
        async with connect(peer.url, cafile=peer.certificate) as client:
            with pytest.raises(QuicConnectionError, match="enough"):
                await client.get("/closed-once")
            with pytest.raises(QuicConnectionError, match="enough"):
                await client.get("/")

    run_ours(main())


def test_a_certificate_that_is_not_trusted(peer, run_ours):
    async def main():
        async with connect(peer.url):
            raise AssertionError("must not connect")

    with pytest.raises(QuicCertificateError):
        run_ours(main())


def test_verification_switched_off(peer, run_ours):
    async def main():
        async with connect(peer.url, verify=False) as client:
            return (await client.get("/")).status

    assert run_ours(main()) == 200


def test_no_common_protocol(certificate, run_ours):
    other = Peer(certificate, alpn="hq-interop")

    async def main():
        async with connect(other.url, cafile=other.certificate):
            raise AssertionError("must not connect")

    try:
        # Older versions of aioquic send the alert handshake_failure, which could mean anything.
        with pytest.raises(QuicAlpnError if AIOQUIC >= (1, 7) else QuicTlsError):
            run_ours(main())
    finally:
        other.stop()


def test_a_port_without_a_listener(run_ours):
    async def main():
        async with connect("https://127.0.0.1:9/"):
            raise AssertionError("must not connect")

    with pytest.raises(QuicConnectionRefusedError):
        run_ours(main())


def test_a_url_of_another_origin(peer, run_ours):
    async def main():
        async with connect(peer.url, cafile=peer.certificate) as client:
            with pytest.raises(URLError, match="is not on localhost"):
                await client.get("https://example.org/")
            assert (await client.get(peer.url + "/")).status == 200

    run_ours(main())
