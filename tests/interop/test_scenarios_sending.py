"""Sending with the official 5.x client: our broker answers, stores and refuses as Apache's does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop import scenario_runs

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

EXPLAINED: dict[str, set[str]] = {
    "stored-properties": {"has-checksum-0", "has-checksum-1", "properties-0.WAIT"},
    "header-incomplete": {"without-a", "without-c", "without-d", "v1-without-group"},
    "batch-send": {"ids-of-consumers"},
    "batch-header-properties": {"stored[0].properties", "stored[1].properties"},
    "batch-of-many": {"2000"},
    "batch-with-delay": {"reply", "stored"},
    "batch-damaged": {"length-too-large", "stored"},
    "batch-too-large": {"two-halves.code", "stored[0].properties.UNIQ_KEY"},
    "system-topics": {"rmq_sys_unheard_of", "CHECKPOINT_TOPIC"},
    "timer-topic-directly": {"reply"},
    "empty-body": {"empty.code", "none.code"},
    "no-write-permission-raw": {"reply"},
    "topic-created-by-send": {"asked for 0", "topic for 0", "asked for -1", "topic for -1"},
}
"""By scenario, the parts in which the two differ; docs/compatibility.md tells why each is meant."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> scenario_runs.Both:
    return scenario_runs.both("Sending", tmp_path_factory.mktemp("sending"))


@pytest.mark.parametrize("name", scenario_runs.names("Sending"))
def test_sending_is_as_with_apache(results: scenario_runs.Both, name: str) -> None:
    scenario_runs.check(results, name, EXPLAINED)


def test_wait_is_not_stored_as_in_4_9(tmp_path: Path) -> None:
    results = scenario_runs.both("Sending", tmp_path, release="4.9.7", only=("stored-properties",))
    for side in (results.ours, results.theirs):
        assert "WAIT" not in side["stored-properties"]["properties-0"]


def test_each_difference_in_sending_is_explained() -> None:
    assert set(EXPLAINED) <= scenario_runs.explained_in_the_documentation()
