"""The command line: its use without uvicorn, completion, and the source of each option."""

import dataclasses
import inspect
import os
import re
import shlex
import subprocess
import sys

import pytest
from uvicorn.config import Config
from uvicorn.main import main as uvicorn_command

from tests.server.harness import APPLICATION, ROOT, command, environment
from uringcore.quic._qlog_files import TraceLimits
from uringcore.server import _command as command_module
from uringcore.server._http3_limits import limit_options, websocket_limits
from uringcore.server._options_without_effect import PLACES, option_name
from uringcore.server._startup_errors import INSTALL_SERVER

# Arguments of uvicorn's Config that are not on its command line, or not on ours.
NOT_OPTIONS = {"callback_notify", "timeout_notify", "ssl_context_factory"}


def without_uvicorn(folder, *arguments):
    """Runs the command as if uvicorn and click were not installed."""
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('uvicorn', 'click'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
    )
    env = environment()
    env["PYTHONPATH"] = f"{folder}:{env.get('PYTHONPATH', '')}"
    return subprocess.run(
        [sys.executable, *arguments], env=env, capture_output=True, text=True, timeout=60
    )


def test_version_without_uvicorn(tmp_path):
    done = without_uvicorn(tmp_path, "-m", "uringcore", "--version")
    assert done.returncode == 0, done.stderr
    assert re.match(r"uringcore \d+\.\d+\.\d+, CPython \d", done.stdout)
    assert INSTALL_SERVER in done.stdout


def test_help_without_uvicorn(tmp_path):
    done = without_uvicorn(tmp_path, "-m", "uringcore", "--help")
    assert done.returncode == 0, done.stderr
    assert "uringcore get URL" in done.stdout
    assert INSTALL_SERVER in done.stdout


def test_a_uvicorn_that_is_too_old(tmp_path):
    """pyproject.toml gives the oldest version that is accepted."""
    (tmp_path / "uvicorn").mkdir()
    (tmp_path / "uvicorn" / "__init__.py").write_text("__version__ = '0.49.0'")
    env = environment()
    env["PYTHONPATH"] = f"{tmp_path}:{env.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [sys.executable, "-m", "uringcore", "a:b"],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    (least,) = re.findall(r'"uvicorn>=([0-9.]+)"', (ROOT / "pyproject.toml").read_text())
    assert done.stderr == (
        f"uringcore: uvicorn 0.49.0 is too old, {least} or later is needed: {INSTALL_SERVER}\n"
    )


def test_the_packages_to_install_are_those_of_the_extra():
    """The error names the extra's packages: `uringcore` on the public index belongs to another author."""
    extra = re.search(r"(?m)^server = \[(.*)\]$", (ROOT / "pyproject.toml").read_text())
    assert extra is not None
    wanted = re.findall(r'"([^"]+)"', extra[1])
    assert ["pip", "install", *wanted] == shlex.split(INSTALL_SERVER)


def test_names_of_the_package_without_uvicorn(tmp_path):
    done = without_uvicorn(tmp_path, "-c", "from uringcore.server import Server")
    assert done.returncode == 1
    assert "ImportError: the server needs uvicorn, which is not installed" in done.stderr
    done = without_uvicorn(
        tmp_path, "-c", "import uringcore.server as s; print(hasattr(s, 'Nobody'))"
    )
    assert done.stdout == "False\n"


def test_every_option_of_uvicorn_has_its_place():
    """An option that is new in uvicorn fails here until the table says if it works with HTTP/3, and why
    not.
    """
    options = {option.name for option in uvicorn_command.params}
    arguments = set(inspect.signature(Config.__init__).parameters) - {"self"}
    assert options | arguments <= PLACES.keys()
    assert arguments - options == NOT_OPTIONS & arguments


def test_each_limit_is_an_option_with_help():
    limits = limit_options()
    assert command_module.LIMIT_HELP.keys() == limits.keys()
    assert command_module.UNSAID.keys() <= limits.keys()
    traces = {field.name for field in dataclasses.fields(TraceLimits)}
    assert command_module.TRACE_HELP.keys() == traces
    options = {option.name for option in command_module.command.params}
    expected = {f"http3_{name}" for name in limits} | {f"http3_qlog_{name}" for name in traces}
    assert expected <= options


def test_a_limit_without_help_is_no_command(monkeypatch):
    monkeypatch.delitem(command_module.LIMIT_HELP, "max_requests")
    with pytest.raises(KeyError, match="max_requests"):
        command_module.options_of_limits()


def test_help_marks_options_that_act_on_tcp_alone():
    shown = command("--help").stdout
    # Each option starts a line, indented by two columns; click chooses the line breaks of its text.
    texts = ["".join(text.split()) for text in re.split(r"\n  (?=--)", shown)[1:]]
    found = {re.match(r"--[a-z0-9-]*[a-z0-9]", text).group(): text for text in texts}
    names = {option.name for option in uvicorn_command.params}
    alone = {name: place for name, place in PLACES.items() if place is not None and name in names}
    for name, place in alone.items():
        assert "".join(f"[TCP alone: {place}]".split()) in "".join(
            text for option, text in found.items() if option.startswith(option_name(name))
        ), name
    assert sum("[TCPalone:" in text for text in texts) == len(alone)


def test_websocket_options_that_act_on_http3_are_not_marked():
    asked = set()

    class Asked(Config):
        def __getattribute__(self, name):
            asked.add(name)
            return super().__getattribute__(name)

    config = Asked("a:b", log_config=None)
    asked.clear()
    websocket_limits(config)
    assert len(asked) > 4
    assert [name for name in asked - {"ws"} if PLACES[name] is not None] == []


def completions(words, index, shell="bash"):
    """Returns a shell's completions for the word with this index."""
    env = environment() | {
        "_URINGCORE_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(index),
    }
    done = subprocess.run(
        [sys.executable, "-m", "uringcore"], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_completion_of_the_servers_options():
    offered = completions(f"uringcore {APPLICATION} --http3-max", 2)
    assert "--http3-max-requests" in offered
    assert "--http3-max-connections" in offered
    assert "--ssl-keyfile" in completions(f"uringcore {APPLICATION} --ssl", 2)
    assert set(completions(f"uringcore {APPLICATION} --backend ", 3)) == {"uring", "epoll"}


def test_completion_of_get():
    assert completions("uringcore g", 1) == ["get"]
    offered = completions("uringcore get --", 2)
    assert "--cacert" in offered
    assert "--ssl-keyfile" not in offered
    assert set(completions("uringcore get --backend ", 3)) == {"uring", "epoll"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_shells_script(shell):
    env = environment() | {"_URINGCORE_COMPLETE": f"{shell}_source"}
    done = subprocess.run(
        [sys.executable, "-m", "uringcore"], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert f"_URINGCORE_COMPLETE={shell}_complete" in done.stdout


def test_completion_in_a_real_bash(tmp_path):
    """Runs bash's own completion, with a command of our name on the path."""
    script = tmp_path / "uringcore"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m uringcore "$@"\n')
    script.chmod(0o755)
    program = (
        'eval "$(_URINGCORE_COMPLETE=bash_source uringcore)"\n'
        "COMP_WORDS=(uringcore app:app --http3-qlog-d) COMP_CWORD=2\n"
        "_uringcore_completion uringcore 2>/dev/null\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    env = environment() | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", program], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "--http3-qlog-dir\n", done.stderr
