"""Numbers for servers that need an explicit port.

The tests reserve under names of their own and choose among few numbers, which no other test of this machine
gets meanwhile: two runs at once do not meet.
"""

import os
import socket
import subprocess
import sys

import pytest

from tests.support import free_ports

ASK = """
import sys
from tests.support import free_ports
free_ports.RESERVED = sys.argv[1]
free_ports.CANDIDATES = [int(port) for port in sys.argv[2:]]
print(free_ports.free_port(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def numbers(monkeypatch):
    """The only two numbers that ``free_port`` can return now."""
    found = [free_ports.free_port(), free_ports.free_port()]
    monkeypatch.setattr(free_ports, "RESERVED", f"uringcore-test-{os.getpid()}-")
    monkeypatch.setattr(free_ports, "CANDIDATES", found)
    return found


def test_no_two_processes_are_given_one_number(numbers):
    """Neither process has bound its number yet."""
    ours = free_ports.free_port()
    command = [sys.executable, "-c", ASK, free_ports.RESERVED, *map(str, numbers)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        theirs = int(other.stdout.readline())
        assert {ours, theirs} == set(numbers)
        with pytest.raises(RuntimeError, match="no port is free"):
            free_ports.free_port()
        other.stdin.close()
    # A process that has ended no longer reserves its number.
    assert free_ports.free_port() == theirs


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_that_a_server_has_is_nobodys(numbers, kind):
    used, unused = numbers
    with socket.socket(socket.AF_INET, kind) as server:
        server.bind(("127.0.0.1", used))
        assert free_ports.free_port() == unused
        with pytest.raises(RuntimeError, match="no port is free"):
            free_ports.free_port()
    # A server that has ended no longer blocks its number.
    assert free_ports.free_port() == used
