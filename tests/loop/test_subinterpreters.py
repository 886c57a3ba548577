"""A loop in a subinterpreter that shares the interpreter lock (the legacy kind, which asyncio runs in).

PyO3 lets one interpreter of a process import its modules: the first one that does. Signals belong to the main
interpreter, so no subinterpreter may handle them.
"""

from __future__ import annotations

import pytest

from tests.loop.harness import LOOPS
from tests.loop.test_signals import finish, start

IN_SUBINTERPRETER = """
def run_in_subinterpreter(code):
    try:
        import _interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
        number = interpreters.create(isolated=False)
        interpreters.run_string(number, code)
    else:
        interpreters = _interpreters
        number = interpreters.create("legacy")
        failure = interpreters.exec(number, code)
        assert failure is None, failure
    interpreters.destroy(number)
"""

CODE = """
import asyncio, gc, signal, sys, threading, warnings
sys.path.insert(0, "")
warnings.simplefilter("error")
sys.unraisablehook = lambda told: print("unraisable", told, file=sys.__stderr__)
from tests.loop.harness import Echo, Recorder, factory, listen

async def work():
    loop = asyncio.get_running_loop()
    server, address = await listen(Echo)
    transport, client = await loop.create_connection(Recorder, *address)
    transport.write(b"ping")
    await client.until(lambda: client.data == b"ping")
    transport.close()
    await client.until_call("lost")
    server.close()
    await asyncio.sleep(0.001)
    assert await loop.run_in_executor(None, threading.get_ident) != threading.get_ident()
    await loop.shutdown_default_executor()
    try:
        loop.add_signal_handler(signal.SIGUSR1, print)
    except (RuntimeError, ValueError):
        return "done"

loop = factory({name!r})()
asyncio.set_event_loop(loop)
assert loop.run_until_complete(work()) == "done"
assert loop.run_until_complete(asyncio.sleep(0.001, "again")) == "again"
loop.close()

warnings.simplefilter("ignore")
dropped = factory({name!r})()
dropped.run_until_complete(asyncio.sleep(0.001))
del dropped
gc.collect()
asyncio.set_event_loop(None)
del loop
"""


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_in_a_legacy_subinterpreter(name: str) -> None:
    body = f"{IN_SUBINTERPRETER}\nrun_in_subinterpreter({CODE.format(name=name)!r})\n"
    process = start("stock", body)  # the main interpreter must not import ours
    assert finish(process) == (0, "", "")
