"""A program that contains a server with room for one open file, which a stalled response occupies.

python -m tests.server.open_files_program dropped CERTIFICATE KEY FOLDER BACKEND
"""

import asyncio
import contextlib
import os
import sys
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import uringcore
from uringcore import http3
from uringcore.server import Config, Server

SIZE = 1 << 20
PATIENCE = 20
CANNOT_BE_HAD = 77


class Idle(ThreadPoolExecutor):
    """An executor that records calls and runs none."""

    def __init__(self):
        super().__init__(1)
        self.calls = []

    def submit(self, *call):
        self.calls.append(call)
        return Future()


class Application:
    def __init__(self, path):
        self.path = path
        self.begun = []
        self.is_taken = asyncio.Event()
        self.is_asked = asyncio.Event()
        self.may_end = asyncio.Event()

    async def __call__(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        answer = send({"type": "http.response.pathsend", "path": str(self.path)})
        if scope["path"] == "/file":
            self.is_asked.set()
            await answer
            return
        try:
            # The response waits for a thread to read the file.
            answer.send(None)
        except StopIteration:
            os._exit(CANNOT_BE_HAD)
        self.begun.append(answer)
        del answer
        self.is_taken.set()
        await self.may_end.wait()


def uncached_file(folder):
    """Returns a file that the page cache does not hold, so that only a thread can read it."""
    path = Path(folder) / "sent.bin"
    with open(path, "wb") as file:
        file.write(os.urandom(SIZE))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


@contextlib.asynccontextmanager
async def serving(application, certificate, key):
    """Yields a client of a new server."""
    config = Config(
        application,
        host="127.0.0.1",
        port=0,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        http3_max_process_files=1,
        log_config=None,
        lifespan="off",
    )
    server = Server(config)
    task = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    url = f"https://127.0.0.1:{server._listener.port}/"
    async with http3.Client(base_url=url, cafile=certificate) as client:
        yield client
        server.should_exit = server.force_exit = True
    await task


async def fetched(client, path):
    response = await asyncio.wait_for(client.get("/file"), PATIENCE)
    assert response.content == path.read_bytes()


async def dropped(certificate, key, folder):
    """The response is dropped while an exception is in flight: the exception is unchanged, and the next
    response gets the file.
    """
    path = uncached_file(folder)
    application = Application(path)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(Idle())
    async with serving(application, certificate, key) as client:
        taken = asyncio.ensure_future(client.get("/taken"))
        await application.is_taken.wait()
        loop.set_default_executor(ThreadPoolExecutor())
        waiting = asyncio.ensure_future(fetched(client, path))
        await application.is_asked.wait()
        try:
            (application.begun.pop(), 1 / 0)
        except ZeroDivisionError:
            await waiting
        else:
            raise AssertionError("the exception is lost")
        application.may_end.set()
        await asyncio.wait([taken])


async def forked(certificate, key, folder):
    """A forked child runs a server of its own, whose open files do not count in the parent."""
    path = uncached_file(folder)
    application = Application(path)
    asyncio.get_running_loop().set_default_executor(Idle())
    async with serving(application, certificate, key) as client:
        taken = asyncio.ensure_future(client.get("/taken"))
        await application.is_taken.wait()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                uringcore.run(in_child(path, certificate, key))
                # Frees an open file of the parent's, in the child's copy of the objects.
                application.begun.clear()
                uringcore.run(in_child(path, certificate, key))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        with ThreadPoolExecutor(1) as waiter:
            waited = asyncio.wrap_future(waiter.submit(os.waitpid, child, 0))
            assert (await waited)[1] == 0
        # In the parent, the file is still open.
        waiting = asyncio.ensure_future(fetched(client, path))
        await application.is_asked.wait()
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
        application.begun.clear()
        await waiting
        application.may_end.set()
        await asyncio.wait([taken])


async def in_child(path, certificate, key):
    async with serving(Application(path), certificate, key) as client:
        await fetched(client, path)


if __name__ == "__main__":
    what, *files, folder, backend = sys.argv[1:]
    os.environ["URINGCORE_BACKEND"] = backend
    uringcore.run({"dropped": dropped, "forked": forked}[what](*files, folder))
