"""The ends of a stream: protocols that check asyncio's rules, and a plain blocking peer in a thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import random
import select
import socket
import threading
from typing import Any

from tests.stress.byte_pattern import Pattern, Violation
from tests.stress.stress_round import Planned, StressRound


class Watching(asyncio.BaseProtocol):
    """One end of a connection: checks received data and the order of its callbacks."""

    def __init__(
        self, stress_round: StressRound, name: str, expect: str, rng: random.Random
    ) -> None:
        self.stress_round = stress_round
        self.name = name
        self.expect = Pattern(expect)
        self.transport: Any = None
        self.made = 0
        self.lost = 0
        self.eof = False
        self.error: BaseException | None = None
        self.raise_at = -1
        """Raise `Planned` when this many bytes have arrived."""
        # Points at which reading pauses, as (bytes received, seconds).
        self._paused = False
        self._pauses = sorted(
            (rng.randrange(200_000), rng.choice((0.0, 0.001, 0.01)))
            for _ in range(rng.choice((0, 0, 1, 5)))
        )
        self._writable = asyncio.Event()
        self._writable.set()
        self._changed = asyncio.Event()

    @property
    def received(self) -> int:
        """The number of bytes received so far."""
        return self.expect.position

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made += 1
        self.transport = transport
        if self.made > 1 or self.lost:
            self.stress_round.violate(
                f"{self.name}: connection_made, made {self.made}, lost {self.lost}"
            )
        self._changed.set()

    def eof_received(self) -> bool:
        self._alive("eof_received")
        if self.eof:
            self.stress_round.violate(f"{self.name}: eof_received twice")
        self.eof = True
        self._changed.set()
        # True keeps a plain socket open for data that is still to be sent; TLS has no half-close.
        return self.transport.get_extra_info("sslcontext") is None

    def connection_lost(self, exc: BaseException | None) -> None:
        self._alive("connection_lost")
        self.lost += 1
        self.error = exc
        self._writable.set()
        self._changed.set()

    def pause_writing(self) -> None:
        self._alive("pause_writing")
        if not self._writable.is_set():
            self.stress_round.violate(f"{self.name}: pause_writing twice")
        self._writable.clear()

    def resume_writing(self) -> None:
        self._alive("resume_writing")
        if self._writable.is_set():
            self.stress_round.violate(f"{self.name}: resume_writing without a pause")
        self._writable.set()

    def _alive(self, call: str) -> None:
        if self.made != 1 or self.lost:
            self.stress_round.violate(f"{self.name}: {call}, made {self.made}, lost {self.lost}")

    def _took(self, data: bytes | memoryview, call: str) -> None:
        self._alive(call)
        if self.eof:
            self.stress_round.violate(f"{self.name}: {call} after eof_received")
        before = self.received
        with self.stress_round.watching(self.name):
            self.expect.check(data)
        self._changed.set()
        if before < self.raise_at <= self.received:
            self.stress_round.planned += 1
            raise Planned(self.name)
        while self._pauses and self._pauses[0][0] < self.received:
            _, seconds = self._pauses.pop(0)
            # Checked here, because pipes have no is_reading() before CPython 3.11.
            if not self._paused and not self.transport.is_closing():
                self._paused = True
                self.transport.pause_reading()
                asyncio.get_running_loop().call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._paused = False
        if not self.lost and not self.transport.is_closing():
            self.transport.resume_reading()

    async def writable(self) -> None:
        """Waits until the transport accepts more data, or is lost."""
        await self._writable.wait()

    async def until(self, what: str) -> None:
        """Waits until `made`, `eof` or `lost` is set."""
        while not getattr(self, what):
            self._changed.clear()
            await self._changed.wait()

    async def until_received(self, size: int) -> None:
        """Waits until `size` bytes have arrived; raises `Violation` if they cannot arrive any more."""
        while self.received < size:
            if self.lost or self.eof:
                raise Violation(
                    f"{self.name}: {self.received} of {size} bytes, eof {self.eof}, {self.error!r}"
                )
            self._changed.clear()
            await self._changed.wait()


class End(Watching, asyncio.Protocol):
    """An end with asyncio's `Protocol`."""

    def data_received(self, data: bytes) -> None:
        if not data:
            self.stress_round.violate(f"{self.name}: data_received without data")
        self._took(data, "data_received")


class BufferedEnd(Watching, asyncio.BufferedProtocol):
    """An end with asyncio's `BufferedProtocol`."""

    def __init__(
        self, stress_round: StressRound, name: str, expect: str, rng: random.Random
    ) -> None:
        super().__init__(stress_round, name, expect, rng)
        self._buffer = bytearray(rng.choice((1, 100, 4096, 70_000)))

    def get_buffer(self, sizehint: int) -> bytearray | memoryview:
        self._alive("get_buffer")
        # asyncio's TLS slices this buffer: a slice of a bytearray would be a copy, and its bytes would be
        # lost.
        return self._buffer if self.stress_round.ours else memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        # Copied, because a callback may fill the buffer again.
        self._took(bytes(self._buffer[:nbytes]), "buffer_updated")


class Peer:
    """A blocking socket in a thread of its own, without asyncio."""

    def __init__(self, name: str, send: str, expect: str, rng: random.Random) -> None:
        self.name = name
        self._send, self._expect = Pattern(send), Pattern(expect)
        self._rng = rng
        self._result: concurrent.futures.Future[None] = concurrent.futures.Future()

    def start(self, sock: socket.socket, size: int, expected: int) -> asyncio.Future[None]:
        """Sends `size` bytes, shuts down, reads to the end, closes. The future fails on a broken rule.

        `expected` bytes must arrive before the end.
        """
        threading.Thread(target=self._run, args=(sock, size, expected), daemon=True).start()
        return asyncio.wrap_future(self._result)

    def _run(self, sock: socket.socket, size: int, expected: int) -> None:
        try:
            with sock:
                self._talk(sock, size)
            if self._expect.position != expected:
                raise Violation(f"{self.name}: {self._expect.position} of {expected} bytes came")
            self._result.set_result(None)
        except BaseException as failure:
            self._result.set_exception(failure)

    def _talk(self, sock: socket.socket, size: int) -> None:
        sock.setblocking(False)
        rng, pending, reading, writing = self._rng, b"", True, True
        while reading or writing:
            readable, writable, _ = select.select(
                [sock] if reading else [], [sock] if writing else [], [], 30.0
            )
            if not readable and not writable:
                raise Violation(f"{self.name}: the blocking peer waits in vain")
            if readable:
                data = sock.recv(rng.choice((1, 1000, 65536)))
                self._expect.check(data)
                reading = bool(data)
            if writable:
                if not pending and size:
                    pending = self._send.take(min(size, rng.choice((1, 3000, 50_000))))
                    size -= len(pending)
                pending = pending[sock.send(pending) :] if pending else b""
                if not pending and not size:
                    sock.shutdown(socket.SHUT_WR)
                    writing = False
