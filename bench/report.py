"""The table a person reads, the goals it is held against, and the JSON a machine compares."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import clients, lookups, messages, metrics, replication, spark, spark_archive, spark_sink
from bench.servers import APACHE, NEWER, OURS
from kourou import native

SEND_CASE = "send 64x16, 1 KiB"
BASELINE = Path(__file__).with_name("baseline.json")


@dataclass(frozen=True)
class Goal:
    """A figure that was promised; or one that is aimed for, and promised when it was shown once."""

    name: str
    value: float
    limit: float
    unit: str
    at_most: bool
    is_aim: bool = False

    @property
    def reached(self) -> bool:
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    def __str__(self) -> str:
        sign = "≤" if self.at_most else "≥"
        verdict = "reached" if self.reached else "not yet" if self.is_aim else "MISSED"
        return f"  {self.name:<58} {self.value:>12,.2f} {self.unit:<4} {sign} {self.limit:>9,g}   {verdict}"


def message_table(
    figures: dict[str, dict[str, messages.Figures]], results: dict[str, Any], baseline: dict[str, Any]
) -> str:
    """`ratio` is ours to Apache's, `was` the same in the recorded baseline."""
    ceiling = results["ceiling"]
    lines = [
        f"{'':<25} | {OURS:^32} | {APACHE:^32} | {'ratio':>6} | {'was':>6} | {'ceiling':>9} | {NEWER:>12}",
        f"{'case':<25} | {TITLES} | {TITLES} | {'':>6} | {'':>6} | {'msg/s':>9} | {'msg/s':>12}",
    ]
    lines.append("-" * len(lines[1]))
    for case, row in figures.items():
        top = f"{ceiling[case]:>9,.0f}" if case in ceiling else " " * 9
        newer = f"{row[NEWER].rate:>12,.0f}" if NEWER in row else " " * 12
        lines.append(
            f"{case:<25} | {_cells(row[OURS])} | {_cells(row.get(APACHE))} | "
            f"{_shown(ratio(results, case)):>6} | {_shown(ratio(baseline, case)):>6} | {top} | {newer}"
        )
    return "\n".join(lines)


TITLES = f"{'msg/s':>10} {'p99 ms':>8} {'CPU µs/msg':>12}"


def ratio(results: dict[str, Any], case: str) -> float | None:
    """Ours to Apache's, the median over the rounds; None when Apache was not measured.

    Figures recorded before rounds were kept have only the medians of each side.
    """
    rounds: dict[str, list[float]] = results.get("ratios", {})
    if case in rounds:
        return median(rounds[case])
    row: dict[str, dict[str, float]] = results.get("messages", {}).get(case, {})
    return row[OURS]["rate"] / row[APACHE]["rate"] if APACHE in row else None


def _shown(ratio: float | None) -> str:
    return "?" if ratio is None else f"{ratio:.2f}x"


def _cells(values: messages.Figures | None) -> str:
    if values is None:
        return f"{'NOT MEASURED':^32}"
    return f"{values.rate:>10,.0f} {values.p99 / 1000:>8.2f} {values.cpu_us:>12.1f}"


def lookup_table(figures: dict[str, lookups.Figures]) -> str:
    title = f"{'name server':<14} | {'lookups/s':>10} {'p99 ms':>8} {'CPU µs':>7}"
    lines = [f"{title} | {'blocked ms':>10} | {'idle MiB':>8}"]
    lines.append("-" * len(lines[0]))
    for system, row in figures.items():
        lookups_done = f"{row.lookups:>10,.0f} {row.lookup_p99_us / 1000:>8.2f} {row.lookup_cpu_us:>7.1f}"
        lines.append(
            f"{system:<14} | {lookups_done} | {row.registration_blocks_ms:>10.1f} | {row.idle_mib:>8.1f}"
        )
    return "\n".join(lines)


def goals(results: dict[str, Any]) -> list[Goal]:
    """What the figures are held against; only those that were measured."""
    found = []
    if "name_server" in results:
        mine = results["name_server"][OURS]
        found += [
            Goal("route lookups, 1,000 topics x 8 queues", mine["lookups"], 20_000, "/s", False),
            Goal("others wait while 5,000 topics register", mine["registration_blocks_ms"], 100, "ms", True),
            Goal("idle name server", mine["idle_mib"], 35, "MiB", True),
            Goal("name server, start to first answer", results["start_ms"], 300, "ms", True),
            Goal("frame decode + header parse of a send", results["decode_us"], 3, "µs", True),
            Goal("import kourou", results["import_ms"], 90, "ms", True),
        ]
    if "startup" in results:
        found += _start_goals(results["startup"], results["restart"][-1])
    if "clients" in results:
        found += _client_goals(clients.from_json(results["clients"]))
    if "metrics" in results:
        watched = metrics.Figures(**results["metrics"])
        name = "send, metrics fetched every second, against none"
        found += [
            Goal(name, watched.ratio, 0.98, "x", False, is_aim=True),
            Goal(f"{name}, by CPU", watched.cpu_ratio, 0.98, "x", False, is_aim=True),
        ]
    if "replication" in results:
        found += _replication_goals(replication.from_json(results["replication"]))
    if "spark" in results:
        found += _spark_goals(spark.from_json(results["spark"]))
    if "spark_sink" in results:
        found += _sink_goals(spark_sink.Figures(**results["spark_sink"]))
    if "spark_archive" in results:
        figures = spark_archive.Figures(**results["spark_archive"])
        for task, writer in spark_archive.PAIRS:
            what = f"archive: {task}, against Spark's writer"
            found.append(Goal(what, figures.ratio(task, writer), 2, "x", False, is_aim=True))
    row = results["messages"].get(SEND_CASE)
    if row is not None:
        # A server that does nothing must be far ahead of one that does, or the generator is what is measured.
        headroom = results["ceiling"][SEND_CASE] / row[OURS]["rate"]
        found.append(Goal("the generator's own ceiling to our rate", headroom, 2, "x", False))
    against = ratio(results, SEND_CASE)
    if against is not None:
        name = f"send 64x16 against {APACHE}, median of {results['rounds']} rounds"
        found.append(Goal(name, against, 1, "x", False))
    return found


def _start_goals(started: dict[str, float], restarted: dict[str, float]) -> list[Goal]:
    topics = f"{started['topics']:,} topics x 8 queues"
    stored = f"{restarted['stored']:,} messages"
    return [
        Goal("broker, start to first acknowledged send", started["empty_start_ms"], 1_000, "ms", True),
        Goal("idle broker", started["idle_mib"], 60, "MiB", True),
        Goal(f"broker with {topics}, start", started["full_start_ms"], 5_000, "ms", True),
        Goal(f"broker with {topics}, memory", started["full_mib"], 400, "MiB", True),
        Goal(f"broker killed with {stored}, start", restarted["start_ms"], 2_000, "ms", True),
    ]


def _replication_goals(figures: replication.Figures) -> list[Goal]:
    """Aims: on two cores a slave takes its share of what its master has."""
    found = []
    for name, ratio, limit in (
        ("SYNC_MASTER against ASYNC_MASTER, both with a slave", (replication.SYNC, replication.ASYNC), 0.9),
        ("a sync pair against Apache's", (replication.SYNC, replication.APACHE_SYNC), 1.5),
    ):
        value = figures.ratio(*ratio)
        if value is not None:
            found.append(Goal(name, value, limit, "x", False, is_aim=True))
    caught_up = figures.catch_up
    if replication.APACHE_SYNC in caught_up:
        value = caught_up[replication.SYNC] / caught_up[replication.APACHE_SYNC]
        found.append(Goal("a slave's catch-up against Apache's", value, 1, "x", False, is_aim=True))
    return found


def _spark_goals(figures: spark.Figures) -> list[Goal]:
    from_memory, against_rows = (figures.ratio("topic", other) for other in ("memory", "row by row"))
    return [
        Goal("topic to Spark, against Arrow from memory", from_memory, 0.4, "x", False, is_aim=True),
        Goal("topic to Spark, against row by row", against_rows, 5, "x", False, is_aim=True),
        Goal("micro-batch above the engine's floor", figures.above_floor_ms, 60, "ms", True, is_aim=True),
    ]


def _sink_goals(figures: spark_sink.Figures) -> list[Goal]:
    acknowledged, once = (median(figures.rates[case]) for case in ("at least once", "exactly once"))
    scanned = figures.ratio("store scan", "memory")
    return [
        Goal("Spark into a topic, acknowledged", acknowledged, 100_000, "/s", False, is_aim=True),
        Goal("Spark into a topic, exactly once", once, 60_000, "/s", False, is_aim=True),
        Goal("store files to Spark, against Arrow from memory", scanned, 0.5, "x", False, is_aim=True),
    ]


def _client_goals(figures: clients.Figures) -> list[Goal]:
    """Rates are those a core of the client is good for: the broker has the other, and is measured above."""
    found = [
        Goal("what of it a client loads, msgspec included", figures.client_megabytes, 2, "MB", True),
        Goal("client, 256 in flight", figures.send[OURS].per_cpu_second, 25_000, "/s", False),
        Goal(
            "the same against a naive client",
            _against(figures.send, clients.NAIVE),
            3,
            "x",
            False,
        ),
        Goal("push consumer", figures.push[OURS].per_cpu_second, 60_000, "/s", False),
        Goal("idle consumer of 64 queues", figures.idle_percent, 0.5, "%", True),
    ]
    weight = figures.weights.get(OURS)
    if weight is not None:
        found += [
            Goal("packages", weight.packages, 2, "", True),
            Goal("import of a client", weight.import_ms, 90, "ms", True, is_aim=True),
            Goal("memory after import of a client", weight.resident_mib, 27, "MiB", True),
        ]
    if clients.CPP in figures.threads:
        against = _against(figures.threads, clients.CPP)
        name = "blocking send, 16 threads, against the C++ wheel"
        found.append(Goal(name, against, 1, "x", False, is_aim=True))  # 0.98 to 1.8: see to it first
    return found


def _against(rates: dict[str, clients.Rate], other: str) -> float:
    return rates[OURS].rate / rates[other].rate


def verdict(goals: list[Goal]) -> str | None:
    """One line that names the goals that were missed; None when there is none. Aims do not count."""
    promised = [each for each in goals if not each.is_aim]
    missed = [each.name for each in promised if not each.reached]
    return f"{len(missed)} of {len(promised)} goals MISSED: {'; '.join(missed)}" if missed else None


def machine() -> dict[str, Any]:
    return {
        "python": f"{platform.python_version()} {native.described()}",
        "cores": os.cpu_count(),
        "system": platform.system(),
    }


def baseline() -> dict[str, Any]:
    """The figures recorded in the repository, to see what changed; empty when there are none."""
    recorded: dict[str, Any] = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    return recorded


def write(results: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
