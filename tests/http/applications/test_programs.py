"""Real programs over all versions of HTTP, and the same program on uvicorn: datasette, Django with channels,
Socket.IO, strawberry's subscriptions, and FastMCP with its own client.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import ssl
from dataclasses import replace

import pytest

from tests.http.applications.exchange import WAIT_SECONDS, Case, HTTP2Side, Side
from tests.http.applications.websocket_talk import talk
from tests.server.harness import ForkedServer
from tests.support.interpreter_roles import is_default_interpreter

pytestmark = [
    pytest.mark.either_backend("serve"),
    pytest.mark.skipif(
        not is_default_interpreter(), reason="programs are compared on the default interpreter"
    ),
]

# uvicorn on stock asyncio, with its own WebSockets.
UVICORN = """
import sys, uvicorn
uvicorn.run({app!r}, port=0, loop="asyncio", access_log=False,
            ssl_certfile=sys.argv[1], ssl_keyfile=sys.argv[2])
"""
OURS = ("1.1", "2", "3")


def need(module):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed here: it is in the extra `frameworks`")


@pytest.fixture(scope="module")
def serve(backend, certificate, tmp_path_factory):
    """Starts a program on our server and on uvicorn, once for a module's tests."""
    started = {}

    def both(name):
        if name not in started:
            app = f"tests.http.applications.{name}_app:app"
            ours = ForkedServer(
                tmp_path_factory.mktemp("ours"),
                certificate,
                *("--no-access-log", "--http", "native"),
                backend=backend,
                app=app,
            )
            started[name] = [ours]
            theirs = ForkedServer(
                tmp_path_factory.mktemp("theirs"),
                certificate,
                http3=False,
                program=UVICORN.format(app=app),
            )
            started[name].append(theirs)
        return started[name]

    yield both
    servers = [server for pair in started.values() for server in pair]
    statuses = [server.stop() for server in servers]
    for server in servers:
        server.check_log()
        assert "Exception in an HTTP" not in server.log()
    assert statuses[::2] == [0] * len(started)


def replies(servers, case):
    """Returns uvicorn's reply, and ours over HTTP/1.1, HTTP/2 and HTTP/3."""
    ours, theirs = servers
    sides = [
        Side(theirs, over_http3=False),
        Side(ours, over_http3=False),
        HTTP2Side(ours, over_http3=False),
        Side(ours, over_http3=True),
    ]
    found = [side.reply(case) for side in sides]
    # The native server gives whole content a length, where uvicorn sends chunks.
    return [
        replace(reply, headers=[one for one in reply.headers if one[0] != b"content-length"])
        for reply in found
    ]


def conversations(servers, path, conversation, subprotocols=()):
    """Returns the record of a conversation over HTTP/1.1 with uvicorn, and over each version with ours."""
    ours, theirs = servers

    async def over(server, version):
        async with talk(version, server, path, list(subprotocols)) as socket:
            return [socket.subprotocol, *await conversation(socket)]

    async def all_of_them():
        pairs = [(theirs, "1.1"), *((ours, version) for version in OURS)]
        return [await asyncio.wait_for(over(*pair), WAIT_SECONDS) for pair in pairs]

    return asyncio.run(all_of_them())


DATASETTE = {
    "start page": Case("/"),
    "database": Case("/stock"),
    "table": Case("/stock/teas?_size=20&grams__gt=10&_sort_desc=name"),
    "row": Case("/stock/teas/7.json"),
    "table as json": Case("/stock/teas.json?_shape=array&_size=1000"),
    "csv that is streamed": Case("/stock/teas.csv?_stream=1&_size=max"),
    "sql": Case("/stock.json?sql=select+count(*)+as+n,+:x+as+x+from+teas&x=%C3%A9"),
    "sql that is none": Case("/stock.json?sql=nonsense"),
    "static file": Case("/-/static/app.css"),
    "missing": Case("/stock/none"),
    "database file": Case("/stock.db"),
    "redirect": Case("/stock/"),
    "actor": Case("/-/actor.json", headers=(("cookie", "ds_actor=forged"),)),
}


@pytest.mark.parametrize("case", DATASETTE.values(), ids=list(DATASETTE))
def test_datasette(serve, case):
    need("datasette")
    # The time of a query differs.
    drawn = re.compile(rb'(took |query_ms": )[0-9.]+')
    theirs, *ours = (
        replace(reply, body=drawn.sub(b"", reply.body))
        for reply in replies(serve("datasette"), case)
    )
    assert theirs.status in (200, 302, 400, 403, 404)
    assert ours == [theirs] * 3


def test_a_view_beside_channels(serve):
    need("channels")
    theirs, *ours = replies(serve("channels"), Case("/view/caf%C3%A9?a=1&b=%26"))
    assert theirs.status == 200
    assert ours == [theirs] * 3


def test_a_room_of_channels(serve):
    need("channels")

    async def conversation(socket):
        seen = [await socket.receive()]
        for text in ("", "grün", "x" * 100_000):
            await socket.send(text)
            seen.append(await socket.receive())
        return seen

    theirs, *ours = conversations(serve("channels"), "/room/one", conversation, ["chat", "other"])
    assert theirs == ["chat", "joined", "", "grün", "x" * 100_000]
    assert ours == [theirs] * 3


def test_members_of_a_room_on_different_versions(serve):
    need("channels")
    server, _ = serve("channels")

    async def main():
        async with (
            talk("1.1", server, "/room/two") as first,
            talk("2", server, "/room/two") as second,
        ):
            assert [await first.receive(), await first.receive()] == ["joined"] * 2
            assert await second.receive() == "joined"
            async with talk("3", server, "/room/two") as third:
                for member in (first, second, third):
                    assert await member.receive() == "joined"
                await third.send("to all")
                for member in (first, second, third):
                    assert await member.receive() == "to all"
            for member in (first, second):
                assert await member.receive() == "left 1000"

    asyncio.run(asyncio.wait_for(main(), WAIT_SECONDS))


def test_a_consumer_in_threads(serve):
    need("channels")

    async def conversation(socket):
        seen = []
        for numbers in ([], [1, 2, 3], list(range(10_000))):
            await socket.send(json.dumps({"numbers": numbers}))
            seen.append(json.loads(await socket.receive()))
        return seen

    theirs, *ours = conversations(serve("channels"), "/counter", conversation)
    assert theirs == [None, {"sum": 0}, {"sum": 6}, {"sum": 49_995_000}]
    assert ours == [theirs] * 3


def test_socketio_without_polling(serve):
    need("socketio")

    async def conversation(socket):
        opened = json.loads((await socket.receive())[1:])
        del opened["sid"]
        seen = [opened]
        for packet in ('40{"who":"me"}', '421["echo",{"n":[1,2,"é"]}]', '42["echo",1]'):
            await socket.send(packet)
            seen += [await socket.receive() for _ in range(1 if packet.startswith("42[") else 2)]
        return seen[:1] + [re.sub('"sid":"[^"]*"', "SID", text) for text in seen[1:]]

    path = "/socket.io/?EIO=4&transport=websocket"
    theirs, *ours = conversations(serve("socketio"), path, conversation)
    assert theirs[-1] == '42["echoed",1]'
    assert ours == [theirs] * 3


JSON = (("content-type", "application/json"),)


@pytest.mark.parametrize(
    "query",
    [
        "{ names }",
        'mutation { shout(name: "tea") }',
        "{ nothing }",
        "{ names",
        "subscription { count(to: 2) }",
    ],
)
def test_graphql_over_post(serve, query):
    need("strawberry")
    body = json.dumps({"query": query}).encode()
    theirs, *ours = replies(serve("strawberry"), Case("/", "POST", JSON, body))
    assert theirs.status == 200 or "subscription" in query
    assert ours == [theirs] * 3


def test_graphiql(serve):
    need("strawberry")
    theirs, *ours = replies(serve("strawberry"), Case("/", headers=(("accept", "text/html"),)))
    assert theirs.status == 200 and b"graphiql" in theirs.body.lower()
    assert ours == [theirs] * 3


def test_graphql_subscriptions(serve):
    need("strawberry")

    async def conversation(socket):
        seen = []

        async def send(**message):
            await socket.send(json.dumps(message))

        async def receive():
            seen.append(json.loads(await socket.receive()))
            return seen[-1]

        await send(type="connection_init")
        await receive()
        await send(type="ping")
        await receive()
        query = {"query": "subscription { count(to: 200) }"}
        await send(type="subscribe", id="a", payload=query)
        while (await receive())["type"] != "complete":
            pass
        await send(type="subscribe", id="b", payload={"query": "subscription { forever }"})
        for _ in range(3):
            await receive()
        await send(type="complete", id="b")
        await send(type="subscribe", id="c", payload={"query": "subscription { unknown }"})
        while (await receive())["id"] == "b":
            # Those that were sent before the client's end of the subscription arrived.
            seen.pop()
        return seen

    theirs, *ours = conversations(serve("strawberry"), "/", conversation, ["graphql-transport-ws"])
    assert theirs[0] == "graphql-transport-ws"
    assert [message["type"] for message in theirs[-4:]] == ["next", "next", "next", "error"]
    assert len(theirs) == 1 + 2 + 201 + 3 + 1
    assert ours == [theirs] * 3


def client_factory(version, server):
    """Makes clients for FastMCP, which use this version."""
    import httpx2

    from uringcore.contrib.httpx import AsyncHTTP3Transport

    def make(**options):
        options["timeout"] = httpx2.Timeout(WAIT_SECONDS)
        if version == "3":
            transport = AsyncHTTP3Transport(verify=server.certificate, http3="always")
            return httpx2.AsyncClient(transport=transport, **options)
        trust = ssl.create_default_context(cafile=server.certificate)
        # Proxies of the environment do not know localhost.
        return httpx2.AsyncClient(
            verify=trust, trust_env=False, http1=version == "1.1", http2=version == "2", **options
        )

    return make


async def uses(client):
    """Calls what the server offers; returns all results."""
    seen = []

    async def progress(done, total, message):
        seen.append((done, total))

    seen.append(sorted(tool.name for tool in await client.list_tools()))
    result = await client.call_tool("work", {"steps": 5}, progress_handler=progress)
    seen.append(result.data)
    seen.append((await client.call_tool("large", {"size": 50_000})).data)
    failed = await client.call_tool("fails", raise_on_error=False)
    seen.append((failed.is_error, failed.content[0].text))
    seen.append((await client.read_resource("tea://oolong"))[0].text)
    prompt = await client.get_prompt("ask", {"topic": "tea"})
    seen.append(prompt.messages[0].content.text)
    many = [client.call_tool("work", {"steps": number}) for number in range(10)]
    seen.append([result.data for result in await asyncio.gather(*many)])
    return seen


@pytest.mark.parametrize("way", ["mcp", "sse"])
def test_fastmcp(serve, way):
    need("fastmcp")
    need("httpx2")
    import fastmcp
    from fastmcp.client.transports import SSETransport, StreamableHttpTransport

    import uringcore

    kind = {"mcp": StreamableHttpTransport, "sse": SSETransport}[way]

    async def over(version, server):
        url = f"https://localhost:{server.port}/{way}/"
        transport = kind(url, httpx_client_factory=client_factory(version, server))
        async with fastmcp.Client(transport) as client:
            return await uses(client)

    ours, theirs = serve("fastmcp")
    found = [
        uringcore.run(asyncio.wait_for(over(version, server), WAIT_SECONDS))
        for version, server in [("1.1", theirs), *((version, ours) for version in OURS)]
    ]
    assert found[0][-1] == [list(range(number)) for number in range(10)]
    assert found[1:] == found[:1] * 3
