"""The origins of a server's ORIGIN frame (RFC 9412). Tests in `src/h3` have the frame's rules."""

from __future__ import annotations

import asyncio

import pytest

import uringcore
from tests.client.peer import until
from tests.http import wire
from tests.http.raw import connect_raw, needs_recent_aioquic
from tests.server.harness import command

ORIGIN = 0xC
APPLICATION = "tests.http.features.application:app"
OPTIONS = ("--http3-origin", "https://A.example", "--http3-origin", "https://[::1]:8443")


def run(main):
    return uringcore.run(asyncio.wait_for(main, 60))


@needs_recent_aioquic
@pytest.mark.parametrize("options", [OPTIONS, ()])
def test_the_frame_is_sent_if_it_is_asked_for(start_features, options):
    server = start_features(*options)

    async def main():
        async with connect_raw(server) as raw:
            raw.control()
            await raw.wait_settings()
            assert (await raw.wait_answer(raw.request("/scope"))).status == 200
            first = b"\x00\x11https://a.example\x00\x12https://[::1]:8443"
            assert raw.their_frames(ORIGIN) == ([first] if options else [])
            kinds = [kind for kind, _ in raw.frames(raw.their_control)]
            assert kinds[:2] == ([wire.SETTINGS, ORIGIN] if options else [wire.SETTINGS])

    run(main())


@pytest.mark.parametrize("options", [OPTIONS, ()])
def test_our_client_tells_the_origins(start_features, options):
    server = start_features(*options)

    async def main():
        async with server.connect() as client:
            response = await client.get("/scope")
            assert response.status == 200
            if options:
                await until(lambda: response.get_extra_info("origins"))
                told = {server.url, "https://a.example", "https://[::1]:8443"}
                assert response.get_extra_info("origins") == told
            assert (response.get_extra_info("origins") is None) == (not options)

    run(main())


@pytest.mark.parametrize(
    "given",
    [
        "http://a.example",
        "a.example",
        "https://a.example/",
        "https://*.example",
        "https://a.example:0",
        "https://a.example:65536",
        "https://b\u00fccher.example",
    ],
)
def test_what_is_no_origin_is_said(given):
    done = command(APPLICATION, "--dev-cert", "--http3-origin", given)
    assert done.returncode != 0
    said = f"must be https://HOST or https://HOST:PORT in ASCII, not {given!r}"
    assert f"--http3-origin: {said}" in done.stderr


def test_too_many_are_said():
    options = (f"--http3-origin=https://{'a' * 240}{n}.example" for n in range(64))
    done = command(APPLICATION, "--dev-cert", *options)
    assert done.returncode != 0
    assert "--http3-origin: more than 16384 bytes in all" in done.stderr
