"""Interleaved rounds of one case.

Each round visits every peer once and starts one peer further each time, so that a machine that warms up,
throttles or is shared does not favour the peer that is measured first. Each visit has a fresh server.
"""

from __future__ import annotations

from benchmarks.harness import machine, syscalls
from benchmarks.harness.cases import Case
from benchmarks.harness.environment import Environment
from benchmarks.harness.peers import PEERS, Peer, load_command, load_missing
from benchmarks.harness.process import (
    CLIENT_CORE,
    SERVER_CORE,
    BenchmarkFailure,
    Server,
    run_load,
)
from benchmarks.harness.results import CaseResult, PeerResult
from benchmarks.harness.round_plan import AMOUNT_ROUNDS, AMOUNT_SECONDS, GRACE_SECONDS, Plan

COUNTED_SECONDS = 0.5


def run_case(case: Case, environment: Environment, plan: Plan) -> CaseResult:
    """All rounds of `case`.

    A peer that fails is marked as failed and left out of the following rounds. If it is not another
    project's, its failure raises `BenchmarkFailure` instead, unless `plan.keep_going`.
    """
    amount, rounds = None, plan.rounds
    if case.amount is not None:
        amount, rounds = case.amount.told(quick=plan.quick), min(rounds, AMOUNT_ROUNDS)
    result = CaseResult(case.name, machine.facts(environment), rounds, plan.seconds, amount)
    present: list[Peer] = []
    for peer in PEERS[case.family]:
        if plan.peers and peer.name not in plan.peers:
            continue
        reason = peer.absent(environment) or load_missing(environment, case, peer)
        result.peers[peer.name] = PeerResult(absent=reason)
        if reason is None:
            present.append(peer)
        else:
            print(f"  {peer.name:16} absent: {reason}", flush=True)
    for number in range(rounds):
        shift = number % max(len(present), 1)
        for peer in present[shift:] + present[:shift]:
            outcome = result.peers[peer.name]
            if outcome.failed is not None:
                continue
            try:
                _visit(case, peer, environment, plan, number, outcome)
            except BenchmarkFailure as failure:
                if not (plan.keep_going or peer.foreign):
                    raise
                outcome.failed = str(failure)
                print(f"  {peer.name:16} FAILED: {failure}", flush=True)
    return result


def _visit(
    case: Case,
    peer: Peer,
    environment: Environment,
    plan: Plan,
    number: int,
    outcome: PeerResult,
) -> None:
    counting = number < plan.counted_rounds and syscalls.unavailable() is None
    if peer.alone:
        sample = _load(case, plan, [*peer.command(environment), *case.load[1:]], core=SERVER_CORE)
    else:
        with Server(peer.name, peer.command(environment), {"PYTHONPATH": ""}) as server:
            command = load_command(environment, case, peer, server)
            sample = _load(case, plan, command)
            if counting:
                with syscalls.SyscallCounter(server.pid) as counter:
                    counted = _load(case, plan, command, counting=True)
                units = case.unit.count_of_visit(counted)
                sample["syscalls_per_unit"] = counter.count / max(units, 1)
    outcome.samples.append(sample)
    rate = case.unit.rate_of(sample)
    print(f"  round {number + 1}  {peer.name:16} {rate:>12,.2f} {case.unit.rate}", flush=True)


def _load(
    case: Case, plan: Plan, command: list[str], *, counting: bool = False, core: int = CLIENT_CORE
) -> dict[str, float]:
    """Run the load generator for its window, or for the short one in which calls are counted."""
    seconds, warmup = (COUNTED_SECONDS, 0.0) if counting else (plan.seconds, plan.warmup)
    limit = plan.seconds + plan.warmup + GRACE_SECONDS
    command = [*command, "--seconds", str(seconds), "--warmup", str(warmup)]
    if case.amount is not None:
        command += case.amount.arguments(quick=plan.quick, counting=counting)
        limit = max(limit, AMOUNT_SECONDS)
    return run_load(command, limit, core)
