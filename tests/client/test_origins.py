"""ORIGIN frames (RFC 9412, RFC 8336) in the client: it reports them, and connects as before."""

from __future__ import annotations

import pytest
from aioquic.h3.connection import encode_frame

from tests.client.peer import until
from uringcore.http3 import Client, ConnectionLostError
from uringcore.http3._origin_connection import connect

ORIGIN = 0xC


def naming(*origins):
    entries = (len(origin).to_bytes(2, "big") + origin for origin in origins)
    return encode_frame(ORIGIN, b"".join(entries))


def connected(peer):
    return connect(peer.url, cafile=peer.certificate)


def test_origins_are_told_once_there_was_a_frame(peer, run):
    async def main():
        async with connected(peer) as client:
            response = await client.get("/")
            assert response.get_extra_info("origins") is None
            assert response.get_extra_info("origins", "none") == "none"
            # A frame without names restricts the connection to its own origin.
            await client.request("POST", "/origins", content=naming())
            await until(lambda: response.get_extra_info("origins") == {peer.url})
            await client.request("POST", "/origins", content=naming(b"https://a.example", b"null"))
            await until(
                lambda: response.get_extra_info("origins") == {peer.url, "https://a.example"}
            )

    run(main())


def test_an_origin_that_421_is_the_answer_for_is_taken_out(peer, run):
    async def main():
        async with connected(peer) as client:
            named = naming(b"https://a.example", b"https://b.example")
            response = await client.request("POST", "/origins", content=named)
            await until(lambda: response.get_extra_info("origins"))
            refused = await client.get("/misdirected", headers=[("host", "a.example")])
            assert refused.status == 421
            assert response.get_extra_info("origins") == {peer.url, "https://b.example"}

    run(main())


def test_a_frame_that_ends_inside_an_origin_ends_the_connection(peer, run):
    async def main():
        async with connected(peer) as client:
            with pytest.raises(ConnectionLostError, match="ORIGIN"):
                await client.request(
                    "POST", "/origins", content=encode_frame(ORIGIN, b"\x00\x09https://")
                )
                await client.get("/silent")

    run(main())


def test_endless_origins_are_bounded(peer, run):
    async def main():
        async with connected(peer) as client:
            frames = (
                naming(*(b"https://n%d.example" % (start + n) for n in range(500)))
                for start in range(0, 20_000, 500)
            )
            long = encode_frame(ORIGIN, bytes(100_000))
            content = b"".join(frames) + long + encode_frame(0x7, b"\x3c")
            response = await client.request("POST", "/origins", content=content)
            # GOAWAY has arrived, and so has everything before it.
            await until(lambda: not client._protocol.takes_requests)
            kept = response.get_extra_info("origins")
            assert 500 < len(kept) < 1000
            assert sum(map(len, kept - {peer.url})) <= 16 * 1024

    run(main())


def test_the_pool_asks_each_origin_on_a_connection_of_its_own(peer, run):
    async def main():
        other = f"https://127.0.0.1:{peer.port}"
        async with Client(cafile=peer.certificate) as pool:
            response = await pool.request(
                "POST", peer.url + "/origins", content=naming(other.encode())
            )
            await until(lambda: response.get_extra_info("origins") == {peer.url, other})
            await pool.get(other + "/")
        assert [number for number, _ in peer.paths] == [0, 1]

    run(main())
