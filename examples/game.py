"""A game in which each player sees its neighbours, for a thousand players and more. All messages
are datagrams: a lost one does no harm, because the next one is newer anyway.

    python examples/game.py serve 4433
    python examples/game.py play localhost 4433 certificate.pem 1000

A player sends its direction, ``(x, y)`` in a byte each. At the next tick it receives the positions
of the others in its part of the world. The second command runs that many players at once.
"""

import asyncio
import contextlib
import random
import resource
import sys
import tempfile

import uringcore
from uringcore import quic
from uringcore.devcert import DevelopmentCertificate

ALPN = ["game"]
TICK = 0.1
SIZE, PART = 4096, 128  # The width of the world, and of one part of it.
SEEN_MAX = 100  # The number of positions that fit in a datagram, at four bytes each.


class World:
    """The positions of the players, and the players that await an update."""

    def __init__(self) -> None:
        self.players: dict[quic.Connection, tuple[int, int]] = {}
        self.waiting: set[quic.Connection] = set()

    async def play(self, player: quic.Connection) -> None:
        """Serves one player while its connection is open."""
        self.players[player] = (random.randrange(SIZE), random.randrange(SIZE))
        with contextlib.suppress(quic.QuicError):
            async with player:
                async for move in player.datagrams():
                    self.move(player, move)
        del self.players[player]
        self.waiting.discard(player)

    def move(self, player: quic.Connection, move: bytes) -> None:
        """Applies a move; ignores any other datagram."""
        if len(move) == 2:
            x, y = self.players[player]
            self.players[player] = (x + move[0] - 128) % SIZE, (y + move[1] - 128) % SIZE
            self.waiting.add(player)

    async def tick(self) -> None:
        """Sends updates to the players that have moved, in a loop."""
        while True:
            await asyncio.sleep(TICK)
            parts: dict[tuple[int, int], bytearray] = {}
            for x, y in self.players.values():
                seen = parts.setdefault((x // PART, y // PART), bytearray())
                if len(seen) < 4 * SEEN_MAX:
                    seen += x.to_bytes(2, "big") + y.to_bytes(2, "big")
            while self.waiting:
                player = self.waiting.pop()
                x, y = self.players[player]
                with contextlib.suppress(quic.QuicError):  # it left, or accepts only smaller ones
                    player.send_datagram(parts[x // PART, y // PART])


async def serve(port: int) -> None:
    """Runs a world until it is interrupted."""
    world, tasks = World(), set[asyncio.Task[None]]()
    with tempfile.TemporaryDirectory() as folder:
        identity = DevelopmentCertificate.make().write(folder)
        async with quic.listen("::", port, certificate=identity, alpn=ALPN) as listener:
            print(f"port {listener.address[1]}, authority {identity[0]}", flush=True)
            ticking = asyncio.create_task(world.tick())
            ticking.add_done_callback(lambda _: listener.close())
            async for player in listener:
                task = asyncio.create_task(world.play(player))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            await ticking  # An error of the ticker becomes the server's error.


async def play(player: quic.Connection) -> int:
    """Walks, in steps that may be lost, for some updates. Returns each one's number of players."""
    seen: list[int] = []
    while len(seen) < 10:
        player.send_datagram(bytes(random.randrange(256) for _ in range(2)))
        with contextlib.suppress(asyncio.TimeoutError):
            seen.append(len(await asyncio.wait_for(player.receive_datagram(), 1)) // 4)
    return max(seen)


async def play_all(host: str, port: int, authority: str, count: int) -> None:
    """Starts to play when all players are connected."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    config = quic.ClientConfig(alpn=ALPN, authorities=authority)
    doors = asyncio.Semaphore(50)

    async def enter(world: contextlib.AsyncExitStack) -> quic.Connection:
        async with doors:
            return await world.enter_async_context(quic.connect(host, port, config))

    async with contextlib.AsyncExitStack() as world:
        players = await asyncio.gather(*(enter(world) for _ in range(count)))
        seen = await asyncio.gather(*map(play, players))
    print(f"{len(seen)} have played, and seen up to {max(seen)} at once")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        match sys.argv[1:]:
            case ["serve", port]:
                uringcore.run(serve(int(port)))
            case ["play", host, port, authority, count]:
                uringcore.run(play_all(host, int(port), authority, int(count)))
            case _:
                sys.exit(__doc__)
