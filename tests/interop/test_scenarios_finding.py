"""Finding messages with the official 5.x client, as with Apache: at first, after a restart, after a crash.

Each broker keeps its folder and its address; what is found must be the same each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.interop import apache, ours, scenario_runs
from tests.interop.scenario_runs import BROKER_NAME, PATIENT, Both, Observed

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

RELEASE = "5.3.3"
SETTINGS: dict[str, Any] = dict(PATIENT)
MOMENTS = ("at first", "after a restart", "after kill -9")
EXPLAINED: dict[str, set[str]] = {
    "consume-queue-entries-with-filter": {"entries.entries[0].eval", "entries.entries[3].eval"},
    "consume-queue-entries-where-nothing-is": {"noTopic.code"},
}
"""By scenario, where the two differ and why that is right: docs/compatibility.md tells each."""
BY_CHANCE = ("consume-queue-entries-where-nothing-is",)
"""An Apache broker that had no time before it was killed may refuse what it answers otherwise."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Both]:
    """By moment."""
    reason = apache.missing_tools()
    if reason:
        pytest.fail(f"CANNOT TEST AGAINST APACHE: {reason}", pytrace=False)
    folder = tmp_path_factory.mktemp("finding")
    apache.programme(scenario_runs.CLIENT, "Finding")
    with ThreadPoolExecutor(2) as sides:
        mine = sides.submit(lambda: list(_on_ours(folder / "ours")))
        other = sides.submit(lambda: list(_on_apache(folder / "apache")))
        return {
            moment: Both(one, another)
            for moment, one, another in zip(MOMENTS, mine.result(), other.result(), strict=True)
        }


def _on_ours(folder: Path) -> Iterator[dict[str, Observed]]:
    folder.mkdir()
    port = apache.free_ports_in_a_row()
    with ours.name_server(folder) as names:
        for ending in (ours.Part.stop, lambda broker: broker.process.kill(), ours.Part.stop):
            with ours.broker(folder, names.address, name=BROKER_NAME, port=port, **SETTINGS) as broker:
                yield scenario_runs.run("Finding", folder, names.address, broker.address)
                ending(broker)


def _on_apache(folder: Path) -> Iterator[dict[str, Observed]]:
    folder.mkdir()
    port = apache.free_ports_in_a_row()
    with apache.name_server(RELEASE, folder) as names:
        for ending in (apache.Part.stop, apache.Part.kill, apache.Part.kill):
            with apache.broker(
                RELEASE, folder, names.address, name=BROKER_NAME, port=port, **SETTINGS
            ) as broker:
                yield scenario_runs.run("Finding", folder, names.address, broker.address)
                ending(broker)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", scenario_runs.names("Finding"))
def test_finding_is_as_with_apache(results: dict[str, Both], name: str, moment: str) -> None:
    scenario_runs.check(results[moment], name, EXPLAINED, BY_CHANCE)


@pytest.mark.parametrize("name", scenario_runs.names("Finding"))
def test_what_was_found_is_found_again(results: dict[str, Both], name: str) -> None:
    first = results["at first"].ours[name]
    for moment in MOMENTS[1:]:
        changed = scenario_runs.differences(results[moment].ours[name], first)
        assert changed == {}, f"{name} finds something else {moment}"


def test_each_difference_in_finding_is_explained() -> None:
    assert set(EXPLAINED) <= scenario_runs.explained_in_the_documentation()
