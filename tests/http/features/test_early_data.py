"""Requests in 0-RTT data (RFC 8470): those that run before the handshake is complete, and those
that wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket

import pytest

import uringcore
from tests.http import http3_bytes
from tests.http.features.conftest import events
from tests.http.raw_client import connect_raw, needs_recent_aioquic

pytestmark = [pytest.mark.either_backend, needs_recent_aioquic]


async def get_ticket(server):
    """A session ticket that allows 0-RTT data."""
    return (await get_credentials(server))["session_ticket"]


async def get_credentials(server):
    """Returns such a ticket, and a token that proves the client's address (RFC 9000 section 8.1.3)."""
    tickets, tokens = [], []
    handlers = {"ticket_handler": tickets.append, "token_handler": tokens.append}
    async with connect_raw(server, **handlers) as raw:
        await raw.wait(lambda: tickets and tokens)
    return {"session_ticket": tickets[0], "token": tokens[0]}


async def wait_events(server, name, count):
    async def enough():
        while len(found := await asyncio.to_thread(events, server, name)) < count:
            await asyncio.sleep(0.02)
        return found

    return await asyncio.wait_for(enough(), 40)


def hold_back(raw):
    """Holds back the server's datagrams until it is released, so that the handshake stays
    incomplete.
    """
    held, receive = [], raw.datagram_received
    raw.held = held
    raw.datagram_received = lambda data, addr: held.append((data, addr))

    def let_go():
        raw.datagram_received = receive
        for data, addr in held:
            receive(data, addr)

    return let_go


def ask_early(raw, requests):
    """Opens the requests' streams; all requests leave before the client reads any datagram of the
    server.
    """
    raw.control()
    return [raw.bidi(request, fin=True) for request in requests]


def requests(name):
    """One request that may not be repeated, then others that may."""
    content = http3_bytes.frame(http3_bytes.DATA, b"content")
    return {
        "POST": http3_bytes.request(f"/method/{name}", method="POST") + content,
        "GET with content": http3_bytes.request(f"/method/{name}") + content,
        "GET": http3_bytes.request(f"/method/{name}"),
        "OPTIONS": http3_bytes.request(f"/method/{name}", method="OPTIONS"),
        "HEAD": http3_bytes.request(f"/method/{name}", method="HEAD"),
    }


async def speak_early(server, name, while_held, *, is_proved=True):
    credentials = await get_credentials(server)
    if not is_proved:
        del credentials["token"]
    async with connect_raw(server, wait_connected=False, **credentials) as raw:
        let_go = hold_back(raw)
        asked = requests(name)
        streams = dict(zip(asked, ask_early(raw, asked.values()), strict=True))
        await while_held(raw)
        let_go()
        return {what: await raw.wait_answer(stream) for what, stream in streams.items()}


def test_safe_methods_run_early_and_others_wait_for_the_handshake(server):
    safe = [["GET", True], ["OPTIONS", True], ["HEAD", True]]

    async def while_held(raw):
        assert await wait_events(server, "waits", 3) == safe

    answers = uringcore.run(speak_early(server, "waits", while_held))
    assert {answer.status for answer in answers.values()} == {200}
    assert json.loads(answers["GET"].body) == ["GET", True, ["1"]]
    assert json.loads(answers["POST"].body) == ["POST", False, []]
    assert json.loads(answers["GET with content"].body) == ["GET", False, []]
    assert events(server, "waits") == [*safe, ["POST", False], ["GET", False]]


@pytest.mark.parametrize("refuses", [False, True])
def test_without_a_token_safe_methods_wait_for_the_handshake_too_and_are_not_refused(
    start_features, refuses
):
    """Any host could have sent them, with any source address."""
    server = start_features("--http3-early-data", "refuse" if refuses else "safe")

    async def while_held(raw):
        async def answered():
            while not raw.held:
                await asyncio.sleep(0.001)

        # The server has read the data that came with the ClientHello, which it answers.
        await asyncio.wait_for(answered(), 40)
        assert await asyncio.to_thread(events, server, "unproved") == []

    answers = uringcore.run(speak_early(server, "unproved", while_held, is_proved=False))
    for what, answer in answers.items():
        is_refused = refuses and what in ("POST", "GET with content")
        assert answer.status == (425 if is_refused else 200), what
    assert json.loads(answers["GET"].body) == ["GET", False, []]


def test_an_unsafe_early_request_gets_425_if_the_option_is_set(start_features):
    server = start_features("--http3-early-data", "refuse")

    async def while_held(raw):
        assert len(await wait_events(server, "refused", 3)) == 3

    answers = uringcore.run(speak_early(server, "refused", while_held))
    statuses = {what: answer.status for what, answer in answers.items()}
    assert statuses == {
        "POST": 425,
        "GET with content": 425,
        "GET": 200,
        "OPTIONS": 200,
        "HEAD": 200,
    }
    assert len(events(server, "refused")) == 3
    # The attempt is no error of the client.
    assert "Invalid" not in server.log()


def test_no_request_is_early_where_early_data_is_off(start_features):
    server = start_features("--http3-early-data", "off")

    async def main():
        ticket = await get_ticket(server)
        async with connect_raw(server, wait_connected=False, session_ticket=ticket) as raw:
            (stream,) = ask_early(raw, [http3_bytes.request("/method/off")])
            assert json.loads((await raw.wait_answer(stream)).body) == ["GET", False, []]
            assert raw.quic.tls.early_data_accepted is False

    uringcore.run(main())


def test_a_request_that_its_client_gives_up_while_it_waits_never_runs(server):
    async def main():
        credentials = await get_credentials(server)
        async with connect_raw(server, wait_connected=False, **credentials) as raw:
            let_go = hold_back(raw)
            post, get = ask_early(
                raw,
                [
                    http3_bytes.request("/method/given-up", method="POST"),
                    http3_bytes.request("/method/given-up"),
                ],
            )
            assert await wait_events(server, "given-up", 1) == [["GET", True]]
            raw.give_up(post, 0x10C)
            let_go()
            await raw.wait_answer(get)
            assert (await raw.wait_answer(raw.request("/scope"))).status == 200
        assert await wait_events(server, "given-up", 1) == [["GET", True]]

    uringcore.run(main())


@pytest.mark.parametrize("who", ["the client", "who has seen it"])
def test_a_ticket_and_the_data_with_it_are_good_once(server, who):
    name = f"once-{who.split()[0]}"

    async def main():
        credentials = await get_credentials(server)
        sent = []
        async with connect_raw(server, wait_connected=False, **credentials) as raw:
            let_go = hold_back(raw)
            (stream,) = ask_early(raw, [http3_bytes.request(f"/method/{name}")])
            # The frames of the flight, to be sent again from another address.
            sent += raw.sent
            assert await wait_events(server, name, 1) == [["GET", True]]
            let_go()
            await raw.wait_answer(stream)
        if who == "the client":
            ticket = credentials["session_ticket"]
            async with connect_raw(server, wait_connected=False, session_ticket=ticket) as raw:
                (stream,) = ask_early(raw, [http3_bytes.request(f"/method/{name}")])
                assert json.loads((await raw.wait_answer(stream)).body)[:2] == ["GET", False]
            return
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as elsewhere:
            await asyncio.to_thread(send_until_answered, elsewhere, sent, server.port)
        assert await wait_events(server, name, 1) == [["GET", True]]

    uringcore.run(main())


def send_until_answered(elsewhere, datagrams, port):
    """Sends until it gets an answer: a server that still has the first connection's ID does not
    respond to another address.
    """
    elsewhere.settimeout(0.2)
    for _ in range(200):
        for datagram in datagrams:
            elsewhere.sendto(datagram, ("127.0.0.1", port))
        with contextlib.suppress(TimeoutError):
            assert elsewhere.recv(2048)
            return
    raise AssertionError("no answer")


@pytest.fixture(autouse=True)
def recorded(monkeypatch):
    """Records the datagrams of a client."""
    from tests.http.raw_client import Raw

    connect = Raw.connection_made

    def connection_made(self, transport):
        self.sent = []
        send = transport.sendto

        class Recording:
            def __getattr__(self, name):
                return getattr(transport, name)

            @staticmethod
            def sendto(data, addr=None, sent=self.sent):
                sent.append(bytes(data))
                send(data, addr)

        connect(self, Recording())

    monkeypatch.setattr(Raw, "connection_made", connection_made)
