"""A close, a reset or a stop with an invalid argument raises and changes nothing."""

from __future__ import annotations

import asyncio

import pytest

from tests.quic.native.connection_pairs import connecting, listening, pair, stream_pair
from tests.support.close_argument_checks import all_codes_refused, all_refused
from uringcore import quic

LARGEST = (1 << 62) - 1


def test_a_listener_whose_close_was_refused_is_open_and_ends(run_anywhere, pki):
    """Regression: the close was marked as begun before its arguments were checked, and the block never
    ended.
    """

    async def main():
        async with listening(pki) as listener:
            all_refused(listener.close, 62)
            assert not listener.is_closed
            async with connecting(pki, listener) as one, await listener.accept() as other:
                all_refused(listener.close, 62)
                await one.ping()
                listener.close(LARGEST, "enough")
                with pytest.raises(quic.ConnectionClosedError) as caught:
                    await one.ping()
                assert (caught.value.code, caught.value.reason) == (LARGEST, "enough")
                await other.wait_closed()
            all_refused(listener.close, 62)
        assert listener.is_closed

    run_anywhere(main())


def test_a_connection_whose_close_was_refused_is_open(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, other):
            for end in (one, other):
                all_refused(end.close, 62)
                assert not end.is_closed
            await one.ping()
            one.close(LARGEST, "enough")
            with pytest.raises(quic.ConnectionClosedError) as caught:
                await other.accept_stream()
            assert caught.value.code == LARGEST
            all_refused(one.close, 62)

    run_anywhere(main())


def test_a_stream_whose_reset_or_stop_was_refused_goes_on(run_anywhere, pki):
    async def main():
        async with stream_pair(pki) as (here, there):
            all_codes_refused(here.reset, 62)
            all_codes_refused(there.stop, 62)
            await here.send(b"more")
            assert await there.readexactly(4) == b"more"
            there.stop(LARGEST)
            with pytest.raises(quic.StreamStoppedError) as caught:
                while True:
                    await here.send(b"x")
                    await asyncio.sleep(0)
            assert caught.value.code == LARGEST
            # Finished streams refuse invalid codes too.
            all_codes_refused(here.reset, 62)
            all_codes_refused(there.stop, 62)
            there.reset(LARGEST)
            all_codes_refused(there.reset, 62)
            with pytest.raises(quic.StreamResetError) as caught:
                await here.read()
            assert caught.value.code == LARGEST

    run_anywhere(main())
