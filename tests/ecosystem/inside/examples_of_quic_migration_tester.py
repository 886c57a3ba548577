"""quic-migration-tester has no tests: it examines a server on this machine."""

from __future__ import annotations

import asyncio
import logging

import pytest
from aioquic.asyncio import serve
from aioquic.quic.configuration import QuicConfiguration
from identity import identity  # noqa: F401 - a fixture
from quic_migration_tester.main import ConnectionMigrationTester


@pytest.fixture
def found(
    identity: tuple[str, str],  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> tuple[bool, str]:
    """Return true if it reports that the server supports migration, and the rest of its report."""

    async def main() -> bool:
        configuration = QuicConfiguration(is_client=False, alpn_protocols=["h3"])
        configuration.load_cert_chain(*identity)
        server = await serve("127.0.0.1", 0, configuration=configuration)
        port = server._transport.get_extra_info("sockname")[1]
        tester = ConnectionMigrationTester("127.0.0.1", port, verify_mode=False)
        passed: bool = await tester.test_connection_migration()
        server.close()
        return passed

    caplog.set_level(logging.INFO)
    return asyncio.run(main()), caplog.text


def test_it_reads_ids_and_parameters_of_the_server(found: tuple[bool, str]) -> None:
    _, text = found
    assert "Server supports connection ID management" in text
    assert "Remote disable_active_migration: False" in text
    assert "Remote max_idle_timeout: 60.0 seconds" in text
    assert "Connection migration test failed:" not in text


def test_it_moves_its_connection_to_another_socket(found: tuple[bool, str]) -> None:
    assert found[0]
