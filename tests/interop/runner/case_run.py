"""Runs one case: a server, a client, the proxy between them, and a verdict."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.peers import OURS, Peer
from tests.interop.runner import certificates
from tests.interop.runner.cases import Case
from tests.interop.runner.evidence import Evidence
from tests.support.child_processes import bound
from tests.support.free_ports import free_port
from tests.support.udp_proxy import ImpairmentProxy

__all__ = ["FAILED", "PASSED", "UNSUPPORTED", "Outcome", "play"]

PASSED, FAILED, UNSUPPORTED = "pass", "fail", "unsupported"
STATUS_UNSUPPORTED = 127
START_SECONDS = 30.0


@dataclass
class Outcome:
    """The result of a run."""

    verdict: str
    reason: str = ""
    """The reason for a failure; for an unsupported case, the endpoint and its reason."""
    by: str = ""
    """The role that does not support the case."""
    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)


class _Ended(Exception):
    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


async def play(case: Case, server: Peer, client: Peer, folder: Path, seed: int = 1) -> Outcome:
    """Runs `case` once below `folder`, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    run = _Run(case, server, client, folder, seed)
    try:
        run.prepare()
        return await run.play()
    except _Ended as ended:
        return ended.outcome
    finally:
        await run.clean_up()


class _Run:
    def __init__(self, case: Case, server: Peer, client: Peer, folder: Path, seed: int) -> None:
        self.case, self.server, self.client, self.folder = case, server, client, folder
        self.seed = seed
        self.processes: list[asyncio.subprocess.Process] = []
        self.www, self.downloads = folder / "www", folder / "downloads"
        self.key_log = folder / "keys.log"

    def prepare(self) -> None:
        self.certificates = certificates.make(
            self.folder.parent / f"certificates-{self.case.chain}", self.case.chain
        )
        for path in (self.www, self.downloads, self.folder / "rival"):
            path.mkdir(parents=True)
        self.names = [f"file{number}" for number in range(len(self.case.files))]
        for number, (name, size) in enumerate(zip(self.names, self.case.files, strict=True)):
            block = hashlib.sha256(f"{self.seed} {number}".encode()).digest() * 2048
            (self.www / name).write_bytes((block * (size // len(block) + 1))[:size])

    async def play(self) -> Outcome:
        port = await self._start_server()
        if self.case.direct:
            return await self._play_directly(port)
        return await self._play_through_proxy(port)

    async def _play_directly(self, port: int) -> Outcome:
        begin = asyncio.get_running_loop().time()
        address = (self.case.host, port)
        process = await self._start_client(self.case.name, address, self.downloads)
        await self._finished(process, "client", self.client, self.case.seconds)
        seconds = asyncio.get_running_loop().time() - begin
        await self._stop_server()
        return Outcome(PASSED, seconds=seconds)

    async def _play_through_proxy(self, port: int) -> Outcome:
        case, loop = self.case, asyncio.get_running_loop()
        async with ImpairmentProxy(
            (case.host, port), up=case.up, down=case.down, seed=self.seed, capture=True
        ) as proxy:
            if case.during is not None:
                case.during(proxy)
            rival = None
            if case.rival:
                rival = await self._start_client("transfer", proxy.address, self.folder / "rival")
            begin = loop.time()
            test_case = case.client or case.name
            process = await self._start_client(test_case, proxy.address, self.downloads)
            if case.drained and not await self._drain(process):
                raise _Ended(Outcome(FAILED, f"nothing was held back in {case.seconds:g} s"))
            await self._finished(process, "client", self.client, case.seconds)
            seconds = loop.time() - begin
            if rival is not None:
                await self._finished(rival, "client", self.client, case.seconds)
            # The close is still in flight.
            await asyncio.sleep(0.1)
            assert proxy.captured is not None
            seen = Evidence(
                list(proxy.captured),
                self.key_log,
                proxy.up,
                proxy.down,
                sum(case.files),
                seconds,
                proxy.rebound,
            )
        await self._stop_server()
        self._compare_files()
        try:
            for check in case.checks:
                check(seen)
        except (AssertionError, ValueError) as exc:
            raise _Ended(Outcome(FAILED, f"on the wire: {exc}", seconds=seconds)) from None
        return Outcome(PASSED, seconds=seconds, figures=seen.figures)

    async def _start_server(self) -> int:
        process = self.serving = await self._start(
            self.server,
            "server",
            self.case.server or self.case.name,
            ["--www", str(self.www), "--host", self.case.host, "--port", "0", *self._preferred()],
            {},
        )
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), START_SECONDS)
        except asyncio.TimeoutError:
            line = b""
        if not line.startswith(b"READY "):
            await self._finished(process, "server", self.server, 5.0)
            raise _Ended(Outcome(FAILED, f"the server says {line!r}, not READY"))
        return int(line.split()[1])

    def _preferred(self) -> list[str]:
        """Returns a second address of the server, in the case that tests it and if the server
        supports it.
        """
        if self.case.name != "connectionmigration" or not self.server.name.startswith(OURS):
            return []
        return ["--preferred", f"127.0.0.2:{free_port()}"]

    async def _start_client(
        self, test_case: str, address: tuple[str, int], downloads: Path
    ) -> asyncio.subprocess.Process:
        host, port = address
        bracketed = f"[{host}]" if ":" in host else host
        urls = [f"https://{bracketed}:{port}/{name}" for name in self.names or ["none"]]
        return await self._start(
            self.client,
            "client",
            test_case,
            ["--downloads", str(downloads)],
            {"REQUESTS": " ".join(urls), "UPLOADS": str(self.www)},
        )

    async def _start(
        self, peer: Peer, role: str, test_case: str, options: list[str], environment: dict[str, str]
    ) -> asyncio.subprocess.Process:
        own = {
            **os.environ,
            **environment,
            "ROLE": role,
            "TESTCASE": test_case,
            "SSLKEYLOGFILE": str(self.key_log),
            # The files of a killed endpoint are removed with the run.
            "TMPDIR": str(self.folder),
        }
        with open(self._errors(role), "wb") as errors:
            command = [*peer.command(role, test_case), *options, "--certs", self.certificates]
            process = await asyncio.create_subprocess_exec(
                *bound(command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                cwd=Path(__file__).parents[3],
                env=own,
            )
        self.processes.append(process)
        return process

    def _errors(self, role: str) -> Path:
        return self.folder / f"{role}.err"

    async def _finished(
        self, process: asyncio.subprocess.Process, role: str, peer: Peer, seconds: float
    ) -> None:
        """Waits for a process to end with status 0, or ends the run."""
        try:
            status = await asyncio.wait_for(process.wait(), seconds)
        except asyncio.TimeoutError:
            reason = f"the {role} ({peer.name}) did not end in {seconds:g} s"
            raise _Ended(Outcome(FAILED, f"{reason}. {self._said(role)}".strip())) from None
        if status == STATUS_UNSUPPORTED:
            raise _Ended(Outcome(UNSUPPORTED, self._said(role), by=role))
        if status != 0:
            other = "server" if role == "client" else "client"
            said = " / ".join(filter(None, (self._said(role), self._said(other))))
            raise _Ended(Outcome(FAILED, f"the {role} ({peer.name}): status {status}. {said}"))

    def _said(self, role: str) -> str:
        """Returns the last line that an endpoint wrote to its standard error."""
        path = self._errors(role)
        lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
        return lines[-1][:300] if lines else ""

    async def _drain(self, client: asyncio.subprocess.Process) -> bool:
        """Stops the server when the client has half of its response, and then releases the rest.
        Returns False if the half does not arrive.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.case.seconds
        while not (self.www / "held").exists() and client.returncode is None:
            if loop.time() > deadline:
                return False
            await asyncio.sleep(0.02)
        self.serving.terminate()
        # Time in which a server without a graceful stop would close its clients.
        await asyncio.sleep(0.5)
        (self.www / "go").touch()
        return True

    async def _stop_server(self) -> None:
        if not self.case.drained:
            self.serving.terminate()
        await self._finished(self.serving, "server", self.server, 15.0)

    def _compare_files(self) -> None:
        for name in self.names:
            got = self.downloads / name
            if not got.exists():
                raise _Ended(Outcome(FAILED, f"{name} was not fetched"))
            if got.read_bytes() != (self.www / name).read_bytes():
                size = got.stat().st_size
                raise _Ended(Outcome(FAILED, f"{name} differs: {size} bytes arrived"))

    async def clean_up(self) -> None:
        for process in self.processes:
            if process.returncode is None:
                process.kill()
                await process.wait()
        shutil.rmtree(self.downloads, ignore_errors=True)
        shutil.rmtree(self.www, ignore_errors=True)
