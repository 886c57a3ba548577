"""Live media over WebTransport: one publisher, many subscribers, and a relay between them.

    python examples/media_relay.py                          # all three, for five seconds, and figures
    python examples/media_relay.py --serve --port 4433      # the relay alone, for publishers and players

Media is split into groups. A player can play each group without those before it. Each group is a
unidirectional stream: a byte for the track, four for the group's number, and then the content.
Audio has priority over video. If a subscriber is two groups behind, the relay resets the stream of
the old group, so that the data that arrives is new, and whole. If the publisher resets a group, the
relay resets it for all subscribers with that code.
"""

import argparse
import asyncio
import contextlib
import struct
import time

import uringcore
from uringcore import webtransport
from uringcore.devcert import DevelopmentCertificate
from uringcore.quic import ClientConfig, QuicError, ReceiveStream, ServerConfig, StreamResetError

Identity = tuple[str, str] | tuple[bytes, bytes]
HEAD = struct.Struct("!BI")
SOUND, PICTURES = 0, 1
URGENCY = {SOUND: 1, PICTURES: 4}
GROUPS_BEHIND_MAX = 1


class Group:
    """One group, as far as it has arrived."""

    def __init__(self, track: int, number: int) -> None:
        self.track, self.number = track, number
        self.pieces: list[bytes] = []
        self.is_whole = False
        self.reset_code: int | None = None
        self._news = asyncio.Event()

    def add(self, piece: bytes | None) -> None:
        """Appends a piece; ``None`` ends the group."""
        if piece is None:
            self.is_whole = True
        else:
            self.pieces.append(piece)
        self._tell()

    def reset(self, code: int) -> None:
        """Marks the group as incomplete: no more data will arrive."""
        self.reset_code = code
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def wait_for(self, count: int) -> None:
        """Waits until more than ``count`` pieces have arrived, or the group has ended."""
        while len(self.pieces) <= count and not self.is_whole and self.reset_code is None:
            await self._news.wait()


class Subscriber:
    """One subscriber."""

    def __init__(self, session: webtransport.Session) -> None:
        self.session = session
        self.sending: dict[asyncio.Task[None], Group] = {}
        self.dropped = 0

    def begin(self, group: Group) -> None:
        """Starts a new group: the streams of groups that are too old are reset."""
        for task, old in list(self.sending.items()):
            if old.track == group.track and old.number < group.number - GROUPS_BEHIND_MAX:
                task.cancel()
                # The task ends later, and is counted once.
                del self.sending[task]
                self.dropped += 1
        task = asyncio.create_task(self._send(group))
        self.sending[task] = group
        task.add_done_callback(lambda task: self.sending.pop(task, None))

    async def _send(self, group: Group) -> None:
        # A cancellation leaves the block, which resets the stream.
        with contextlib.suppress(QuicError):
            async with self.session.open_uni_stream() as stream:
                stream.priority(URGENCY.get(group.track, 7))
                await stream.send(HEAD.pack(group.track, group.number))
                sent = 0
                while not group.is_whole or sent < len(group.pieces):
                    await group.wait_for(sent)
                    if group.reset_code is not None:
                        stream.reset(group.reset_code)
                        return
                    for piece in group.pieces[sent:]:
                        await stream.send(piece)
                        sent += 1


class Relay:
    """Sends the media published at ``/publish`` to all sessions at ``/watch``."""

    def __init__(self) -> None:
        self.subscribers: set[Subscriber] = set()

    async def handle(self, session: webtransport.Session) -> None:
        """Serves one session."""
        if session.path == "/publish":
            async with contextlib.AsyncExitStack() as stack:
                tasks: set[asyncio.Task[None]] = set()
                stack.callback(lambda: [task.cancel() for task in tasks])
                async for stream in session.uni_streams():
                    task = asyncio.create_task(self._relay(stream))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
            return
        subscriber = Subscriber(session)
        self.subscribers.add(subscriber)
        try:
            await session.wait_closed()
        finally:
            self.subscribers.remove(subscriber)
            for task in subscriber.sending:
                task.cancel()

    async def _relay(self, stream: ReceiveStream) -> None:
        with contextlib.suppress(QuicError, asyncio.IncompleteReadError):
            group = Group(*HEAD.unpack(await stream.readexactly(HEAD.size)))
            for subscriber in self.subscribers:
                subscriber.begin(group)
            code = 0
            try:
                async for piece in stream:
                    group.add(piece)
                group.add(None)
            except StreamResetError as error:
                code = error.code
            finally:
                # This includes a publisher that disconnected in the middle of the group.
                if not group.is_whole:
                    group.reset(code)


def serve(
    port: int, identity: Identity, relay: Relay
) -> contextlib.AbstractAsyncContextManager[webtransport.Server]:
    """The relay's server; ``identity`` is its certificate and the key."""
    config = ServerConfig(certificate=identity, send_buffer=64 * 1024)
    paths = ["/publish", "/watch"]
    return webtransport.serve("::", port, config=config, paths=paths, handler=relay.handle)


# The publisher and the subscribers ---------------------------------------------------------------


async def publish(url: str, hashes: list[bytes], seconds: float, megabits: float) -> int:
    """Publishes generated video: groups of half a second with 30 frames a second. Each frame begins
    with the time. Returns the number of groups.
    """
    size = max(int(megabits * 1e6 / 8 / 30), 8)
    async with webtransport.connect(url, server_certificate_hashes=hashes) as session:
        groups = int(seconds * 2)
        for number in range(groups):
            async with session.open_uni_stream() as stream:
                await stream.send(HEAD.pack(PICTURES, number) + struct.pack("!I", size))
                for _ in range(15):
                    await stream.send(struct.pack("!Q", time.monotonic_ns()).ljust(size, b"."))
                    await asyncio.sleep(1 / 30)
        return groups


class Watcher:
    """A subscriber, and the frames it has received."""

    def __init__(self, pause: float = 0.0) -> None:
        self.pause = pause
        self.whole = self.lost = 0
        self.delays: list[float] = []

    async def watch(self, url: str, hashes: list[bytes]) -> None:
        """Receives groups until the session ends. A ``pause`` after each frame makes a slow
        subscriber.
        """
        config = ClientConfig(receive_window=1 << 16, connection_receive_window=1 << 18)
        with contextlib.suppress(QuicError):
            async with webtransport.connect(
                url, config, server_certificate_hashes=hashes
            ) as session:
                async with contextlib.AsyncExitStack() as stack:
                    tasks: set[asyncio.Task[None]] = set()
                    stack.callback(lambda: [task.cancel() for task in tasks])
                    async for stream in session.uni_streams():
                        task = asyncio.create_task(self._group(stream))
                        tasks.add(task)
                        task.add_done_callback(tasks.discard)

    async def _group(self, stream: ReceiveStream) -> None:
        try:
            await stream.readexactly(HEAD.size)
            (size,) = struct.unpack("!I", await stream.readexactly(4))
            while True:
                picture = await stream.readexactly(size)
                (sent,) = struct.unpack_from("!Q", picture)
                self.delays.append((time.monotonic_ns() - sent) / 1e6)
                await asyncio.sleep(self.pause)
        except asyncio.IncompleteReadError:
            self.whole += 1
        except StreamResetError:
            self.lost += 1
        except QuicError:
            pass


async def demo(subscribers: int, seconds: float, megabits: float) -> None:
    """Runs a relay, its publisher and subscribers, of which the last is slow."""
    certificate, relay = DevelopmentCertificate.make(), Relay()
    hashes = [certificate.sha256]
    identity = (certificate.certificate_pem, certificate.key_pem)
    async with serve(0, identity, relay) as server:
        url = f"https://localhost:{server.address[1]}"
        watchers = [Watcher() for _ in range(subscribers - 1)] + [Watcher(pause=0.2)]
        watching = [asyncio.create_task(each.watch(f"{url}/watch", hashes)) for each in watchers]
        while len(relay.subscribers) < subscribers:
            await asyncio.sleep(0.01)
        groups = await publish(f"{url}/publish", hashes, seconds, megabits)
        await asyncio.sleep(0.2)
        server.close()
        await asyncio.gather(*watching)
    delays = sorted(delay for each in watchers[:-1] for delay in each.delays)
    whole = sum(each.whole for each in watchers[:-1])
    print(f"{groups} groups to {subscribers} subscribers: {whole} arrived whole at the quick ones")
    if delays:
        p50, p99 = (delays[int(len(delays) * part)] for part in (0.5, 0.99))
        print(f"from publisher to subscriber: {p50:.1f} ms, at 99 % at most {p99:.1f} ms")
    print(f"the slow one: {watchers[-1].whole} groups whole, {watchers[-1].lost} dropped")


async def serve_for_ever(port: int, identity: Identity | None) -> None:
    """Runs only the relay, with its ``identity`` or a development certificate."""
    about = ""
    if identity is None:
        made = DevelopmentCertificate.make()
        identity, about = (made.certificate_pem, made.key_pem), made.describe()
    async with serve(port, identity, Relay()) as server:
        print(f"https://localhost:{server.address[1]}/publish and /watch", flush=True)
        print(about, flush=True)
        await server.wait_closed()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A relay for live media.")
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--port", type=int, default=4433)
    parser.add_argument("--certificate", nargs=2, metavar=("CERT", "KEY"), help="PEM files")
    parser.add_argument("--subscribers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--mbit", type=float, default=2.0)
    args = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        if args.serve:
            uringcore.run(serve_for_ever(args.port, args.certificate and tuple(args.certificate)))
        else:
            uringcore.run(demo(args.subscribers, args.seconds, args.mbit))
