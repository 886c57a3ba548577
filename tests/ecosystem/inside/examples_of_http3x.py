"""The examples in http3x's release, which has no tests: two of them, with a client on aioquic's
names.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated, StreamDataReceived
from identity import identity  # noqa: F401 - a fixture


class Client(QuicConnectionProtocol):
    """Stores received events."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.heard: list[Any] = []
        self.http: Any = None

    def quic_event_received(self, event: Any) -> None:
        if isinstance(event, ProtocolNegotiated):
            self.http = H3Connection(self._quic, enable_webtransport=True)
        self.heard.append(event)
        if self.http is not None:
            self.heard.extend(self.http.handle_event(event))

    def ask(self, method: bytes, path: bytes, *more: tuple[bytes, bytes]) -> int:
        """Send a request and return its stream, which a CONNECT leaves open."""
        stream_id = self._quic.get_next_available_stream_id()
        fields = [(b":method", method), (b":scheme", b"https"), (b":authority", b"localhost")]
        fields += [(b":path", path), *more]
        self.http.send_headers(stream_id, fields, end_stream=method != b"CONNECT")
        self.transmit()
        return stream_id

    async def until(self, *kinds: type[Any], stream_id: int) -> Any:
        """Return the first event of this type on the stream."""
        while True:
            for event in self.heard:
                if isinstance(event, kinds) and event.stream_id == stream_id:
                    return event
            await asyncio.sleep(0.01)


def _played(name: str, files: tuple[str, str], play: Any) -> None:
    """Run `play(client)` with the example `name` as the server, without the last lines, which would
    run it for ever.
    """
    source = Path("tests", f"{name}.py").read_text()
    names: dict[str, Any] = {"__name__": name}
    exec(source.partition("import webbrowser")[0].partition("app.run(")[0], names)
    app = names["app"]

    async def main() -> None:
        # Clients of aioquic 1.7 reject the example's own settings: they announce datagrams, but
        # leave no room for any.
        options = {"alpn_protocols": ["h3"], "max_datagram_frame_size": 65536}
        served = QuicConfiguration(is_client=False, **options)
        await app.async_run("127.0.0.1", 0, *files, configuration=served)
        port = app.server._transport.get_extra_info("sockname")[1]
        configuration = QuicConfiguration(is_client=True, verify_mode=ssl.CERT_NONE, **options)
        async with connect(
            "127.0.0.1", port, configuration=configuration, create_protocol=Client
        ) as client:
            await asyncio.wait_for(play(client), 20)
        app.close()

    asyncio.run(main())


@pytest.mark.parametrize("method", [b"GET", b"POST"])
def test_a_handler_answers(identity: tuple[str, str], method: bytes) -> None:  # noqa: F811
    async def play(client: Client) -> None:
        stream_id = client.ask(method, b"/h3")
        headers = await client.until(HeadersReceived, stream_id=stream_id)
        assert dict(headers.headers)[b":status"] == b"200"
        data = await client.until(DataReceived, stream_id=stream_id)
        assert data.data.replace(b" ", b"") == b'{"status":"ok"}'

    _played("h3_mini", identity, play)


def test_a_webtransport_session_echoes(identity: tuple[str, str]) -> None:  # noqa: F811
    async def play(client: Client) -> None:
        session_id = client.ask(b"CONNECT", b"/wt", (b":protocol", b"webtransport"))
        headers = await client.until(HeadersReceived, stream_id=session_id)
        assert dict(headers.headers)[b":status"] == b"200"
        stream_id = client.http.create_webtransport_stream(session_id)
        client._quic.send_stream_data(stream_id, b"hello")
        client.transmit()
        data = await client.until(StreamDataReceived, stream_id=stream_id)
        assert data.data == b"hello"

    _played("wt_mini", identity, play)
