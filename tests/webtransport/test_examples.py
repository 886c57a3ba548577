"""The examples, run as their users run them."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pytest

import uringcore
from examples import media_relay
from tests.support.child_processes import bound
from uringcore.quic import StreamResetError
from uringcore.webtransport import SessionClosedError, connect_webtransport

EXAMPLES = Path(__file__).parents[2] / "examples"


class Room(NamedTuple):
    page: str
    text: str
    url: str


@contextlib.contextmanager
def chat_room():
    """Yields the page's URL, its text and the session's URL."""
    command = [sys.executable, EXAMPLES / "webtransport_chat.py", "--port", "0", "--page-port", "0"]
    process = subprocess.Popen(
        bound(command),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        page = process.stdout.readline().strip()
        assert page.startswith("http://127.0.0.1:"), page + process.stderr.read()
        with urllib.request.urlopen(page, timeout=30) as answer:
            text = answer.read().decode()
        port = re.search(r"hostname}:(\d+)/chat", text)[1]
        yield Room(page, text, f"https://127.0.0.1:{port}/chat")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert "Traceback" not in said, said
    finally:
        process.kill()
        process.communicate()


class Guest:
    def __init__(self, session, stream):
        self.session, self.stream = session, stream

    @classmethod
    async def enter(cls, session, name):
        guest = cls(session, await session.open_stream())
        await guest.say(name=name)
        return guest

    async def say(self, **what):
        await self.stream.send(json.dumps(what).encode() + b"\n")

    async def hear(self):
        heard = json.loads(await self.stream.readuntil())
        return heard["name"], heard["text"]


def test_a_chat_of_two():
    async def main(url, hashes):
        options = {"server_certificate_hashes": hashes}
        async with connect_webtransport(url, **options) as first:
            ada = await Guest.enter(first, "Ada")
            assert await ada.hear() == ("room", "Ada is here")
            async with connect_webtransport(url, **options) as second:
                bob = await Guest.enter(second, "Bob")
                assert await ada.hear() == await bob.hear() == ("room", "Bob is here")
                await ada.say(text="Hello <b>")
                assert await ada.hear() == await bob.hear() == ("Ada", "Hello <b>")
                second.send_datagram(b"Bob")
                assert await first.receive_datagram() == b"Bob"
            assert await ada.hear() == ("room", "Bob has left")
            await ada.stream.send(b"no JSON\n")
            await first.wait_closed()
            assert first.close_code == 1
        async with connect_webtransport(url, **options) as third:
            stream = await third.open_stream()
            await stream.send(b"[" * 3000 + b"\n")
            await third.wait_closed()
            assert third.close_code == 1

    with chat_room() as room:
        numbers = json.loads(re.search(r"Uint8Array.from\((\[.*?\])\)", room.text)[1])
        uringcore.run(asyncio.wait_for(main(room.url, [bytes(numbers)]), 60))


def test_a_leaving_guest_blocks_no_message_to_others():
    spec = importlib.util.spec_from_file_location("chat", EXAMPLES / "webtransport_chat.py")
    spec.loader.exec_module(chat := importlib.util.module_from_spec(spec))

    class Session:
        """A session that receives the datagrams in ``says``, and whose sends fail with ``error``."""

        def __init__(self, says=(), error=None):
            self.says, self.error, self.heard = says, error, []

        async def datagrams(self):
            for data in self.says:
                yield data

        def send_datagram(self, data):
            if self.error is not None:
                raise self.error
            self.heard.append(data)

    async def main():
        room, there = chat.Room(), Session()
        speaker = chat.Guest(Session(says=[b"1", b"2"]))
        leaving = [SessionClosedError(), ValueError("too long")]
        room.guests = {speaker, chat.Guest(there)}
        room.guests |= {chat.Guest(Session(error=error)) for error in leaving}
        await room.relay(speaker)
        assert there.heard == [b"1", b"2"]

    uringcore.run(main())


def test_a_relay_for_a_few():
    done = subprocess.run(
        [sys.executable, EXAMPLES / "media_relay.py", "--subscribers", "4", "--seconds", "2"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert "4 groups to 4 subscribers" in done.stdout, done.stdout
    whole = int(re.search(r"(\d+) arrived whole", done.stdout)[1])
    assert whole > 0, done.stdout


@pytest.mark.parametrize("code", [7, None])
def test_a_group_that_its_publisher_gives_up_is_reset_for_its_subscribers(certificate, code):
    async def main():
        relay, options = media_relay.Relay(), {"server_certificate_hashes": [certificate.sha256]}
        identity = (certificate.certificate_pem, certificate.key_pem)
        async with media_relay.serve(0, identity, relay) as server:
            url = f"https://localhost:{server.address[1]}"
            async with connect_webtransport(f"{url}/watch", **options) as watching:
                head = media_relay.HEAD.pack(media_relay.PICTURES, 3)
                while not relay.subscribers:
                    await asyncio.sleep(0.01)
                async with connect_webtransport(f"{url}/publish", **options) as publishing:
                    sending = await publishing.open_uni_stream()
                    await sending.send(head + b"picture")
                    stream = await anext(aiter(watching.uni_streams()))
                    assert await stream.readexactly(len(head) + 7) == head + b"picture"
                    if code is not None:
                        sending.reset(code)
                        with pytest.raises(StreamResetError) as caught:
                            await stream.read()
                if code is None:
                    # The publisher has left in the middle of the group.
                    with pytest.raises(StreamResetError) as caught:
                        await stream.read()
                assert caught.value.code == (code or 0)

    uringcore.run(asyncio.wait_for(main(), 60))
