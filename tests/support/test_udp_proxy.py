"""The proxy on every loop: delivered and dropped datagrams, and their addresses."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.loop.harness import LOOPS, Runner, collect, open_descriptors
from tests.support.simulated_link import Conditions
from tests.support.udp_proxy import ImpairmentProxy


@pytest.fixture(params=LOOPS)
def run(request):
    return Runner(request.param)


class Mailbox:
    """A UDP socket that records received datagrams and their ECN bits."""

    def __init__(self, host="127.0.0.1", reply=False):
        self.family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.sock = socket.socket(self.family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        if self.family == socket.AF_INET6:
            self.sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        else:
            self.sock.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        self.sock.bind((host, 0))
        self.reply = reply
        self.got = []
        self.senders = []
        self.marks = []
        self._changed = asyncio.Event()

    async def __aenter__(self):
        asyncio.get_running_loop().add_reader(self.sock.fileno(), self._readable)
        return self

    async def __aexit__(self, *exc):
        asyncio.get_running_loop().remove_reader(self.sock.fileno())
        self.sock.close()

    @property
    def address(self):
        return self.sock.getsockname()[:2]

    def send(self, data, address, ecn=0):
        if self.family == socket.AF_INET6:
            marks = [(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, ecn.to_bytes(4, "little"))]
        else:
            marks = [(socket.IPPROTO_IP, socket.IP_TOS, ecn.to_bytes(4, "little"))]
        self.sock.sendmsg([data], marks if ecn else [], 0, address)

    def _readable(self):
        while True:
            try:
                data, ancillary, _, sender = self.sock.recvmsg(65536, 64)
            except BlockingIOError:
                break
            self.got.append(data)
            self.senders.append(sender[:2])
            self.marks.append(next((value[0] & 3 for _, _, value in ancillary), 0))
            if self.reply:
                self.send(b"re:" + data, sender, self.marks[-1])
        self._changed.set()

    async def wait(self, count):
        while len(self.got) < count:
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 20)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_datagrams_pass_both_ways_with_their_ecn_marks(run, host):
    async def main():
        async with (
            Mailbox(host, reply=True) as server,
            Mailbox(host) as client,
            ImpairmentProxy(server.address, capture=True) as proxy,
        ):
            for ecn in range(4):
                client.send(b"%d" % ecn, proxy.address, ecn)
                await client.wait(ecn + 1)
            assert server.got == [b"0", b"1", b"2", b"3"]
            assert client.got == [b"re:0", b"re:1", b"re:2", b"re:3"]
            assert server.marks == client.marks == [0, 1, 2, 3]
            assert set(client.senders) == {proxy.address}
            assert set(server.senders) == {proxy.flows[0].sock.getsockname()[:2]}
            assert [(seen.up, seen.ecn, seen.size) for seen in proxy.captured] == [
                (up, ecn, size) for ecn in range(4) for up, size in ((True, 1), (False, 4))
            ]

    run(main())


def test_each_client_is_a_flow_of_its_own(run):
    async def main():
        async with Mailbox(reply=True) as server, ImpairmentProxy(server.address) as proxy:
            async with Mailbox() as one, Mailbox() as two:
                one.send(b"one", proxy.address)
                await one.wait(1)
                two.send(b"two", proxy.address)
                await two.wait(1)
                assert (one.got, two.got) == ([b"re:one"], [b"re:two"])
                assert len(set(server.senders)) == len(proxy.flows) == 2

    run(main())


def test_delayed_datagrams_come_in_order_and_late_ones_after_them(run):
    async def main():
        late = Conditions(delay=0.02, reorder=0.2, reorder_delay=0.01)
        async with (
            Mailbox() as server,
            Mailbox() as client,
            ImpairmentProxy(server.address, up=late, seed=3) as proxy,
        ):
            begin = asyncio.get_running_loop().time()
            for number in range(200):
                client.send(number.to_bytes(2, "big"), proxy.address)
            await server.wait(200)
            # Never early; the delay beyond that depends on the machine.
            assert asyncio.get_running_loop().time() - begin >= 0.019
            numbers = [int.from_bytes(data, "big") for data in server.got]
            assert sorted(numbers) == list(range(200))
            assert numbers != sorted(numbers)
            assert proxy.up.reordered > 20

    run(main())


def test_losses_are_the_links_and_are_counted(run):
    async def main():
        async with (
            Mailbox() as server,
            Mailbox() as client,
            ImpairmentProxy(server.address, up=Conditions(loss=0.5), seed=1) as proxy,
        ):
            for number in range(1000):
                client.send(b"%d" % number, proxy.address)
                if number % 50 == 0:
                    await asyncio.sleep(0)
            while proxy.up.taken < 1000:
                await asyncio.sleep(0.01)
            await server.wait(proxy.up.arrived)
            assert proxy.up.lost == 1000 - len(server.got)
            assert 400 < proxy.up.lost < 600
            assert proxy.refused == 0

    run(main())


def test_rebinding_changes_port_and_address_and_forgets_the_old_one(run):
    async def main():
        async with (
            Mailbox() as server,
            Mailbox() as client,
            ImpairmentProxy(server.address) as proxy,
        ):
            client.send(b"before", proxy.address)
            await server.wait(1)
            proxy.rebind()
            client.send(b"port", proxy.address)
            await server.wait(2)
            proxy.rebind("127.0.0.2")
            client.send(b"address", proxy.address)
            await server.wait(3)
            hosts, ports = zip(*server.senders, strict=True)
            assert hosts == ("127.0.0.1", "127.0.0.1", "127.0.0.2")
            assert len(set(ports)) >= 2 and ports[0] != ports[1]
            assert proxy.flows[0].rebinds == 2
            server.send(b"to the old one", server.senders[0])
            server.send(b"to the new one", server.senders[2])
            await client.wait(1)
            assert client.got == [b"to the new one"]
            while proxy.stray == 0:
                await asyncio.sleep(0.01)

    run(main())


def test_a_dead_server_and_what_is_under_way_at_the_end_leave_nothing_behind(run):
    async def main():
        # Objects of earlier tests must not be collected during this one.
        collect()
        descriptors = open_descriptors()
        async with Mailbox() as server:
            gone = server.address
        async with Mailbox() as client:
            async with ImpairmentProxy(gone, up=Conditions(delay=60.0)) as proxy:
                client.send(b"never arrives", proxy.address)
                while proxy.up.taken < 1:
                    await asyncio.sleep(0.01)
            async with ImpairmentProxy(gone) as proxy:
                for _ in range(3):
                    client.send(b"nobody is there", proxy.address)
                    await asyncio.sleep(0.02)
                assert proxy.up.arrived == 3
        assert open_descriptors() <= descriptors

    run(main())
