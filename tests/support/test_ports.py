"""Numbers for servers that need an explicit port."""

import random
import socket
import subprocess
import sys

from tests.support import ports

ASK = """
import random, sys
random.Random = lambda: random.seed(7) or random
from tests.support.ports import free_port
print(free_port(), flush=True)
sys.stdin.read()
"""


def test_no_two_processes_are_given_one_number(monkeypatch):
    """Both try the numbers in the same order, and neither has bound its own yet."""
    monkeypatch.setattr(random, "Random", lambda: random.seed(7) or random)
    ours = ports.free_port()
    with subprocess.Popen(
        [sys.executable, "-c", ASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        theirs = int(other.stdout.readline())
        assert ours not in (theirs, ports.free_port())
        other.stdin.close()
    # A process that has ended no longer reserves its number.
    assert ports.free_port() == theirs


def test_a_port_that_a_server_has_is_nobodys(monkeypatch):
    monkeypatch.setattr(random, "Random", lambda: random.seed(8) or random)
    first = ports.free_port()
    monkeypatch.setattr(ports, "_take", lambda port: True)
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as server:
            server.bind(("127.0.0.1", first))
            assert ports.free_port() != first
    assert ports.free_port() == first
