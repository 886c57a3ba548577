"""A close, a reset or a stop with an invalid argument raises and changes nothing."""

from __future__ import annotations

import pytest

from tests.support.close_argument_checks import (
    BAD_REASONS,
    all_codes_refused,
    all_refused,
    bad_codes,
    refusal,
)
from tests.webtransport import aiopquic_pairs
from tests.webtransport.session_pairs import serving, session_pair, stream_pair
from uringcore.quic import StreamResetError

LARGEST = (1 << 32) - 1
TOO_LONG = "ü" * 513


def test_a_session_and_its_server(run_anywhere, certificate):
    async def main():
        async with session_pair(certificate) as (one, other):
            for session in (one, other):
                all_refused(session.close, 32)
                with refusal("reason"):
                    session.close(0, TOO_LONG)
                assert not session.is_closed
            one.close(LARGEST, "ü" * 512)
            await other.wait_closed()
            assert (other.close_code, other.close_reason) == (LARGEST, "ü" * 512)
            all_refused(one.close, 32)
        async with serving(certificate) as server:
            all_refused(server.close, 32)
            with refusal("reason"):
                server.close(0, TOO_LONG)
            server.close()
            all_refused(server.close, 32)

    run_anywhere(main())


def test_streams(run_anywhere, certificate):
    async def main():
        async with stream_pair(certificate) as (here, there):
            all_codes_refused(here.reset, 32)
            all_codes_refused(there.stop, 32)
            await here.send(b"more")
            assert await there.readexactly(4) == b"more"
            here.reset(LARGEST)
            with pytest.raises(StreamResetError) as caught:
                await there.read()
            assert caught.value.code == LARGEST
            all_codes_refused(here.reset, 32)
            all_codes_refused(there.stop, 32)

    run_anywhere(main())


def test_in_aiopquics_names(run_anywhere, files):
    async def main():
        server = await aiopquic_pairs.serving(files, aiopquic_pairs.echo)
        async with aiopquic_pairs.connecting(files, server) as session:
            for bad in bad_codes(32):
                with refusal("error_code"):
                    session.close(bad)
            for bad in [*BAD_REASONS[:1], 1, "text", TOO_LONG.encode()]:
                with refusal("reason"):
                    session.close(0, bad)
            stream = await session.create_stream()
            all_codes_refused(
                lambda code: session.reset_stream(stream, code), 32, code="error_code"
            )
            all_codes_refused(lambda code: session.stop_stream(stream, code), 32, code="error_code")
            await session.send_stream_data_drained(stream, b"more", True)
            assert await aiopquic_pairs.read_all(session, stream) == b"more"
            all_codes_refused(lambda code: session.reset_stream(99, code), 32, code="error_code")
            session.close(LARGEST, b"enough")
            with refusal("error_code"):
                session.close(-1)
        with refusal("code"):
            server.close(-1)
        await server.aclose()

    run_anywhere(main())
