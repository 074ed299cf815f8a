"""`python -m bench`: measure everything, print one table, write the figures to bench/results/.

`--only` measures some of it, `--page` puts what was measured into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kourou
from bench import (
    aims,
    clients,
    codec,
    flatness,
    footprint,
    generator,
    java_clients,
    lookups,
    messages,
    metrics,
    page,
    replication,
    report,
    restart,
    scaling,
    spark,
    spark_archive,
    spark_sink,
    startup,
)
from bench.servers import APACHE, HEAP, OURS
from tests.interop import apache
from tests.kourou_process import ServerFailed

NEEDED_BYTES = 40 << 30
"""As much as the largest part leaves behind, and as much again that a broker wants to see free."""
RESULTS = Path(__file__).with_name("results")
SOURCES = Path(kourou.__file__).parent
SPARK = "spark"
REPLICATION = "replication"
SINK = "spark_sink"
ARCHIVE = "spark_archive"
FLATNESS, FOOTPRINT, CLIENTS, JAVA_CLIENTS = "flatness", "footprint", "clients", "java_clients"
PARTS = (SPARK, REPLICATION, FLATNESS, FOOTPRINT, CLIENTS, JAVA_CLIENTS)
"""What `--only` knows by name, beside the message cases."""


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and leave no broker behind
    arguments = _arguments()
    if arguments.page:
        print("\n".join(f"written to {path}" for path in page.write(arguments.page)))
        return 0
    if generator.compiler() is None and not generator.PROGRAMME.exists():
        print(
            "bench: NOT RUN: no C compiler on PATH (cc, gcc or clang) for the load generator", file=sys.stderr
        )
        return 1
    missing = "left out on request" if arguments.no_apache or arguments.quick else apache.missing_tools()
    if missing:
        print(f"bench: APACHE IS NOT MEASURED: {missing}", file=sys.stderr)
    results: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "note": arguments.note,
        "machine": report.machine(),
        "rounds": arguments.rounds,
        "seconds": arguments.seconds,
        "messages": {},
        "ceiling": {},
    }
    _compile_as_pip_does()
    try:
        with tempfile.TemporaryDirectory(prefix="kourou-bench-") as folder:
            _check_room(folder, arguments)
            _measure(Path(folder), arguments, results, with_apache=not missing)
    except (
        generator.GeneratorFailed,
        ServerFailed,
        clients.ProgramFailed,
        apache.PartFailed,
        apache.ApacheUnavailable,
        NoRoom,
    ) as failure:
        if results["messages"]:
            _print(results, [], missing)
        print(f"bench: FAILED: {failure}", file=sys.stderr)
        return 1
    goals = [] if arguments.quick else report.goals(results) + aims.aims(results)
    _print(results, goals, missing)
    path = arguments.json or RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    report.write(results, path)
    print(f"\nwritten to {path}", flush=True)
    missed = report.verdict(goals)
    if missed is not None:
        print(f"bench: {missed}", file=sys.stderr)
    return 0 if missed is None else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="How fast it is, beside Apache's broker."
    )
    parser.add_argument(
        "--quick", action="store_true", help="some seconds, without Apache or goals: does it still run?"
    )
    parser.add_argument(
        "--only",
        metavar="TEXT",
        help=f"only message cases with TEXT in their name: 'send 64'; or one of {', '.join(PARTS)}",
    )
    parser.add_argument("--no-apache", action="store_true", help="measure ours alone")
    parser.add_argument("--rounds", type=int, default=5, help="alternating rounds of each case (default 5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one round (default 3)")
    parser.add_argument("--json", type=Path, help="where to write the figures (default bench/results/)")
    parser.add_argument("--note", help="what to know about this run: kept with the figures")
    parser.add_argument(
        "--page",
        metavar="FILE",
        type=Path,
        nargs="+",
        help="measure nothing: put the figures of these runs into docs/benchmarks.md; the last has the word",
    )
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds = 1, 0.3
    arguments.cases = tuple(case for case in messages.CASES if (arguments.only or "") in case.name)
    if not arguments.cases and arguments.only not in PARTS:
        parser.error(
            f"no case has {arguments.only!r} in its name: {', '.join(c.name for c in messages.CASES)}"
        )
    return arguments


def _compile_as_pip_does() -> None:
    """A package that was installed has its bytecode; a source tree may not, nor be allowed to keep it.
    Without it a start measures the compiler."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(SOURCES, quiet=1)


class NoRoom(Exception):
    """There is too little of the disk left."""


def _check_room(folder: str, arguments: argparse.Namespace) -> None:
    """A broker takes nothing when its disk is nearly full: better to hear of it before than after an hour."""
    room = shutil.disk_usage(folder)
    needed = 0 if arguments.quick or arguments.only else NEEDED_BYTES
    if room.free < needed:
        raise NoRoom(
            f"{room.free >> 30} GiB are free where {folder} is, and {needed >> 30} are needed: free some, "
            "or name another place in TMPDIR"
        )


@contextmanager
def _place(folder: Path, name: str) -> Iterator[Path]:
    """A folder of that name, for as long as one part is measured: together they would fill a disk."""
    place = folder / name
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _measure(
    folder: Path, arguments: argparse.Namespace, results: dict[str, Any], *, with_apache: bool
) -> None:
    """Into `results`, part by part: what was measured is there even when a later part fails."""
    rounds, seconds, quick = arguments.rounds, arguments.seconds, arguments.quick
    common = {"rounds": rounds, "seconds": seconds, "with_apache": with_apache, "tell": _tell}
    if arguments.only in PARTS:
        results |= _part(arguments.only, folder, arguments, with_apache)
        return
    _tell("the generator against a server that does nothing")
    results["ceiling"] = messages.ceiling(arguments.cases[:1] if quick else arguments.cases, seconds)
    stored = 20_000 if quick else 200_000
    with _place(folder, "brokers") as place:
        sent = messages.measure(place, cases=arguments.cases, stored=stored, **common)
    results["messages"] = messages.as_json(sent.figures)
    results["ratios"] = sent.ratios
    if arguments.only:
        return
    _tell("codec, imports, starts")
    results["start_ms"] = lookups.start_ms(folder / "starts", 1 if quick else 5)
    results["decode_us"] = codec.decode_us(200 if quick else 5000)
    results["import_ms"] = codec.import_ms(1 if quick else 7)
    results["import_producer_ms"] = codec.import_ms(1 if quick else 7, "import kourou; kourou.Producer")
    results["server_modules_of_client"] = codec.server_modules_of_client()
    results["name_server"] = lookups.as_json(lookups.measure(folder / "names", **common))
    with _place(folder, "startup") as place:
        results["startup"] = startup.as_json(startup.measure(place, quick=quick, tell=_tell))
    with _place(folder, "stored") as place:
        results[FLATNESS] = _flatness(place, arguments)  # first: whoever was killed has an index to catch up
        results["restart"] = restart.as_json(restart.measure(place, quick=quick, tell=_tell))
        if with_apache:
            results[FOOTPRINT] = _footprint(place, arguments, with_apache)
    results |= _part(CLIENTS, folder, arguments, with_apache)
    grown = scaling.measure(folder / "scaling", **(scaling.QUICK if quick else {}), tell=_tell)
    results["scaling"] = scaling.as_json(grown)
    if with_apache:
        try:
            results |= _part(JAVA_CLIENTS, folder, arguments, with_apache)
        except apache.ApacheUnavailable as reason:
            _tell(f"APACHE'S OWN BENCHMARK IS NOT MEASURED: {reason}")
    if not quick:  # starting Spark alone takes longer than all the rest of it
        with _place(folder, "metrics") as place:
            watched = metrics.measure(place, rounds=rounds, seconds=seconds, tell=_tell)
        results["metrics"] = metrics.as_json(watched)
        results |= _part(REPLICATION, folder, arguments, with_apache)
        results |= _part(SPARK, folder, arguments, with_apache)


def _part(name: str, folder: Path, arguments: argparse.Namespace, with_apache: bool) -> dict[str, Any]:
    """The results of one of PARTS, measured alone."""
    if name == SPARK:
        return _spark(folder, arguments)
    if name == REPLICATION:
        return {name: _replication(folder, arguments, with_apache)}
    with _place(folder, name) as place:
        if name == FLATNESS:
            return {name: _flatness(place, arguments)}
        if name == FOOTPRINT:
            return {name: _footprint(place, arguments, with_apache)}
        if name == CLIENTS:
            return {name: clients.as_json(clients.measure(place, quick=arguments.quick, tell=_tell))}
        if not with_apache:
            raise apache.ApacheUnavailable(f"{name} compares with Apache's broker, which is not measured")
        return {name: java_clients.as_json(java_clients.measure(place, tell=_tell))}


def _flatness(place: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    sizes = flatness.QUICK if arguments.quick else flatness.USUAL
    rounds, seconds = min(arguments.rounds, 3), arguments.seconds
    return flatness.as_json(flatness.measure(place, sizes, rounds=rounds, seconds=seconds, tell=_tell))


def _footprint(place: Path, arguments: argparse.Namespace, with_apache: bool) -> dict[str, Any]:
    measured = footprint.measure(place, quick=arguments.quick, with_apache=with_apache, tell=_tell)
    return footprint.as_json(measured)


def _spark(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    rounds, stored = (1, 8_000) if arguments.quick else (min(arguments.rounds, 3), 400_000)
    with _place(folder, SPARK) as place:
        read = spark.measure(place, rounds=rounds, messages=stored, tell=_tell)
    with _place(folder, SINK) as place:
        written = spark_sink.measure(place, rounds=rounds, messages=stored, tell=_tell)
    with _place(folder, ARCHIVE) as place:
        archived = spark_archive.measure(place, rounds=rounds, messages=stored, tell=_tell)
    return {
        SPARK: spark.as_json(read),
        SINK: spark_sink.as_json(written),
        ARCHIVE: spark_archive.as_json(archived),
    }


def _replication(folder: Path, arguments: argparse.Namespace, with_apache: bool) -> dict[str, Any]:
    rounds, mib = (1, 16) if arguments.quick else (arguments.rounds, 2048)
    with _place(folder, REPLICATION) as place:
        figures = replication.measure(
            place,
            rounds=rounds,
            seconds=arguments.seconds,
            catch_up_mib=mib,
            with_apache=with_apache,
            tell=_tell,
        )
    return replication.as_json(figures)


def _print(results: dict[str, Any], goals: list[report.Goal], missing: str | None) -> None:
    sent = {
        case: {system: messages.Figures(**values) for system, values in row.items()}
        for case, row in results["messages"].items()
    }
    machine = results["machine"]
    rounds = f"{results['rounds']} rounds of {results['seconds']} s"
    print(f"\nPython {machine['python']}, {machine['cores']} cores, {rounds}\n")
    if sent:
        print(report.message_table(sent, results, report.baseline()))
        print(f"\n{APACHE} WAS NOT MEASURED: {missing}" if missing else f"\nApache's heaps: {HEAP}")
    if "name_server" in results:
        looked_up = {system: lookups.Figures(**values) for system, values in results["name_server"].items()}
        print(f"\n{report.lookup_table(looked_up)}")
        imports = (
            f"import {results['import_ms']:.0f} ms, with Producer {results['import_producer_ms']:.0f} ms"
        )
        decoded = f"send request decoded in {results['decode_us']:.2f} µs"
        print(f"\n{OURS}: {imports}; {decoded}; first answer after {results['start_ms']:.0f} ms")
    if "startup" in results:
        print(f"\nbroker: {startup.shown(startup.Figures(**results['startup']))}")
        for row in results.get("restart", ()):
            print(f"broker: {restart.shown(restart.Figures(**row))}")
    if FLATNESS in results:
        print("\n" + "\n".join(map(flatness.shown, flatness.from_json(results[FLATNESS]))))
    if FOOTPRINT in results:
        print(f"\n{footprint.shown(footprint.from_json(results[FOOTPRINT]))}")
    if JAVA_CLIENTS in results:
        print(f"\n{java_clients.shown(java_clients.from_json(results[JAVA_CLIENTS]))}")
    if "scaling" in results:
        print(f"\nname server: {scaling.shown(scaling.Figures(**results['scaling']))}")
    if "clients" in results:
        print(f"\n{clients.shown(clients.from_json(results['clients']))}")
    if "metrics" in results:
        print(f"\n{metrics.shown(metrics.Figures(**results['metrics']))}")
    if REPLICATION in results:
        print(f"\n{replication.shown(replication.from_json(results[REPLICATION]))}")
    if SPARK in results:
        print(f"\n{spark.shown(spark.from_json(results[SPARK]))}")
        print(f"\n{spark_sink.shown(spark_sink.Figures(**results[SINK]))}")
        print(f"\n{spark_archive.shown(spark_archive.Figures(**results[ARCHIVE]))}")
    if goals:
        print("\nGoals\n" + "\n".join(map(str, goals)))


def _tell(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
