"""pywebtransport's release has no tests: this runs the server and the client of its README against
each other.
"""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path
from typing import Any

import pytest


def test_the_readmes_client_talks_to_the_readmes_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    text = Path("README.md").read_text().replace("4433", str(port))
    monkeypatch.chdir(tmp_path)  # the server makes its certificate here
    server: dict[str, Any] = {"__name__": "server"}
    client: dict[str, Any] = {"__name__": "client"}
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for block, names in zip(blocks, (server, client), strict=False):
        exec(block, names)

    async def main() -> None:
        async with server["app"] as app:
            serving = asyncio.ensure_future(app.serve(host="127.0.0.1", port=port))
            while not app.server.is_serving:
                assert not serving.done(), serving
                await asyncio.sleep(0.01)
            await asyncio.wait_for(client["main"](), 30)
            serving.cancel()
            await asyncio.wait([serving])

    asyncio.run(main())
    said = capsys.readouterr().out
    assert "Datagram echo: b'ECHO: Hello, Datagram!'" in said
    assert "Stream echo: b'ECHO: Hello, Stream!'" in said
