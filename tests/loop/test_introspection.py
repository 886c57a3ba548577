"""The view of CPython 3.14 on the tasks of a running loop, from within and from another process."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from typing import Any

import pytest

from tests.loop.harness import LOOPS, Runner

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 14), reason="asyncio shows its tasks since Python 3.14"
)


async def waits(event: asyncio.Event) -> None:
    await event.wait()


def test_the_call_graph_of_a_task(run: Runner) -> None:
    async def main() -> None:
        event = asyncio.Event()
        inner = asyncio.create_task(waits(event), name="inner")
        outer = asyncio.create_task(asyncio.wait_for(inner, None), name="outer")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        text = asyncio.format_call_graph(inner)
        assert "Task(name='inner'" in text
        assert "waits()" in text
        assert "Task(name='outer'" in text
        # Our own frames are in it too, of the running task.
        assert "main()" in asyncio.format_call_graph()
        event.set()
        await outer

    run(main())


PROGRAM = """
import asyncio, sys
from tests.loop.harness import factory

async def leaf():
    print("ready", flush=True)
    await asyncio.Event().wait()

async def main():
    async with asyncio.TaskGroup() as group:
        group.create_task(leaf(), name="a leaf")

factory(sys.argv[1])().run_until_complete(main())
"""


@pytest.mark.parametrize("loop", LOOPS)
def test_another_process_sees_the_tasks_of_a_sleeping_loop(loop: str) -> None:
    from asyncio.tools import get_all_awaited_by

    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, loop]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
            tasks: dict[str, Any] = {}
            # An observer that looks while the other still enters its sleep may see no tasks, or
            # inconsistent ones.
            while "a leaf" not in tasks:
                with contextlib.suppress(RuntimeError):
                    threads = get_all_awaited_by(program.pid)
                    tasks = {one.task_name: one for thread in threads for one in thread.awaited_by}
        except PermissionError:
            pytest.skip("this host forbids reading another process's memory")
        finally:
            program.kill()
    frames = [
        frame.funcname for stack in tasks["a leaf"].coroutine_stack for frame in stack.call_stack
    ]
    assert "leaf" in frames
