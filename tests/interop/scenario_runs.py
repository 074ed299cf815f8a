"""Scenarios that run against our broker and against Apache's, and what is not the same afterwards.

    names("Sending")              the scenarios of java/src/interop/Sending.java, read from its source
    both("Sending", folder, ...)  runs them all, on fresh brokers of both sides with the same settings
    both_of(run, folder, ...)     the same for a programme in another language
    check(results, name, ...)     fails on a difference that is not explained, and on one that is gone
    differences(ours, theirs)     the places where two observations differ, with both values

The words of a remark are each broker's own: what is compared is its code, and that there is one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.interop import apache, ours

CLIENT = "5.3.3"
BROKER_NAME = "broker-a"  # World.java's; the same on both sides
RUN_SECONDS_MAX = 420.0
COMPATIBILITY = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"
DIFFERS = "## Where Kourou differs from Apache"

PATIENT = {"waitTimeMillsInSendQueue": 15_000, "osPageCacheBusyTimeOutMills": 15_000}
"""For both brokers: a machine that is busy with the other one is no reason to refuse a message."""

Observed = dict[str, Any]


@dataclass
class Both:
    """What one programme observed, by scenario."""

    ours: dict[str, Observed]
    theirs: dict[str, Observed]


def names(programme: str) -> list[str]:
    source = (apache.JAVA_SOURCES / "src" / "interop" / f"{programme}.java").read_text()
    return re.findall(r'\.scenario\(\s*"([^"]+)"', source)


def both(
    programme: str, folder: Path, *, release: str = "5.3.3", only: tuple[str, ...] = (), **settings: Any
) -> Both:
    """Run all scenarios, or `only` some, on each side; `settings` go into both brokers' configuration."""
    _need_apache()
    apache.programme(CLIENT, programme)
    return both_of(partial(_run_java, programme, only), folder, release=release, **settings)


Run = Callable[[Path, str, str], dict[str, Observed]]
"""All scenarios of a programme, given a folder of its own, a name server and a broker."""


def both_of(run: Run, folder: Path, *, release: str = "5.3.3", **settings: Any) -> Both:
    """What `run` observes on each side; `settings` go into both brokers' configuration."""
    _need_apache()
    settings = {**PATIENT, **settings}
    with ThreadPoolExecutor(2) as sides:
        mine = sides.submit(_on_ours, run, folder / "ours", settings)
        other = sides.submit(_on_apache, run, folder / "apache", release, settings)
        return Both(mine.result(), other.result())


def _need_apache() -> None:
    reason = apache.missing_tools()
    if reason:
        raise apache.ApacheUnavailable(reason)


def _on_ours(run: Run, folder: Path, settings: Mapping[str, Any]) -> dict[str, Observed]:
    folder.mkdir()
    with (
        ours.name_server(folder) as names,
        ours.broker(folder, names.address, name=BROKER_NAME, **dict(settings)) as broker,
    ):
        observed = run(folder, names.address, broker.address)
        broker.stop()
        names.stop()
    return observed


def _on_apache(run: Run, folder: Path, release: str, settings: Mapping[str, Any]) -> dict[str, Observed]:
    folder.mkdir()
    with (
        apache.name_server(release, folder) as names,
        apache.broker(release, folder, names.address, name=BROKER_NAME, **dict(settings)) as broker,
    ):
        return run(folder, names.address, broker.address)


def run(programme: str, folder: Path, name_server: str, broker: str, *only: str) -> dict[str, Observed]:
    """All scenarios of a Java programme once, or `only` some, against a broker that is there."""
    arguments = (programme, name_server, broker, *only)
    said = apache.run(CLIENT, folder, *arguments, heap="256m", timeout=RUN_SECONDS_MAX)
    (folder / "observed.jsonl").write_text(said)  # for whoever wants to know why two differ
    return observations(said)


def _run_java(
    programme: str, only: tuple[str, ...], folder: Path, name_server: str, broker: str
) -> dict[str, Observed]:
    return run(programme, folder, name_server, broker, *only)


def observations(said: str) -> dict[str, Observed]:
    """What a programme printed, by scenario."""
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return {line["scenario"]: line["observed"] for line in lines if "scenario" in line}


# --- what is not the same --------------------------------------------------------------------------------


def differences(mine: object, other: object, place: str = "") -> dict[str, tuple[object, object]]:
    """Where two observations differ: `{"pull.fields.nextBeginOffset": (ours, theirs)}`."""
    found: dict[str, tuple[object, object]] = {}
    if isinstance(mine, dict) and isinstance(other, dict):
        for name in [*mine, *(name for name in other if name not in mine)]:
            inside = f"{place}.{name}" if place else name
            found |= differences(mine.get(name, MISSING), other.get(name, MISSING), inside)
        return found
    if isinstance(mine, list) and isinstance(other, list) and len(mine) == len(other):
        for number, (one, another) in enumerate(zip(mine, other, strict=True)):
            found |= differences(one, another, f"{place}[{number}]")
        return found
    if place.endswith("remark") and _is_said(mine) == _is_said(other):
        return {}
    if _as_properties(mine) == _as_properties(other):
        return {}
    return {place: (mine, other)}


def _as_properties(value: object) -> object:
    """Properties as one text have no order: a map was written."""
    if isinstance(value, str) and "\x01" in value:
        return sorted(entry for entry in value.split("\x02") if entry)
    return value


MISSING = "(not there)"


def _is_said(remark: object) -> bool:
    return remark not in (None, "", MISSING)


def check(
    results: Both, name: str, explained: Mapping[str, set[str]], by_chance: Collection[str] = ()
) -> None:
    """Both brokers did the same in this scenario, but for what is explained in the documentation; some do so
    `by_chance`, when the machine is slow."""
    assert name in results.ours, f"{name} was not run against our broker"
    assert name in results.theirs, f"{name} was not run against Apache's broker"
    mine, other = results.ours[name], results.theirs[name]
    for side, observed in (("ours", mine), ("Apache's", other)):
        assert "BROKEN" not in observed, f"{name} did not come to its end against {side}: {observed}"
    found = differences(mine, other)
    known = explained.get(name, set())
    new = {place: values for place, values in found.items() if not any(is_in(place, each) for each in known)}
    listed = "".join(
        f"\n  {place}: ours {one!r}, Apache's {another!r}" for place, (one, another) in new.items()
    )
    assert not new, f"{name} differs:{listed}"
    gone = {each for each in known if not any(is_in(place, each) for place in found)}
    assert not gone or name in by_chance, (
        f"{name} differs no more in {sorted(gone)}: take it out of the explained differences"
    )


def is_in(place: str, part: str) -> bool:
    """Whether a place belongs to this part of what was observed, or is it: `reply.code` is in `reply`."""
    return place == part or place.startswith((part + ".", part + "["))


def explained_in_the_documentation() -> set[str]:
    """The scenarios that the compatibility page's section on differences names."""
    section = COMPATIBILITY.read_text().partition(DIFFERS)[2].partition("\n## ")[0]
    return set(re.findall(r"`([a-z0-9-]+)`", section))
