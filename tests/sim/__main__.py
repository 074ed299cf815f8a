"""Simulate many seeds, or one again:

    python -m tests.sim --seeds 500         seeds 0 to 499; as `make test` does
    python -m tests.sim --seed 61           one, with what happened in it
    python -m tests.sim --mutations         does the simulation see what is wrong? a table

Strings and objects have no order here that changes from one process to the next: PYTHONHASHSEED is 0.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Iterator

from tests.sim.mutations import MUTATIONS, SEEN_ELSEWHERE
from tests.sim.simulation import Outcome, simulate
from tests.sim.world import World

FAULTS_SHOWN = 5


def main() -> int:
    options = _options()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.sim", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    if options.seed is not None:
        return _one(options.seed, options.mutation)
    if options.mutation is not None:
        return _mutations([options.mutation], options.seeds)
    if options.mutations:
        return _mutations(MUTATIONS, options.seeds)
    return _many(range(options.first, options.first + options.seeds), options.workers)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="deterministic simulation")
    parser.add_argument("--seeds", type=int, default=500, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="just this one, and tell what happened")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument(
        "--mutation", choices=MUTATIONS, help="this fault of our own must be seen, by --seed or one of them"
    )
    parser.add_argument("--mutations", action="store_true", help="with faults of our own, which must be seen")
    return parser.parse_args()


def _many(seeds: range, workers: int) -> int:
    began = time.perf_counter()
    count = acknowledged = handled = crashes = 0
    virtual = 0.0
    failed: list[Outcome] = []
    for outcome in _outcomes(seeds, workers):
        count += 1
        acknowledged += outcome.acknowledged
        handled += outcome.handled
        crashes += outcome.crashes
        virtual += outcome.virtual_seconds
        if outcome.found:
            failed.append(outcome)
            _tell(outcome)
        if count % 1000 == 0:
            print(
                f"{count} seeds, {len(failed)} failed, {count / (time.perf_counter() - began):.1f}/s",
                flush=True,
            )
    seconds = time.perf_counter() - began
    print(
        f"{count} seeds from {seeds.start}: {len(failed)} failed; {acknowledged} messages acknowledged, "
        f"{handled} handled, {crashes} kills and power cuts; {count / seconds:.1f} seeds a second, "
        f"{virtual / seconds:.0f} times as fast as the clock"
    )
    return 1 if failed else 0


def _outcomes(seeds: range, workers: int) -> Iterator[Outcome]:
    if workers < 2:
        yield from map(simulate, seeds)
        return
    # A fresh process now and then: what a run leaves behind must not add up.
    with multiprocessing.get_context("fork").Pool(workers, maxtasksperchild=20) as pool:
        yield from pool.imap_unordered(simulate, seeds, chunksize=5)


def _tell(outcome: Outcome) -> None:
    print(f"seed {outcome.seed} FAILED ({len(outcome.found)} faults); again: {outcome.replay}")
    for fault in outcome.found[:FAULTS_SHOWN]:
        print(f"    {fault}")
    sys.stdout.flush()


def _one(seed: int, mutation: str | None) -> int:
    worlds: list[World] = []
    outcome = simulate(seed, mutation, worlds)
    print(worlds[0].plan)
    for t, operation, result, *what in worlds[0].history.operations:
        print(f"{t:10.6f} {operation:9} {result:5} {' '.join(map(str, what))}")
    print(f"history {outcome.digest}, {outcome.virtual_seconds:.1f} s in {outcome.seconds:.2f} s")
    if outcome.found:
        _tell(outcome)
        return 1
    print(f"seed {seed}: nothing wrong")
    return 0


def _mutations(names: Iterable[str], seeds: int) -> int:
    """Each of them until it is caught; those that are not within so many seeds are reported."""
    missed = 0
    print(f"{'mutation':24} {'caught by':12} {'seed':>5} {'seconds':>8}  what it does")
    for name in names:
        mutation = MUTATIONS[name]
        began = time.perf_counter()
        caught = next((each for each in (simulate(seed, name) for seed in range(seeds)) if each.found), None)
        seconds = time.perf_counter() - began
        if caught is not None:
            by = caught.found[0].partition(":")[0][:12]
        elif name in SEEN_ELSEWHERE:
            by = "elsewhere"
        else:
            by = "NOT CAUGHT"
            missed += 1
        print(
            f"{name:24} {by:12} {caught.seed if caught else '-':>5} {seconds:8.1f}  {mutation.__doc__}",
            flush=True,
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
