"""The order of the modules within a Rust crate. The compiler holds crates apart, and nothing within one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# crate: its modules; each may import those before it. A new module gets its place here, by the journey of a
# packet. The compiler holds the crates themselves apart (Cargo.toml of each).
ORDER = {
    "quic": (
        "workarounds",
        "error",
        "qlog",
        "tls",
        "event",
        "address_tokens",
        "settings",
        "deadline_set",
        "accept_policy",
        "stats",
        "paths",
        "streams",
        "datagram_frame_queue",
        "connection",
        "endpoint",
        # A program's streams need only the public interface of endpoints and connections.
        "read_on_demand",
        # Fuzz targets see it; no module needs it.
        "fuzzing",
    ),
    "http": (
        "ws",
        "content_coding",
        "proxy_protocol",
        "request_head",
        "response_errors",
        "input_buffer_shrink",
        "tcp_output",
        "slow_reader_detection",
        "h3_driver",
        "webtransport",
        "concurrent_requests",
        "http3",
        "http2",
        "http1",
    ),
}

# room: modules with those that they must never import, for rooms without a complete table.
NEVER = {
    "io": {
        "uring": {"driver", "epoll"},
        "epoll": {"driver", "uring"},
        "net": {"driver", "epoll", "operation_table", "receive_buffer_pool", "uring"},
        "background_log_files": {
            "driver",
            "epoll",
            "net",
            "operation_table",
            "receive_buffer_pool",
            "uring",
        },
    },
    "engine": {
        "transport": {"host", "quic", "engine"},
        "quic": {"host", "transport", "engine"},
        # A host can use these without an engine.
        "host": {"one_shot_operations", "quic", "transport", "engine"},
    },
    # The parts of a connection's state that a connection and its streams use.
    "h3": {
        part: {"connection", "request_streams", "control_stream", "send_commands", "request"}
        for part in (
            "critical_streams",
            "request_stream_ids",
            "goaway",
            "peer_capabilities",
            "early_priorities",
            "abandoned_streams",
        )
    },
    # The loop imports all modules that handle its events; each of those imports the loop and modules below.
    "py": {
        "capi": {
            "event_loop",
            "transport",
            "sock",
            "ops",
            "tls",
            "quic",
            "h3",
            "asgi",
            "http3",
            "http1",
            "http2",
            "streams",
            "tcp",
            "webtransport",
        },
        "h3": {
            "event_loop",
            "transport",
            "sock",
            "ops",
            "tls",
            "quic",
            "asgi",
            "http3",
            "http1",
            "http2",
            "streams",
            "tcp",
            "webtransport",
        },
        # Applications are independent of connections and of HTTP's version.
        "asgi": {
            "transport",
            "sock",
            "ops",
            "tls",
            "quic",
            "h3",
            "http3",
            "http1",
            "http2",
            "streams",
            "tcp",
            "webtransport",
        },
        "http3": {"transport", "sock", "ops", "tls", "h3", "streams", "http1", "http2", "tcp"},
        "http1": {"event_loop", "sock", "ops", "quic", "h3", "streams", "http3", "webtransport"},
        "http2": {
            "event_loop",
            "sock",
            "ops",
            "quic",
            "h3",
            "streams",
            "http3",
            "http1",
            "webtransport",
        },
        # `quic` has the settings of TLS.
        "tcp": {
            "event_loop",
            "sock",
            "ops",
            "h3",
            "streams",
            "http3",
            "http1",
            "http2",
            "webtransport",
        },
        "webtransport": {
            "event_loop",
            "transport",
            "sock",
            "ops",
            "tls",
            "h3",
            "asgi",
            "http3",
            "http1",
            "http2",
            "tcp",
        },
        "streams": {
            "event_loop",
            "transport",
            "sock",
            "ops",
            "tls",
            "h3",
            "asgi",
            "http3",
            "http1",
            "http2",
            "tcp",
            "webtransport",
        },
        "quic": {
            "transport",
            "sock",
            "ops",
            "tls",
            "h3",
            "asgi",
            "http3",
            "http1",
            "http2",
            "streams",
            "tcp",
            "webtransport",
        },
        "tls": {
            "sock",
            "ops",
            "quic",
            "h3",
            "asgi",
            "http3",
            "http1",
            "http2",
            "streams",
            "tcp",
            "webtransport",
        },
        "ops": {
            "transport",
            "sock",
            "tls",
            "quic",
            "h3",
            "asgi",
            "http3",
            "http1",
            "http2",
            "streams",
            "tcp",
            "webtransport",
        },
        "websocket_frames": {
            "event_loop",
            "transport",
            "sock",
            "ops",
            "tls",
            "quic",
            "h3",
            "asgi",
            "http3",
            "http1",
            "http2",
            "streams",
            "tcp",
            "webtransport",
        },
        "sock": {
            "transport",
            "tls",
            "quic",
            "h3",
            "asgi",
            "http3",
            "http1",
            "http2",
            "streams",
            "tcp",
            "webtransport",
        },
        "transport": {
            "ops",
            "quic",
            "h3",
            "asgi",
            "http3",
            "http1",
            "http2",
            "streams",
            "tcp",
            "webtransport",
        },
        "event_loop": {"h3", "asgi", "http3", "http1", "http2", "streams", "tcp", "webtransport"},
    },
}

# Rooms and folders whose files and folders need each other in one direction only, whichever that is.
ONE_WAY = (
    "io",
    "wire",
    "limits",
    "quic/tls",
    "quic/workarounds",
    "quic/qlog",
    "http/concurrent_requests",
    "http/http2",
    "http/http3",
    "http/ws",
    "engine",
    "engine/transport",
    "engine/quic",
    "engine/host",
    "py/capi",
    "py/transport",
)

# Folder of a type that consists of parts: the type, its fields beside them, and the files of the parts. Each
# part has its own state and tests, and does not depend on the type.
PARTS = {
    "quic/connection": (
        "Connection",
        {"user": "u64", "quinn": "quinn::Connection"},
        (
            "connection_id_observer",
            "udp_datagram_counters",
            "datagram_frame_sender",
            "event_queue",
            "key_updates",
            "phase",
            "memory_account",
            "negotiated_values",
            "qlog_connection_events",
            "packet_observer",
            "path_observer",
            "ping_observer",
            "preferred_address",
            "received_tickets_and_tokens",
        ),
    ),
}

# Folders whose modules have another name, because theirs is a keyword.
RENAMED = {"loop": "event_loop"}

Graph = dict[str, set[str]]

# Text that never contains a path. A lifetime is not a character literal.
NO_CODE = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | b?r(?P<hashes>\#*)".*?"(?P=hashes)
    | b?"(?:\\.|[^"\\])*" | b?'(?:\\.[^']*|[^\\'])'""",
    re.VERBOSE | re.DOTALL,
)
# An inline module, a brace, or a path with its braces.
TOKEN = re.compile(
    r"""\bmod\s+(?P<module>\w+)\s*\{ | (?P<open>\{) | (?P<close>\})
    | (?<![\w:])(?P<path>(?:crate|self|super)(?:::\w+)*)(?P<tree>::\{)?""",
    re.VERBOSE,
)

# Re-exports of a module below.
PASSED_ON = re.compile(r"\bpub(?:\([^)]*\))? use (?:self::)?(\w+)::([^;]*);")


def module_of(path: Path, room: Path) -> list[str]:
    parts = list(path.relative_to(room).with_suffix("").parts)
    return parts[:-1] if parts[-1] in ("mod", "lib") else parts


def absolute(path: str, module: list[str]) -> list[str]:
    """Returns a path as seen from the root of the crate."""
    first, *rest = path.split("::")
    if first == "crate":
        return rest
    above = module if first == "self" else module[:-1]
    while rest and rest[0] == "super":
        above, rest = above[:-1], rest[1:]
    return above + rest


def branches(code: str, start: int) -> tuple[list[str], int]:
    """Returns the paths in the braces that begin before `start`, and their end."""
    found, prefix, at = [], [""], start
    for match in re.finditer(r"\{|\}|,|[^{},]+", code[start:]):
        text = match[0].strip()
        at = start + match.end()
        if text == "{":
            continue
        if text == "}":
            prefix.pop()
            if not prefix:
                break
        elif text.endswith("::"):
            prefix.append(prefix[-1] + text)
        elif text not in ("", ","):
            found.append(prefix[-1] + text.split(" as ")[0].strip())
    return found, at


def paths(source: str, module: list[str]) -> Iterator[list[str]]:
    """Yields the paths in `source`, the file of `module`, that refer to its own crate, from the root on."""
    code = NO_CODE.sub('""', source)
    inner: list[str | None] = []
    at = 0
    while match := TOKEN.search(code, at):
        at = match.end()
        if match["module"] or match["open"]:
            inner.append(match["module"])
        elif match["close"]:
            inner.pop()
        else:
            here = module + [name for name in inner if name]
            ends = [""]
            if match["tree"]:
                ends, at = branches(code, at)
            for end in ends:
                path = "::".join(part for part in (match["path"], end) if part)
                yield absolute(path.removesuffix("::self"), here)


def modules(room: str) -> dict[str, list[Path]]:
    """Returns the files of each module at the top of a room or of a folder in one, without tests."""
    folder = ROOT / "src" / room
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*.rs")):
        name = path.relative_to(folder).parts[0].removesuffix(".rs")
        if name not in ("lib", "mod", "tests"):
            found.setdefault(RENAMED.get(name, name), []).append(path)
    return found


def passed_on(folder: Path, known: Iterable[str]) -> dict[str, str]:
    """Returns the re-exports of a folder's file: the module of each name."""
    found = {}
    for name in ("mod.rs", "lib.rs"):
        path = folder / name
        code = NO_CODE.sub('""', path.read_text()) if path.exists() else ""
        for module, rest in PASSED_ON.findall(code):
            if module in known:
                found.update(dict.fromkeys(re.findall(r"\w+", rest), module))
    return found


def imports(room: str) -> Graph:
    """Returns the imports between modules, at the top of a room or of a folder in one."""
    known = modules(room)
    crate, *above = room.split("/")
    whose = passed_on(ROOT / "src" / room, known)
    graph: Graph = {name: set() for name in known}
    for name, files in known.items():
        for path in files:
            module = module_of(path, ROOT / "src" / crate)
            for found in paths(path.read_text(), module):
                inside, rest = found[: len(above)], found[len(above) :]
                if inside == above and rest:
                    graph[name].add(whose.get(rest[0], rest[0]))
        graph[name] &= known.keys() - {name}
    return graph


def reachable(graph: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        for name in graph[todo.pop()] - seen:
            seen.add(name)
            todo.append(name)
    return seen


@pytest.mark.parametrize("crate", ORDER)
def test_each_module_imports_only_those_before_it(crate: str) -> None:
    graph, order = imports(crate), ORDER[crate]
    assert graph.keys() == set(order), "modules came or went: mend this table"
    forbidden = {name: graph[name] - set(order[:place]) for place, name in enumerate(order)}
    assert {name: found for name, found in forbidden.items() if found} == {}


@pytest.mark.parametrize("folder", ONE_WAY)
def test_no_two_files_of_a_folder_need_each_other(folder: str) -> None:
    graph = imports(folder)
    assert [name for name in graph if name in reachable(graph, name)] == []


@pytest.mark.parametrize(
    ("room", "module"), [(room, module) for room, rules in NEVER.items() for module in rules]
)
def test_a_module_never_imports_what_it_must_not_know(room: str, module: str) -> None:
    graph = imports(room)
    rule = NEVER[room][module]
    assert rule | {module} <= graph.keys(), "a module is gone: mend this table"
    assert not graph[module] & rule


@pytest.mark.parametrize("folder", PARTS)
def test_parts_of_a_type_have_tests_and_do_not_depend_on_the_type(folder: str) -> None:
    name, _, parts = PARTS[folder]
    graph = imports(folder)
    assert set(parts) <= graph.keys(), "modules came or went: mend this table"
    assert not [part for part in parts if part in reachable(graph, part)]
    for part in parts:
        assert graph[part] <= set(parts), part
        path = ROOT / "src" / folder / f"{part}.rs"
        source = path.read_text()
        assert "\nmod tests {\n" in source, f"{part} has no tests"
        room = ROOT / "src" / folder.split("/")[0]
        users = [found for found in paths(source, module_of(path, room)) if found[-1:] == [name]]
        assert not users, part


@pytest.mark.parametrize("folder", PARTS)
def test_all_state_of_a_type_of_parts_is_in_the_parts(folder: str) -> None:
    name, others, _ = PARTS[folder]
    source = (ROOT / "src" / folder / "mod.rs").read_text()
    body = re.search(rf"pub struct {name} \{{(.*?)\n\}}", source, re.DOTALL)
    assert body
    fields = dict(re.findall(r"^    (?:pub )?(\w+): (.+),$", body[1], re.MULTILINE))
    assert others.items() <= fields.items()
    loose = {
        field: kind
        for field, kind in fields.items() - others.items()
        # A part is a struct of this crate: no number, flag, list or shared object.
        if not re.fullmatch(r"[A-Z]\w+", kind) or kind in ("Vec", "String", "Instant")
    }
    assert loose == {}


def test_the_checker_sees_every_kind_of_path() -> None:
    source = """
    //! crate::comment::X
    use std::{fmt, io::Write};
    use super::{self, above::A, beside::{B, self, C as D}};
    use crate::{one::{two::E, F}, G};
    use self::child::H;
    pub(in crate::quic) fn f<'a>(x: &'a str) -> crate::called::I {
        super::super::higher::call('{', "crate::text::J", br#"crate::raw::K"#)
    }
    mod tests {
        use super::{own::L, super::beside::M};
        fn g() { if true { super::inner::N } }
    }
    use super::after::O;
    """
    found = {"::".join(path) for path in paths(source, ["quic", "endpoint"])}
    assert found == {
        "quic",
        "quic::above::A",
        "quic::beside::B",
        "quic::beside",
        "quic::beside::C",
        "one::two::E",
        "one::F",
        "G",
        "quic::endpoint::child::H",
        "called::I",
        "higher::call",
        "quic::endpoint::own::L",
        "quic::beside::M",
        "quic::endpoint::inner::N",
        "quic::after::O",
    }


def test_only_the_loops_own_thread_reaches_the_engine_past_the_guard() -> None:
    """Without an interpreter lock, `with_engine` excludes other threads; `with_engine_at_hand` does not."""
    users = {
        str(path.relative_to(ROOT / "src/py"))
        for path in (ROOT / "src/py").rglob("*.rs")
        if "with_engine_at_hand(" in path.read_text()
    }
    assert users == {"loop/iteration.rs", "quic/endpoint/event_delivery.rs"}


def left_out(crate: Path) -> list[str]:
    """The files of a crate's tests that no program has. Cargo finds none itself if `autotests` is false."""
    manifest = (crate / "Cargo.toml").read_text()
    if "autotests = false" not in manifest:
        return []
    files = sorted((crate / "tests").rglob("*.rs"))
    code = "".join(path.read_text() for path in files)
    declared = set(re.findall(r"^\s*(?:pub )?mod (\w+);", code, re.MULTILINE))
    return [
        str(path.relative_to(crate))
        for path in files
        if (path.parent.name if path.name == "mod.rs" else path.stem) not in declared
        and str(path.relative_to(crate)) not in manifest
    ]


@pytest.mark.parametrize(
    "crate", sorted(path.parent.name for path in ROOT.glob("src/*/Cargo.toml"))
)
def test_no_file_of_a_crates_tests_is_left_out(crate: str) -> None:
    assert left_out(ROOT / "src" / crate) == []


def test_a_file_that_is_left_out_is_found(tmp_path: Path) -> None:
    (tmp_path / "Cargo.toml").write_text('autotests = false\n[[test]]\npath = "tests/main.rs"\n')
    (tmp_path / "tests" / "common").mkdir(parents=True)
    for name, text in (("main", "mod common;\nmod one;\n"), ("one", ""), ("two", "")):
        (tmp_path / "tests" / f"{name}.rs").write_text(text)
    (tmp_path / "tests" / "common" / "mod.rs").write_text("")
    assert left_out(tmp_path) == ["tests/two.rs"]
