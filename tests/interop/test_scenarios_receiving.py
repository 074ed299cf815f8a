"""Receiving with the official 5.x client: pulls end, groups are told and locks are given as with Apache's."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.interop import scenario_runs

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

EXPLAINED: dict[str, set[str]] = {
    "pull-reply-fields": {
        f"{reply}.{part}"
        for reply, parts in {
            "found": ("remark", "fields.topicSysFlag", "fields.groupSysFlag"),
            "nothing new": ("fields.topicSysFlag", "fields.groupSysFlag"),
            "lite": ("remark", "fields.topicSysFlag", "fields.groupSysFlag"),
        }.items()
        for part in parts
    },
    "pull-unknown-group": {"group of 121", "group of 255"},
    "pull-no-read-permission": {"reply.fields.forbiddenType"},
    "pull-group-disabled": {"reply.fields.forbiddenType"},
    "pull-broadcast-disabled": {"broadcasting.fields.forbiddenType"},
    "pull-bad-subscription": {
        "tags < >.code",
        "sql <a >>.code",
        "sql <a > 1 AND>.code",
        "sql <1>.code",
        "unknown type.code",
    },
    "pull-commits-offset": {"a negative one"},
    "sql-expressions": {"a > '1'", "colour > 'blue'", "a = 0x1", "a + 1 = 2"},
    "sql-check": {"a LIKE 'x%'", "a = 1)", "a = 1 garbage", "a = --1", "a-b = 1"},
    "offset-update-refused": {
        "no such group",
        "offset of no queue",
        "offset after a negative",
        "no offset.code",
    },
    "offset-reset-refused": {"no such queue"},
    "lock-queues-unknown": {"queue 9 of 1"},
    "lock-by-a-stranger": {"lock"},
}
"""By scenario, the parts in which the two differ; docs/compatibility.md tells why each is meant."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> scenario_runs.Both:
    folder = tmp_path_factory.mktemp("receiving")
    return scenario_runs.both("Receiving", folder, enablePropertyFilter="true")


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> scenario_runs.Both:
    return scenario_runs.both(
        "Strict",
        tmp_path_factory.mktemp("strict"),
        autoCreateTopicEnable="false",
        autoCreateSubscriptionGroup="false",
        mappedFileSizeCommitLog=1024 * 1024,
        fileReservedTime=1,
        deleteWhen=f"{(datetime.now().hour + 12) % 24:02}",  # not by itself while the scenarios run
        cleanResourceInterval=1000,
    )


@pytest.mark.parametrize("name", scenario_runs.names("Receiving"))
def test_receiving_is_as_with_apache(results: scenario_runs.Both, name: str) -> None:
    scenario_runs.check(results, name, EXPLAINED)


@pytest.mark.parametrize("name", scenario_runs.names("Strict"))
def test_a_strict_broker_is_as_strict_as_apache(strict: scenario_runs.Both, name: str) -> None:
    scenario_runs.check(strict, name, EXPLAINED)


LIKE_4_9: dict[str, set[str]] = {
    "pull-reply-fields": {"found.remark", "lite"},
    "pull-no-read-permission": set(),
    "pull-group-disabled": set(),
    "pull-broadcast-disabled": set(),
}
"""What the page says to be as in 4.9: the same there, but for this."""


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> scenario_runs.Both:
    folder = tmp_path_factory.mktemp("older")
    return scenario_runs.both("Receiving", folder, release="4.9.7", only=tuple(LIKE_4_9))


@pytest.mark.parametrize("name", LIKE_4_9)
def test_what_is_said_to_be_as_in_4_9_is_so(older: scenario_runs.Both, name: str) -> None:
    scenario_runs.check(older, name, LIKE_4_9)


def test_each_difference_in_receiving_is_explained() -> None:
    assert set(EXPLAINED) <= scenario_runs.explained_in_the_documentation()
