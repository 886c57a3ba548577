"""On a network whose packets are too small for QUIC (RFC 9000 section 14), connect() fails at once.

The error needs uringcore's loop, whose QUIC sockets forbid fragmentation; sockets of other loops allow it.
"""

import shutil
import subprocess
import sys

import pytest

from tests.server.conftest import backends

# Runs in a network namespace of its own, whose loopback carries packets of 1,200 bytes, that is UDP payloads
# of 1,172.
PROGRAM = """
import fcntl, socket, struct, sys
import uringcore
from uringcore.asyncio import connect
from uringcore.quic.configuration import QuicConfiguration

SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFMTU, IFF_UP = 0x8913, 0x8914, 0x8922, 1

def set_up(mtu):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, SIOCSIFMTU, struct.pack("16si12x", b"lo", mtu))
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))

async def main():
    configuration = QuicConfiguration(alpn_protocols=["h3"], server_name="localhost")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        try:
            async with connect("127.0.0.1", server.getsockname()[1], configuration=configuration):
                pass
        except OSError as exc:
            print(type(exc).__name__, exc.errno, exc)

set_up(1200)
uringcore.run(main(), backend=sys.argv[1])
"""


def may_unshare():
    """True if this machine permits a network namespace."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return False
    command = [unshare, "--user", "--map-root-user", "--net", "true"]
    return subprocess.run(command, capture_output=True, timeout=100).returncode == 0


@pytest.mark.skipif(not may_unshare(), reason="no network namespaces here")
@pytest.mark.parametrize("backend", backends())
def test_a_network_with_a_small_mtu(backend):
    command = [
        "unshare",
        "--user",
        "--map-root-user",
        "--net",
        sys.executable,
        "-c",
        PROGRAM,
        backend,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "QuicConnectionRefusedError 90 no connection to 127.0.0.1 port" in done.stdout, (
        done.stderr
    )
    assert "(1,200 bytes: an MTU of 1,228 for IPv4, 1,248 for IPv6)" in done.stdout
