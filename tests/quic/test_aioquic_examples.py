"""aioquic's published examples run on uringcore with only their imports changed, and interoperate with
aioquic.
"""

from __future__ import annotations

import asyncio
import importlib
import shutil
import socket
import threading

import pytest

from tests.quic.aioquic_examples import (
    VERSION,
    rewritten,
    run_client,
    running,
    unpacked,
    written_trace,
)
from tests.support.free_ports import free_port
from tests.support.interpreter_roles import is_newest_interpreter

aioquic = pytest.importorskip("aioquic")
pytest.importorskip("wsproto", reason="aioquic's examples need wsproto")
pytest.importorskip("jinja2", reason="aioquic's demo application needs jinja2")
pytest.importorskip("starlette", reason="aioquic's demo application needs starlette")
if aioquic.__version__ != VERSION:
    pytest.skip(
        f"the examples are those of aioquic {VERSION}, installed is {aioquic.__version__}",
        allow_module_level=True,
    )


pytestmark = pytest.mark.skipif(
    not is_newest_interpreter(),
    reason="aioquic's examples, some sixty processes, run on the newest interpreter",
)


@pytest.fixture(scope="session")
def examples(tmp_path_factory):
    """Directories of the examples: unchanged, on uringcore's loop, and with uringcore's QUIC on stock
    asyncio.
    """
    target = tmp_path_factory.mktemp("examples")
    source = unpacked(target)
    return {
        "ours": rewritten(source, target / "ours", loop=True),
        "portable": rewritten(source, target / "portable", loop=False),
        "aioquic": shutil.copytree(source, target / "aioquic"),
    }


PAIRS = pytest.mark.parametrize(
    ("client", "server"),
    [("ours", "ours"), ("ours", "aioquic"), ("aioquic", "ours"), ("portable", "portable")],
    ids=["ours-ours", "ours-aioquic", "aioquic-ours", "portable-portable"],
)


class Example:
    """Client and server directories of an example, with the port and the certificates that both use."""

    def __init__(self, client, server, pki):
        self.client, self.server, self.pki = client, server, pki
        self.port = free_port()

    def serving(self, *arguments, script="http3_server.py"):
        identity = ["-c", self.pki.server.certfile, "-k", self.pki.server.keyfile]
        host = ["--host", "127.0.0.1"]
        return running(self.server, script, *identity, *host, *arguments, port=self.port)

    def url(self, path="/", scheme="https"):
        return f"{scheme}://localhost:{self.port}{path}"

    def get(self, *arguments, script="http3_client.py"):
        authority = ["--ca-certs", self.pki.authority.certfile]
        return run_client(self.client, script, *arguments, *authority)


@pytest.fixture
def example(examples, pki):
    return lambda client, server: Example(examples[client], examples[server], pki)


@PAIRS
def test_http3(example, client, server, tmp_path):
    """A page with a push, three concurrent megabytes, a POST, HTTP/0.9, a WebSocket, a key update."""
    pair = example(client, server)
    with pair.serving() as log:
        urls = [pair.url("/"), pair.url("/3000000"), pair.url("/style.css")]
        said = pair.get(*urls, "--output-dir", tmp_path, "--include")
        # The demo page pushes its style sheet.
        assert "Push received for GET /style.css" in said
        assert b"aioquic" in (tmp_path / "index.html").read_bytes()
        body = (tmp_path / "3000000").read_bytes()
        assert body.startswith(b"server: aioquic/") or b"\r\n\r\n" in body
        assert body.endswith(b"Z" * 3_000_000)
        pair.get(pair.url("/echo"), "--data", "some text", "--output-dir", tmp_path)
        assert (tmp_path / "echo").read_bytes() == b"some text"
        pair.get(pair.url("/style.css"), "--legacy-http", "--output-dir", tmp_path)
        assert b"{" in (tmp_path / "style.css").read_bytes()
        said = pair.get(pair.url("/ws", scheme="wss"))
        assert "< Hello 0, WebSocket!" in said and "< Hello 1, WebSocket!" in said
        said = pair.get(pair.url("/20000"), pair.url("/20001"), "--key-update")
        assert "Requesting key update" in said and "20001 : 20001 bytes" in said
        assert "Traceback" not in log.read_text()


@PAIRS
@pytest.mark.parametrize("algorithm", ["reno", "cubic"])
def test_congestion_control(example, client, server, algorithm):
    pair = example(client, server)
    choice = ["--congestion-control-algorithm", algorithm]
    with pair.serving(*choice):
        assert "1000000 bytes" in pair.get(pair.url("/1000000"), *choice)


@PAIRS
def test_logs(example, client, server, tmp_path):
    """``--quic-log`` and ``--secrets-log`` of both sides, whose contents have to agree."""
    pair = example(client, server)
    logs = {side: tmp_path / side for side in ("client", "server")}
    secrets = {side: tmp_path / f"{side}-secrets.log" for side in logs}
    for directory in logs.values():
        directory.mkdir()
    options = {side: ["-q", logs[side], "-l", secrets[side]] for side in logs}
    with pair.serving(*options["server"]):
        pair.get(pair.url(), *options["client"])
        traces = {side: written_trace(directory) for side, directory in logs.items()}
    for side in logs:
        names = {event["name"] for event in traces[side]["events"]}
        assert {"transport:packet_sent", "transport:packet_received"} <= names
    assert traces["client"]["common_fields"] == traces["server"]["common_fields"]
    lines = {side: set(path.read_text().split("\n")) for side, path in secrets.items()}
    assert lines["client"] & lines["server"] >= {
        line for line in lines["client"] if line.startswith("SERVER_TRAFFIC_SECRET_0")
    }
    assert any("CLIENT_TRAFFIC_SECRET_0" in line for line in lines["client"] & lines["server"])


@PAIRS
def test_retry(example, client, server, tmp_path):
    pair = example(client, server)
    with pair.serving("--retry"):
        pair.get(pair.url(), "-q", tmp_path)
    trace = written_trace(tmp_path)
    kinds = [
        event["data"]["header"]["packet_type"]
        for event in trace["events"]
        if event["name"] == "transport:packet_received"
    ]
    assert kinds[0] == "retry"


@PAIRS
def test_version_2_by_compatible_negotiation(example, client, server, tmp_path):
    """``--negotiate-v2``: the connection starts with version 1 and changes to version 2."""
    pair = example(client, server)
    with pair.serving():
        options = ["--negotiate-v2", "-q", tmp_path]
        assert "5000 bytes" in pair.get(pair.url("/5000"), *options)
    trace = written_trace(tmp_path)
    if client != "aioquic":
        versions = {
            event["data"]["header"].get("version")
            for event in trace["events"]
            if event["name"] == "transport:packet_sent"
        }
        assert {"00000001", "6b3343cf"} <= versions


@PAIRS
def test_session_tickets_and_early_data(example, client, server, tmp_path):
    """``--session-ticket`` stores a ticket in a file, and a later process resumes with it; then with
    0-RTT.
    """
    pair = example(client, server)
    ticket = tmp_path / "ticket"
    logs = [tmp_path / name for name in ("first", "resumed", "early")]
    with pair.serving():
        for log, options in zip(logs, [[], [], ["--zero-rtt"]], strict=True):
            log.mkdir()
            said = pair.get(pair.url("/5000"), "--session-ticket", ticket, "-q", log, *options)
            assert "5000 bytes" in said
            assert ticket.stat().st_size > 100
    sent = []
    for log in logs:
        trace = written_trace(log)
        sent.append([e["data"] for e in trace["events"] if e["name"] == "transport:packet_sent"])
    kinds = [{packet["header"]["packet_type"] for packet in packets} for packets in sent]
    assert "0RTT" not in kinds[0] and "0RTT" in kinds[2]
    early = [p["frames"] for p in sent[2] if p["header"]["packet_type"] == "0RTT"]
    assert any(frame["frame_type"] == "stream" for frames in early for frame in frames)


@PAIRS
def test_ciphers_and_windows(example, client, server):
    pair = example(client, server)
    with pair.serving():
        options = ["--cipher-suites", "CHACHA20_POLY1305_SHA256", "--max-data", "65536"]
        options += ["--max-stream-data", "32768", "--local-port", str(free_port())]
        assert "500000 bytes" in pair.get(pair.url("/500000"), *options)


@PAIRS
def test_httpx(example, client, server):
    pair = example(client, server)
    with pair.serving():
        said = pair.get(pair.url("/5000"), script="httpx_client.py")
        assert "5000 bytes" in said


@PAIRS
def test_dns_over_quic(example, client, server):
    dnslib = pytest.importorskip("dnslib", reason="aioquic's example needs dnslib")
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        # The example queries its resolver on port 53 and ignores its option.
        sock.bind(("127.0.0.53", 53))
    except OSError as exc:
        sock.close()
        pytest.skip(f"a resolver of the test's own needs port 53: {exc}")

    def resolve():
        while True:
            data, address = sock.recvfrom(2048)
            query = dnslib.DNSRecord.parse(data)
            if str(query.q.qname) == "stop.":
                return
            answer = query.reply()
            answer.add_answer(*dnslib.RR.fromZone(f"{query.q.qname} 60 A 192.0.2.7"))
            sock.sendto(answer.pack(), address)

    thread = threading.Thread(target=resolve)
    thread.start()
    try:
        pair = example(client, server)
        with pair.serving("--resolver", "127.0.0.53", script="doq_server.py"):
            said = pair.get(
                "--host", "localhost", "--port", pair.port, "--query-name", "example.org",
                script="doq_client.py",
            )  # fmt: skip
            assert "192.0.2.7" in said
    finally:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stopper:
            stopper.sendto(dnslib.DNSRecord.question("stop").pack(), ("127.0.0.53", 53))
        thread.join(10)
        sock.close()


WEBTRANSPORT = pytest.mark.parametrize(
    ("library", "server"),
    [("uringcore", "ours"), ("uringcore", "aioquic"), ("aioquic", "ours")],
    ids=["ours-ours", "ours-aioquic", "aioquic-ours"],
)


@WEBTRANSPORT
def test_webtransport(example, pki, library, server):
    """The README's script in a browser: a session at ``/wt`` that echoes."""
    connect = importlib.import_module(library + ".asyncio").connect
    protocol_class = importlib.import_module(library + ".asyncio").QuicConnectionProtocol
    h3 = importlib.import_module(library + ".h3.connection")
    h3_events = importlib.import_module(library + ".h3.events")
    configuration_class = importlib.import_module(library + ".quic.configuration").QuicConfiguration

    class Client(protocol_class):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.http = h3.H3Connection(self._quic, enable_webtransport=True)
            self.queue = asyncio.Queue()

        def quic_event_received(self, event):
            # aioquic treats the response as HTTP/3 frames on a stream of its own, a fault that also occurs
            # between two aioquic peers. Its clients have to read such streams from QUIC.
            if library == "aioquic" and getattr(event, "stream_id", None) == 4:
                self.queue.put_nowait(event)
                return
            for http_event in self.http.handle_event(event):
                self.queue.put_nowait(http_event)

    pair = example(server, server)

    async def main():
        configuration = configuration_class(
            is_client=True, alpn_protocols=h3.H3_ALPN, max_datagram_frame_size=65536
        )
        configuration.load_verify_locations(cafile=str(pki.authority.certfile))
        async with connect(
            "localhost", pair.port, configuration=configuration, create_protocol=Client
        ) as client:
            session = client._quic.get_next_available_stream_id()
            headers = [
                (b":method", b"CONNECT"),
                (b":scheme", b"https"),
                (b":authority", b"localhost"),
                (b":path", b"/wt"),
                (b":protocol", b"webtransport"),
            ]
            client.http.send_headers(session, headers)
            client.transmit()
            answer = await client.queue.get()
            assert (b":status", b"200") in answer.headers
            stream_id = client.http.create_webtransport_stream(session)
            client._quic.send_stream_data(stream_id, b"ABC")
            client.transmit()
            echoed = await client.queue.get()
            assert (echoed.data, echoed.stream_id) == (b"ABC", stream_id)
            if library == "uringcore":
                assert isinstance(echoed, h3_events.WebTransportStreamDataReceived)
                assert echoed.session_id == session
            client.http.send_datagram(session, b"datagram")
            client.transmit()
            echoed = await client.queue.get()
            assert isinstance(echoed, h3_events.DatagramReceived)
            assert (echoed.data, echoed.stream_id) == (b"datagram", session)

    with pair.serving():
        asyncio.run(asyncio.wait_for(main(), 30))
