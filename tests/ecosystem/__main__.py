"""`python -m tests.ecosystem`: run suites on several loops and print a table."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.ecosystem.compare import Results, count, differences, flaky, unproved
from tests.ecosystem.environments import environment, wheel
from tests.ecosystem.exceptions import allowed
from tests.ecosystem.localhost_names import with_ipv6_localhost
from tests.ecosystem.projects import BY_NAME, PROJECTS, Project
from tests.ecosystem.redis_and_postgresql import Service, service
from tests.ecosystem.sources import HOME, Missing, Unreachable, unpacked
from tests.ecosystem.suite_processes import BAD, Suite, read_results

LOOPS = ("uring", "epoll")
SHOWN = 40
"""The number of a suite's differences that are printed without -v."""
COLUMNS = (
    *(("project", 22), ("loop", 8), ("tests", 7), ("pass", 7), ("fail", 6), ("skip", 6)),
    *(("only here", 11), ("listed", 8), ("on the loop", 13), ("turns", 10), ("seconds", 9)),
)


@dataclass(frozen=True)
class Options:
    """The choices of the command line."""

    projects: list[Project]
    loops: list[str]
    python: str
    version: str
    keyword: str
    reuse_asyncio: bool
    verbose: bool


def main() -> int:
    """Run the groups of the command line; status 1 if a loop differs from stock asyncio."""
    options = _options()
    try:
        ours = wheel(options.python, options.version)
    except Missing as missing:
        print(missing)
        return 2
    print(f"CPython {options.version}, {ours.name}, every suite beside stock asyncio")
    print("".join(f"{name:>{width}}" for name, width in COLUMNS))
    wrong: list[str] = []
    for project in options.projects:
        if tuple(map(int, options.version.split("."))) < project.python:
            oldest = ".".join(map(str, project.python))
            print(f"{project.name}: skipped, {project.version} needs CPython {oldest}")
            continue
        try:
            wrong.extend(_run(project, options, ours))
        except Unreachable as unreachable:
            print(f"{project.name}: skipped, {unreachable}")
        except (Missing, RuntimeError) as failure:
            print(f"{project.name}: {failure}")
            wrong.append(f"{project.name}: {str(failure).splitlines()[0]}")
    print(f"\n{len(wrong)} differences from stock asyncio" if wrong else "\nno differences")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


def _options() -> Options:
    parser = argparse.ArgumentParser(prog="tests.ecosystem", description=__doc__)
    parser.add_argument("names", nargs="*", help="projects and loops; all of them if none is named")
    parser.add_argument("--python", default=sys.executable, help="the interpreter to test on")
    parser.add_argument("-k", dest="keyword", default="", help="pytest's selection of tests")
    parser.add_argument(
        "--reuse-asyncio",
        action="store_true",
        help="reuse stock asyncio's results of the last run",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="tracebacks of differences")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in (*BY_NAME, *LOOPS)]
    if unknown:
        parser.error(f"{unknown[0]!r} is none of {', '.join((*BY_NAME, *LOOPS))}")
    asked = "import sys; print(sys._base_executable, '%d.%d' % sys.version_info[:2])"
    answer = subprocess.run([given.python, "-c", asked], capture_output=True, text=True, check=True)
    python, version = answer.stdout.split()
    return Options(
        [BY_NAME[name] for name in given.names if name in BY_NAME] or list(PROJECTS),
        [name for name in given.names if name in LOOPS] or list(LOOPS),
        python,
        version,
        given.keyword,
        given.reuse_asyncio,
        given.verbose,
    )


def _run(project: Project, options: Options, ours: Path) -> list[str]:
    """Run the project's suite on stock asyncio and on the chosen loops; return the differences, a
    line each.
    """
    python = environment(project, options.python, options.version, ours)
    sources = unpacked(project, python)
    wrong = []
    with service(project.service) as server, tempfile.TemporaryDirectory("-ecosystem") as scratch:
        server.environment["TMPDIR"] = scratch
        if server.version:
            print(f"  {project.name} talks to {server.version}")
        stock = _results(project, "asyncio", options, python, sources, server, None)
        for loop in options.loops:
            found = _results(project, loop, options, python, sources, server, stock)
            title = f"{project.name} on {loop}"
            wrong.extend(f"{title}: {line}" for line in unproved(found, stock))
            listed = differences(project.name, loop, found, stock)
            for number, (name, what) in enumerate(listed.items()):
                if number == SHOWN and not options.verbose:
                    wrong.append(f"{title}: and {len(listed) - SHOWN} more (-v shows all)")
                    break
                wrong.append(f"{title}: {name}: {what}")
                if options.verbose and name in found:
                    wrong.append(found[name].detail)
    return wrong


def _results(
    project: Project,
    loop: str,
    options: Options,
    python: Path,
    sources: Path,
    server: Service,
    stock: Results | None,
) -> Results:
    folder = HOME / "results" / options.version / f"{project.name}-{loop}"
    prefix = with_ipv6_localhost() if project.needs_ipv6_localhost else ()
    suite = Suite(project, loop, python, sources, folder, server, prefix, options.keyword)
    started = time.monotonic()
    if stock is None and options.reuse_asyncio and (folder / "results.json").exists():
        results = read_results(folder)
    elif stock is None:
        results = suite.run(lambda name: True)
    else:
        # A test that fails on stock asyncio too need not be repeated.
        results = suite.run(lambda name: name not in stock or stock[name].status == "pass")
    _row(project, loop, results, stock, time.monotonic() - started)
    return results


def _row(
    project: Project, loop: str, results: Results, stock: Results | None, seconds: float
) -> None:
    cells: list[object] = [f"{project.name} {project.version}", loop, len(results)]
    cells += [count(results, "pass"), count(results, *BAD), count(results, "skip")]
    if stock is None:
        cells += ["", ""]
    else:
        cells.append(len(differences(project.name, loop, results, stock)))
        cells.append(sum(allowed(project.name, name, loop) is not None for name in results))
    cells.append(sum(bool(result.runs) for result in results.values()))
    cells.append("" if loop == "asyncio" else sum(result.turns for result in results.values()))
    cells.append(f"{seconds:.0f}")
    print(
        "".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, COLUMNS, strict=True)),
        flush=True,
    )
    foreign = [name for name, result in results.items() if result.foreign]
    if foreign and loop != "asyncio":
        print(f"  {len(foreign)} tests also ran a loop that is not ours, like {foreign[0]}")
    again = flaky(results)
    if again:
        print(f"  {loop}: passed only when run again: {', '.join(again)}")


if __name__ == "__main__":
    sys.exit(main())
