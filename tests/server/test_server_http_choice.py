"""The choice of the HTTP implementation over TCP: ``--http`` and ``--ws``."""

import os
import subprocess
import sys

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from tests.server.harness import ROOT, environment, forked_command
from uringcore.server import Config
from uringcore.server._native_tcp import connect

APPLICATION = "tests.server.application:app"


def loaded(**options):
    config = Config(APPLICATION, http3=False, log_config=None, **options)
    config.load()
    return config


@pytest.mark.parametrize("options", [{}, {"http": "auto"}, {"http": "native"}, {"ws": "none"}])
def test_native_is_the_default(options):
    config = loaded(**options)
    assert config.is_native_http and config.http_protocol_class is connect
    assert config.ws == options.get("ws", "auto")


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"http": "uvicorn"}, HttpToolsProtocol),
        ({"http": "httptools"}, HttpToolsProtocol),
        ({"http": "h11"}, H11Protocol),
        ({"http": H11Protocol}, H11Protocol),
        ({"ws": "wsproto"}, HttpToolsProtocol),
        ({"ws": WSProtocol}, HttpToolsProtocol),
        ({"ws": "wsproto", "http": "h11"}, H11Protocol),
    ],
)
def test_uvicorns_classes_can_be_chosen(options, kind):
    config = loaded(**options)
    assert not config.is_native_http and config.http_protocol_class is kind
    if "ws" in options:
        assert config.ws_protocol_class is WSProtocol


def test_no_websocket():
    """``None`` is no class of uvicorn's."""
    config = loaded(ws=None)
    assert config.is_native_http and config.ws == "none"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--http", "native", "--ws", "wsproto"], "--ws does nothing: --http native has one"),
        (["--h11-max-incomplete-event-size", "9"], "--h11-max-incomplete-event-size does nothing"),
        (["--http", "uvicorn", "--compress"], "--compress does nothing: uvicorn's HTTP/1.1"),
    ],
)
def test_options_without_effect_are_named(arguments, line):
    done = forked_command("tests.server.none:app", "--no-http3", *arguments)
    assert line in done.stdout + done.stderr


WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"httptools", "websockets", "wsproto", "zttp", "uvloop"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""

PROGRAM = """
import asyncio, os, sys, tempfile
from uringcore.server import Config, Server

async def main():
    path = os.path.join(tempfile.mkdtemp(), "socket")
    server = Server(Config("tests.server.application:app", uds=path, http3=False, access_log=False))
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    for head in ("", "Connection: Upgrade\\r\\nUpgrade: websocket\\r\\nSec-WebSocket-Version: 13\\r\\n"
                 "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n"):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(f"GET / HTTP/1.1\\r\\nHost: a\\r\\n{head}\\r\\n".encode())
        print((await reader.readline()).decode().strip())
        writer.close()
    server.should_exit = True
    await serving

import uringcore
uringcore.run(main())
"""


def test_uvicorn_alone_is_enough(tmp_path):
    """Neither httptools nor a package for WebSocket is imported."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    path = os.pathsep.join([str(tmp_path), str(ROOT), environment().get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=environment() | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == [
        "HTTP/1.1 200 OK",
        "HTTP/1.1 101 Switching Protocols",
    ], done.stderr
