#!/usr/bin/env python3
"""Run the benchmarks and write BENCHMARK.md, docs/benchmarks and README's table of figures.

    python benchmarks/run.py                  every case, 7 rounds
    python benchmarks/run.py --quick 1k       the echoes of 1 KiB in short rounds
    python benchmarks/run.py --profile quic   where the time of the QUIC cases goes (root, perf)
    python benchmarks/run.py --report         all pages and charts again from the committed figures
    python benchmarks/run.py --collect        the figures again from benchmarks/results, if these are no older
                                              than the committed tables, then the pages
    python3.11 benchmarks/run.py --beside tcp  loops on another CPython, shown in ratios beside the tables

The first run makes a separate environment (a virtual environment with the peers and this project's wheel as
`make wheel` builds it, the native programs, a certificate); the wheel is built again when its sources change.
A failure of another project's peer, such as a hang or a wrong byte, is shown in its table, and the run
continues. A failure of this project or of a native program ends the run with status 1; with `--keep-going`
the other peers are finished first.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import environment, figures, machine, profile, report, syscalls
from benchmarks.harness.cases import CASES, Case, select
from benchmarks.harness.matrix import MATRICES, run_matrix
from benchmarks.harness.peers import PEERS
from benchmarks.harness.process import BenchmarkFailure
from benchmarks.harness.results import RESULTS
from benchmarks.harness.round_plan import SECONDS_MIN, Plan
from benchmarks.harness.rounds import run_case

QUICK = Plan(rounds=3, seconds=1.0, warmup=0.3, counted_rounds=1, keep_going=False, quick=True)
FULL = Plan(rounds=7, seconds=3.0, warmup=0.5, counted_rounds=3, keep_going=False)


def main() -> int:
    """Parse the command line, run, report."""
    options = _options()
    # SIGTERM ends a run by an exception, so that servers and probes are stopped too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    # A program sends SIGHUP to servers to replace workers; they would inherit an ignored one from nohup.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)
    if options.list:
        print("\n".join(f"{table.name:20} {table.title}" for table in (*CASES, *MATRICES)))
        return 0
    if options.collect:
        print(f"{figures.collect() + profile.collect()} tables collected from {RESULTS}")
    if options.collect or options.report:
        report.write()
        return 0
    try:
        cases, matrices = select(options.cases)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    place = environment.set_up(options.python, options.venv, install=not options.no_install)
    if options.profile:
        return _profile(cases, place, options)
    plan = _plan(options)
    _say_conditions()
    failed = False
    for case in cases:
        print(case.title, flush=True)
        try:
            result = run_case(case, place, plan)
        except BenchmarkFailure as failure:
            print(f"FAILED: {case.name}: {failure}", file=sys.stderr)
            return 1
        failed |= any(
            result.peers[peer.name].failed is not None
            for peer in PEERS[case.family]
            if peer.name in result.peers and not peer.foreign
        )
        result.save(beside=options.beside)
        figures.keep_case(case, result, beside=options.beside)
    for matrix in matrices:
        print(matrix.title, flush=True)
        try:
            rates = run_matrix(matrix, place, plan)
        except BenchmarkFailure as failure:
            print(f"FAILED: {matrix.name}: {failure}", file=sys.stderr)
            return 1
        rates.save(beside=options.beside)
        figures.keep_matrix(matrix, rates, beside=options.beside)
    report.write()
    return 1 if failed else 0


def _profile(cases: list[Case], place: environment.Environment, options: Any) -> int:
    reason = profile.unavailable()
    if reason is not None:
        print(f"--profile: {reason}", file=sys.stderr)
        return 1
    for case in cases:
        print(case.title, flush=True)
        try:
            found = profile.profile_case(
                case, place, options.seconds or FULL.seconds, frozenset(options.peers)
            )
        except BenchmarkFailure as failure:
            print(f"FAILED: {case.name}: {failure}", file=sys.stderr)
            return 1
        found.save()
        found.keep()
    report.write()
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "cases",
        nargs="*",
        help=(
            "case names or tags (loop, tcp, tls, udp, 1k, 10k, 100k, idle, quic, h3, bare, fastapi, "
            "quicgo, h1, h2, https, webtransport, ws, static); all if none"
        ),
    )
    parser.add_argument("--peers", nargs="+", default=[], help="only these peers")
    parser.add_argument("--quick", action="store_true", help="3 short rounds")
    parser.add_argument("--rounds", type=int, help="rounds of each case")
    parser.add_argument(
        "--counted-rounds", type=int, help="short rounds in which system calls are counted"
    )
    parser.add_argument("--seconds", type=_seconds, help="timed window of a visit, at least 1")
    parser.add_argument("--keep-going", action="store_true", help="finish before failing")
    parser.add_argument("--python", type=Path, help="interpreter to make the environment with")
    parser.add_argument("--venv", type=Path, help="environment to use instead of our own")
    parser.add_argument(
        "--beside", action="store_true", help="keep the tables, add this interpreter's ratios"
    )
    parser.add_argument("--no-install", action="store_true", help="install and build nothing")
    parser.add_argument("--profile", action="store_true", help="write profiles instead of tables")
    parser.add_argument("--list", action="store_true", help="print the cases' names")
    parser.add_argument("--report", action="store_true", help="write the report, run nothing")
    parser.add_argument(
        "--collect", action="store_true", help="report from all of benchmarks/results, run nothing"
    )
    return parser.parse_args()


def _seconds(text: str) -> float:
    seconds = float(text)
    if seconds < SECONDS_MIN:
        raise argparse.ArgumentTypeError(f"{text} is less than {SECONDS_MIN:g} second")
    return seconds


def _plan(options: argparse.Namespace) -> Plan:
    base = QUICK if options.quick else FULL
    return Plan(
        rounds=options.rounds or base.rounds,
        seconds=options.seconds or base.seconds,
        warmup=base.warmup,
        counted_rounds=(
            base.counted_rounds if options.counted_rounds is None else options.counted_rounds
        ),
        keep_going=options.keep_going,
        peers=frozenset(options.peers),
        quick=base.quick,
    )


def _say_conditions() -> None:
    load = machine.load_average()
    if load > 0.5:
        print(f"note: load average {load:.1f}; figures of a busy machine are noise", flush=True)
    reason = syscalls.unavailable()
    if reason is not None:
        print(f"note: system calls are not counted: {reason}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
