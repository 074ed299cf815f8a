"""`python -m bench --page FILE`: put the figures of runs into docs/benchmarks.md, and draw them.

Of several runs the last that measured something has the word; so the page can be made of parts that were
measured one by one.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from bench import aims, flatness, footprint, java_clients, report
from bench.servers import APACHE, HEAP, NEWER, OURS

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, PICTURE = DOCS / "benchmarks.md", DOCS / "pictures" / "benchmarks.svg"
BEGIN, END = "<!-- figures: made by python -m bench --page FILE -->\n", "<!-- end of the figures -->\n"
MERGED = ("messages", "ratios", "ceiling")


def write(files: list[Path]) -> list[Path]:
    """Returns what it has written."""
    results = joined([json.loads(file.read_text()) for file in files])
    before, mark, rest = PAGE.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, f"{PAGE} has lost the marks around its figures"
    PAGE.write_text(before + mark + figures(results) + end + after)
    draw(results, PICTURE)
    return [PAGE, PICTURE]


def joined(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """One set of results; of message cases each is taken by itself."""
    whole: dict[str, Any] = {name: {} for name in MERGED}
    for run in runs:
        for name in MERGED:
            whole[name] = whole[name] | run.get(name, {})
        whole |= {name: value for name, value in run.items() if name not in MERGED}
    return whole


def figures(results: dict[str, Any]) -> str:
    """Everything between the marks."""
    parts = [_occasion(results)]
    if results["messages"]:
        parts += [_message_table(results), f"![Rates and CPU against Apache's](pictures/{PICTURE.name})"]
    parts += _delivery_table(results) + _footprint_table(results)
    parts += _flatness_table(results) + _java_table(results) + _goal_table(results)
    return "\n" + "\n\n".join(parts) + "\n\n"


def _occasion(results: dict[str, Any]) -> str:
    machine = results["machine"]
    note = f"; {results['note']}" if results.get("note") else ""
    return (
        f"{results.get('date', 'Undated')}, {machine['cores']} cores, Python {machine['python']}, "
        f"{results['rounds']} rounds of {results['seconds']:g} s{note}. Apache's heaps: {HEAP}."
    )


def _message_table(results: dict[str, Any]) -> str:
    rows = [
        f"| messages/s | {OURS} | {APACHE} | ratio | aim | CPU µs a message | {APACHE} | ratio | {NEWER} |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for case, row in results["messages"].items():
        if case in aims.RATES:
            compared = APACHE in row
            rate, cpu = (_ratio(value) for value in _ratios(results, case)) if compared else ("", "")
            theirs = (f"{row[APACHE]['rate']:,.0f}", f"{row[APACHE]['cpu_us']:.1f}") if compared else ("", "")
            newer = f"{row[NEWER]['rate']:,.0f}" if NEWER in row else ""
            rows.append(
                f"| {case} | {row[OURS]['rate']:,.0f} | {theirs[0]} | {rate} | {aims.RATES[case]} | "
                f"{row[OURS]['cpu_us']:.1f} | {theirs[1]} | {cpu} | {newer} |"
            )
    return "\n".join(rows)


def _delivery_table(results: dict[str, Any]) -> list[str]:
    rows = []
    for case, row in results["messages"].items():
        if case not in aims.RATES:
            for share in ("p50", "p99"):
                cells = [f"{row[name][share] / 1000:.2f}" if name in row else "" for name in SYSTEMS]
                ratio = _ratio(row[OURS][share] / row[APACHE][share]) if APACHE in row else ""
                rows.append(f"| {case}, {share}, ms | {' | '.join(cells)} | {ratio} | ≤ {aims.LATENCY:g} |")
    return (
        [_table(f"from the send to the reader | {' | '.join(SYSTEMS)} | ratio | aim", rows)] if rows else []
    )


SYSTEMS = (OURS, APACHE, NEWER)


def _footprint_table(results: dict[str, Any]) -> list[str]:
    if "footprint" not in results:
        return []
    measured = footprint.from_json(results["footprint"])
    rows = []
    for what, (name, limit) in aims.FOOTPRINT.items():
        values = getattr(measured, what)
        middles = {system: median(v) if isinstance(v, list) else v for system, v in values.items()}
        unit = "MiB" if what == "idle_mib" else "ms"
        cells = [f"{middles[system]:,.0f}" if system in middles else "" for system in (OURS, APACHE)]
        ratio = measured.ratio(what)
        named = name.replace("everything stored", f"{measured.stored:,} messages stored")
        rows.append(f"| {named}, {unit} | {' | '.join(cells)} | {_ratio(ratio)} | ≤ {limit:g} |")
    if (apart := measured.idle_mib.get(footprint.OURS_APART)) is not None:
        rows.insert(1, f"| the same in two processes, MiB | {apart:,.0f} | | | |")
    return [_table(f"to be there | {OURS} | {APACHE} | ratio | aim", rows)]


def _flatness_table(results: dict[str, Any]) -> list[str]:
    rows = [
        f"| {row.few:,} → {row.many:,} {row.axis} | {row.few_us:.1f} | {row.many_us:.1f} | "
        f"{_ratio(row.ratio)} | ≤ {aims.GROWTH:g} |"
        for row in flatness.from_json(results.get("flatness", []))
    ]
    return [_table("CPU µs of a send to our broker | few | many | ratio | aim", rows)] if rows else []


def _java_table(results: dict[str, Any]) -> list[str]:
    if "java_clients" not in results:
        return []
    measured = java_clients.from_json(results["java_clients"])
    rows = [
        f"| {programme} | {median(row[OURS]):,.0f} | {median(row[APACHE]):,.0f} | "
        f"{_ratio(measured.ratio(programme))} | ≥ {aims.JAVA_CLIENT:g} |"
        for programme, row in measured.rates.items()
    ]
    return [_table(f"Apache's own benchmark, messages/s | {OURS} | {APACHE} | ratio | aim", rows)]


def _goal_table(results: dict[str, Any]) -> list[str]:
    """All else that was measured: name server, start, clients in Python, replication, Spark."""
    rows = [
        f"| {goal.name} | {goal.value:,.{_digits(goal.value)}f} {goal.unit} | "
        f"{'≤' if goal.at_most else '≥'} {goal.limit:,g} | {'aimed for' if goal.is_aim else 'promised'} |"
        for goal in report.goals(results)
    ]
    return [_table("what else is measured | kourou | | ", rows)] if rows else []


def _digits(value: float) -> int:
    return 0 if value >= 1000 else 1 if value >= 10 else 2


def _table(titles: str, rows: list[str]) -> str:
    return "\n".join([f"| {titles} |", "|---" + "|---:" * titles.count("|") + "|", *rows])


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"


def _ratios(results: dict[str, Any], case: str) -> tuple[float, float]:
    """Of rates and of CPU."""
    return report.ratio(results, case) or 0.0, aims.cpu_ratio(results, case)


def draw(results: dict[str, Any], path: Path) -> None:
    """Bars of our rate and our CPU against Apache's, case by case, with what is aimed for."""
    import matplotlib  # slow to import, and only this needs it

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "kourou"  # the same figures make the same file
    from matplotlib import pyplot

    cases = [case for case, row in results["messages"].items() if case in aims.RATES and APACHE in row]
    figure, (rates, costs) = pyplot.subplots(1, 2, figsize=(10, 0.8 + 0.32 * len(cases)), sharey=True)
    rates.set_title(f"messages a second, {OURS} to {APACHE}", fontsize=10)
    costs.set_title("CPU of the broker for a message", fontsize=10)
    places = range(len(cases))
    pairs = [_ratios(results, case) for case in cases]
    for axis, values, wanted in (
        (rates, [rate for rate, _ in pairs], [aims.RATES[case] for case in cases]),
        (costs, [cpu for _, cpu in pairs], [aims.CPU for _ in cases]),
    ):
        axis.barh(places, values, color="#4477aa", height=0.6)
        axis.plot(wanted, places, linestyle="", marker="|", markersize=14, color="#cc3311", label="aim")
        axis.axvline(1.0, color="#666666", linewidth=1)
        for place, value in zip(places, values, strict=True):
            axis.text(value, place, f" {value:.2f}", va="center", fontsize=8)
        axis.set_xlim(0, 1.15 * max([1.0, *values, *wanted]))
        axis.spines[["top", "right"]].set_visible(False)
    rates.set_yticks(places, cases, fontsize=8)
    rates.invert_yaxis()
    costs.legend(fontsize=8, frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
