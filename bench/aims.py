"""What is aimed for: how far ahead of Apache's broker to be, and what must not grow.

An aim that was missed is shown, and fails nothing; what is promised is in `report.goals`.
"""

from __future__ import annotations

from typing import Any

from bench import flatness, footprint, java_clients, messages, report
from bench.report import Goal
from bench.servers import APACHE, OURS

RATES = {
    "send 64x16, 1 KiB": 2.2,
    "send 64x1, 1 KiB": 1.6,
    "send 4x64, 1 KiB": 1.7,
    "send 1x1, 1 KiB": 1.4,
    "send 64x16, 128 B": 2.1,
    "send 64x1, 128 B": 1.6,
    "send 64x16, 1 KiB, sync": 2.2,
    "send 64x1, 1 KiB, sync": 1.4,
    "pull 16x1, 32 each": 1.4,
    "pull 16x4, 32 each": 1.8,
    "pull 16x1, 1 tag of 10": 1.0,
    "pull 16x1, SQL92, 1 of 10": 1.0,
}
"""Ours to Apache's, by case."""
CPU, LATENCY, GROWTH, JAVA_CLIENT = 0.4, 1.0, 1.2, 1.2
FOOTPRINT = {
    "idle_mib": ("idle name server and broker", 0.13),
    "start_ms": ("start to first acknowledged send", 0.1),
    "restart_ms": ("start after a kill, everything stored", 1.0),
}


def aims(results: dict[str, Any]) -> list[Goal]:
    """Only those that were measured."""
    found = _message_aims(results)
    if "footprint" in results:
        figures = footprint.from_json(results["footprint"])
        for what, (name, limit) in FOOTPRINT.items():
            ratio = figures.ratio(what)
            if ratio is not None:
                found.append(_at_most(f"{name}, against Apache's", ratio, limit))
    for row in flatness.from_json(results.get("flatness", [])):
        found.append(_at_most(f"cost of a send, {row.few:,} to {row.many:,} {row.axis}", row.ratio, GROWTH))
    if "java_clients" in results:
        measured = java_clients.from_json(results["java_clients"])
        for programme in measured.rates:
            name = f"Apache's benchmark {programme} against both"
            found.append(_at_least(name, measured.ratio(programme), JAVA_CLIENT))
    return found


def _message_aims(results: dict[str, Any]) -> list[Goal]:
    found = []
    compared = {case: row for case, row in results["messages"].items() if APACHE in row}
    for case, row in compared.items():
        if case in RATES:
            found.append(_at_least(f"{case}, rate", report.ratio(results, case) or 0.0, RATES[case]))
        else:
            found += [
                _at_most(f"{case}, {share}", row[OURS][share] / row[APACHE][share], LATENCY)
                for share in ("p50", "p99")
            ]
    costs = [_at_most(f"{case}, broker CPU", cpu_ratio(results, case), CPU) for case in compared]
    return found + costs


def cpu_ratio(results: dict[str, Any], case: str) -> float:
    """The CPU a message costs our broker to what it costs Apache's."""
    row = results["messages"][case]
    return float(row[OURS]["cpu_us"] / row[APACHE]["cpu_us"])


def _at_least(name: str, value: float, limit: float) -> Goal:
    return Goal(name, value, limit, "x", at_most=False, is_aim=True)


def _at_most(name: str, value: float, limit: float) -> Goal:
    return Goal(name, value, limit, "x", at_most=True, is_aim=True)


assert RATES.keys() <= {case.name for case in messages.CASES}
