"""ASGI's messages, with application and client in one process: waiting, dropping, and races."""

from __future__ import annotations

import asyncio

import pytest

from tests.quic.harness import eventually
from tests.webtransport.session_pairs import application_pair, asked_of, connecting, serving
from uringcore.quic import StreamResetError
from uringcore.webtransport import SessionClosedError

pytestmark = pytest.mark.either_backend


class Application:
    """Accepts, and receives no message until ``go`` is set. Then appends each message to ``heard`` and calls
    ``answer(message, send)``.
    """

    def __init__(self, answer=None):
        self.go = asyncio.Event()
        self.heard = []
        self._answer = answer

    async def __call__(self, scope, receive, send):
        assert (await receive())["type"] == "webtransport.connect"
        await send({"type": "webtransport.accept"})
        await self.go.wait()
        while not self.heard or self.heard[-1]["type"] != "webtransport.disconnect":
            self.heard.append(await receive())
            if self._answer is not None:
                await self._answer(self.heard[-1], send)

    def of(self, kind):
        """Returns the messages of a type."""
        return [message for message in self.heard if message["type"] == f"webtransport.{kind}"]

    def ends(self):
        """Returns the number of streams that were received to their end."""
        return sum(message["end"] for message in self.of("stream.receive"))


def is_forgotten(asgi):
    """True if nothing of the session's streams is kept, in Python or in Rust. Four tasks belong to the
    session itself.
    """
    streams = asgi._streams
    is_empty = not streams._streams and len(streams._tasks) <= 4
    return is_empty and asgi.session.stats()["streams_open"] == 0


async def settled(count):
    """Waits until ``count()`` does not change for a while."""
    before, same = None, 0
    while same < 5:
        await asyncio.sleep(0.05)
        same = same + 1 if count() == before else 0
        before = count()


def test_unreceived_streams_are_accepted_up_to_a_bound(run_anywhere, certificate):
    count = 700

    async def main():
        opened = []
        application = Application()
        limits = {"config": {"max_uni_streams": 20}}
        async with application_pair(certificate, application, server=limits) as (session, asgi):

            async def open_all():
                for _ in range(count):
                    async with session.open_uni_stream() as stream:
                        await stream.send(b"x")
                    opened.append(stream.id)

            opening = asyncio.ensure_future(open_all())
            await settled(lambda: len(opened))
            assert not opening.done()
            assert len(opened) < 500
            assert len(asgi._streams._tasks) < 500
            application.go.set()
            await opening
            await eventually(lambda: application.ends() == count)
            pieces = [m["stream"] for m in application.of("stream.receive") if m["data"]]
            assert sorted(pieces) == sorted(opened)
            await eventually(lambda: is_forgotten(asgi))

    run_anywhere(main())


def test_streams_that_nothing_comes_on_keep_no_other_from_being_taken(run_anywhere, certificate):
    async def main():
        application = Application()
        application.go.set()
        async with application_pair(certificate, application) as (session, _):
            silent = [await session.open_stream() for _ in range(50)]
            async with session.open_uni_stream() as stream:
                await stream.send(b"x")
            await eventually(lambda: len(application.of("stream.receive")) == 2)
            assert len(silent) == 50

    run_anywhere(main())


def test_stopped_streams_are_reported_and_released(run_anywhere, certificate):
    async def main():
        application = Application()
        application.go.set()
        async with application_pair(certificate, application) as (session, asgi):
            for code in range(4):
                streams = [await session.open_stream() for _ in range(50)]
                for stream in streams:
                    await stream.send(b"x")
                    await stream.finish()
                await eventually(lambda: application.ends() == 50)
                for stream in streams:
                    stream.stop(code)
                await eventually(lambda: len(application.of("stream.stopped")) == 50)
                told = {(m["stream"], m["code"]) for m in application.of("stream.stopped")}
                assert told == {(stream.id, code) for stream in streams}
                await eventually(lambda: is_forgotten(asgi))
                application.heard.clear()

    run_anywhere(main())


def test_a_stop_is_reported_while_the_client_continues_to_send(run_anywhere, certificate):
    async def main():
        application = Application()
        application.go.set()
        async with application_pair(certificate, application) as (session, _):
            stream = await session.open_stream()
            await stream.send(b"x")
            await eventually(lambda: application.heard)
            stream.stop(7)
            await eventually(lambda: application.of("stream.stopped"))
            await stream.send(b"y")
            await stream.finish()
            await eventually(lambda: application.of("stream.receive")[-1]["end"])
            data = b"".join(message["data"] for message in application.of("stream.receive"))
            assert data == b"xy"

    run_anywhere(main())


def test_an_own_stream_that_the_client_stops_is_reported_and_released(run_anywhere, certificate):
    async def opens(message, send):
        if message["type"] == "webtransport.datagram.receive":
            await send({"type": "webtransport.stream.open", "bidirectional": False})
        elif message["type"] == "webtransport.stream.opened":
            stream = message["stream"]
            await send({"type": "webtransport.stream.send", "stream": stream, "data": b"x"})

    async def main():
        application = Application(opens)
        application.go.set()
        async with application_pair(certificate, application) as (session, asgi):
            for code in range(20):
                session.send_datagram(b"open")
                stream = await session.accept_uni_stream()
                stream.stop(code)
            await eventually(lambda: len(application.of("stream.stopped")) == 20)
            assert {message["code"] for message in application.of("stream.stopped")} == {*range(20)}
            await eventually(lambda: is_forgotten(asgi))

    run_anywhere(main())


LATE = [
    {"type": "webtransport.stream.pause"},
    {"type": "webtransport.stream.resume"},
    {"type": "webtransport.stream.reset", "code": 5},
]


@pytest.mark.parametrize("late", LATE, ids=[message["type"] for message in LATE])
@pytest.mark.parametrize("ends", ["finish", "reset"])
def test_a_message_for_a_stream_that_has_just_ended_is_harmless(
    run_anywhere, certificate, late, ends
):
    async def says_it(message, send):
        if "stream" in message:
            await send({**late, "stream": message["stream"]})

    async def main():
        application = Application(says_it)
        async with application_pair(certificate, application) as (session, asgi):
            stream = await session.open_uni_stream()
            await stream.send(b"x")
            await eventually(lambda: asgi._streams._messages)
            await stream.finish() if ends == "finish" else stream.reset(3)
            await eventually(lambda: is_forgotten(asgi))
            application.go.set()
            session.send_datagram(b"still here")
            await eventually(lambda: application.of("datagram.receive"))
            assert not session.is_closed

    run_anywhere(main())


def test_an_answer_on_a_stream_that_the_client_has_stopped_is_dropped(run_anywhere, certificate):
    async def echo(message, send):
        if message["type"] == "webtransport.stream.receive":
            answer = {key: message[key] for key in ("stream", "data", "end")}
            await send({"type": "webtransport.stream.send", **answer})

    async def main():
        application = Application(echo)
        async with application_pair(certificate, application) as (session, asgi):
            stream = await session.open_stream()
            await stream.send(b"x")
            await stream.finish()
            await eventually(lambda: len(asgi._streams._messages) == 2)
            stream.stop(1)
            await eventually(lambda: is_forgotten(asgi))
            application.go.set()
            assert await _echoed(session) == b"y"
            assert not session.is_closed

    run_anywhere(main())


async def _echoed(session):
    async with session.open_stream() as stream:
        await stream.send(b"y")
        await stream.finish()
        return await stream.read()


@pytest.mark.parametrize("number", [2, 400, -4])
def test_an_unknown_stream_is_the_applications_fault(run_anywhere, certificate, number):
    async def main():
        async def resets(message, send):
            if message["type"] == "webtransport.datagram.receive":
                await send({"type": "webtransport.stream.reset", "stream": number})

        application = Application(resets)
        application.go.set()
        with pytest.raises(ValueError, match=f"no stream {number}"):
            async with application_pair(certificate, application) as (session, _):
                session.send_datagram(b"x")
                with pytest.raises(SessionClosedError) as caught:
                    await session.accept_stream()
                assert caught.value.code == 1

    run_anywhere(main())


def test_a_second_end_of_a_stream_is_the_applications_fault(run_anywhere, certificate):
    async def ends_twice(message, send):
        if message["type"] == "webtransport.stream.receive":
            end = {"type": "webtransport.stream.send", "stream": message["stream"], "end": True}
            await send(end)
            await send({**end, "data": b"more"})

    async def main():
        application = Application(ends_twice)
        application.go.set()
        with pytest.raises(RuntimeError, match="finished"):
            async with application_pair(certificate, application) as (session, _):
                stream = await session.open_stream()
                await stream.send(b"x")
                await session.wait_closed()

    run_anywhere(main())


def test_messages_to_a_client_that_left_before_the_accept_are_harmless(run_anywhere, certificate):
    heard = []

    async def greets(scope, receive, send):
        await send({"type": "webtransport.accept"})
        await send({"type": "webtransport.stream.open"})
        await send({"type": "webtransport.datagram.send", "data": b"hello"})
        heard.extend([await receive(), await receive()])

    async def main():
        async with serving(certificate) as server:
            asking = asyncio.ensure_future(connecting(certificate, server))
            asgi = await asked_of(server)
            asking.cancel()
            await eventually(lambda: asgi._link.is_closed)
            await asgi.run(greets)
        kinds = [message["type"].removeprefix("webtransport.") for message in heard]
        assert kinds == ["connect", "disconnect"]

    run_anywhere(main())


def test_a_datagram_that_the_client_does_not_take_is_an_error_of_the_application(
    run_anywhere, certificate
):
    errors = []

    async def says_too_much(scope, receive, send):
        await send({"type": "webtransport.accept"})
        with pytest.raises(ValueError) as caught:
            await send({"type": "webtransport.datagram.send", "data": b"x" * 5000})
        errors.append(str(caught.value))

    async def main():
        async with serving(certificate) as server:
            asking = asyncio.ensure_future(connecting(certificate, server))
            await (await asked_of(server)).run(says_too_much)
            await (await asking).wait_closed()
        (error,) = errors
        assert "a datagram may have at most" in error

    run_anywhere(main())


def test_data_read_before_the_end_is_delivered_before_it(run_anywhere, certificate):
    count = 60

    async def main():
        application = Application()
        async with application_pair(certificate, application) as (session, asgi):
            streams = [await session.open_stream() for _ in range(count)]
            for number, stream in enumerate(streams):
                await stream.send(b"%d" % number)
            await eventually(lambda: len(asgi._streams._messages) == count)
            session.close(3, "enough")
            await eventually(lambda: asgi._link.is_closed)
            application.go.set()
        told = [int(message["data"]) for message in application.of("stream.receive")]
        assert sorted(told) == list(range(count))
        end = {"type": "webtransport.disconnect", "code": 3, "reason": "enough"}
        assert application.heard[-1] == end

    run_anywhere(main())


def test_a_paused_stream_that_is_reset_is_let_go(run_anywhere, certificate):
    async def main():
        async def pauses(message, send):
            if message["type"] == "webtransport.stream.receive":
                await send({"type": "webtransport.stream.pause", "stream": message["stream"]})
            elif message["type"] == "webtransport.datagram.receive":
                reset = {"type": "webtransport.stream.reset", "code": 9}
                await send({**reset, "stream": application.heard[0]["stream"]})

        application = Application(pauses)
        application.go.set()
        async with application_pair(certificate, application) as (session, asgi):
            stream = await session.open_stream()
            await stream.send(b"x")
            await eventually(lambda: application.heard)
            await stream.send(b"y")
            session.send_datagram(b"reset it")
            with pytest.raises(StreamResetError) as caught:
                await stream.read()
            assert caught.value.code == 9
            await eventually(lambda: is_forgotten(asgi))

    run_anywhere(main())
