"""A program for aiopquic with only its imports changed: the one of the interop cases."""

from __future__ import annotations

import ssl
import types
from pathlib import Path

import pytest

from tests.interop.webtransport import libraries, scenario
from uringcore.devcert import DevelopmentCertificate
from uringcore.quic.configuration import QuicConfiguration
from uringcore.webtransport._aiopquic_configuration import client_config


@pytest.fixture(scope="module")
def program():
    path = Path(libraries.__file__).with_name("aiopquic.py")
    source = path.read_text()
    for module in ("aiopquic.asyncio.webtransport", "aiopquic.quic.events"):
        assert module in source
        source = source.replace(f"from {module} ", "from uringcore.contrib.aiopquic ")
    moved = types.ModuleType("moved")
    exec(compile(source, path, "exec"), vars(moved))
    return moved


@pytest.fixture
def certificates(certificate, tmp_path):
    cert, key = map(Path, certificate.write(tmp_path))
    for name, source in (("cert.pem", cert), ("priv.key", key), ("ca.pem", cert)):
        if source.name != name:
            (tmp_path / name).write_bytes(source.read_bytes())
    return tmp_path


@pytest.mark.parametrize("case", scenario.CASES)
def test_case(case, program, certificates, run_anywhere):
    async def main():
        server = scenario.Server()
        port = scenario.free_port()
        stop = await program.serve(
            "127.0.0.1", port, scenario.PATH, certificates, scenario.TAKEN, server.handle
        )

        def connect(path=scenario.PATH, protocols=()):
            authority = certificates / "ca.pem"
            return program.connect("127.0.0.1", port, path, authority, list(protocols))

        await scenario.CASES[case](connect)
        await stop()

    run_anywhere(main())


def test_authorities_may_be_named_without_verification(tmp_path):
    """Programs for aiopquic may give authorities and switch verification off; the typed settings refuse the
    pair.
    """
    certfile = str(DevelopmentCertificate.make().write(tmp_path)[0])
    for given, verify_peer, ca_file in [
        (None, False, certfile),
        (QuicConfiguration(verify_mode=ssl.CERT_NONE, cafile=certfile), None, None),
    ]:
        config = client_config(given, None, verify_peer, ca_file)
        assert (config.verify, config.authorities) == (False, None)
    assert client_config(None, None, True, certfile).authorities == certfile
