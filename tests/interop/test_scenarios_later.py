"""Messages that come back later, with the official 5.x client: our broker does with them as Apache's does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop import scenario_runs

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

LEVELS = "1s 2s 3s 4s 5s 6s"
EXPLAINED: dict[str, set[str]] = {
    "recall-bad-handles": {"unknownId.remark"},
    "transaction-with-immunity": {"visible", "checks"},
    "transaction-never-known": {
        "discarded.preparedTransactionOffset",
        "discarded.properties.TRAN_PREPARED_QUEUE_OFFSET",
    },
    "transaction-committed-twice": {"second.code", "second.remark", "rollback.code", "visible"},
    "transaction-committed-after-rollback": {"rollback.remark", "commit.code", "commit.remark", "visible"},
    "transaction-committed-after-a-check": {"askedAfterwards"},
}
"""By scenario, where the two differ and why that is right: docs/compatibility.md tells each."""

OLDER = "4.9.7"
SINCE_5 = {
    "IS_SUB_CHANGE",
    "IS_SUPPORT_HEART_BEAT_V2",
    "MSG_REGION",
    "TRACE_ON",
    "transactionId",
    "transactionIdIsMessageId",
    "__transactionId__",
    "checkedWithItsId",
}
"""What releases before 5 do not store or say: here we follow the newer one."""
EXPLAINED_WITH_OLDER = {
    **EXPLAINED,
    "orderly-consumer-gives-up": {
        "dead.properties.DELAY",
        "dead.properties.REAL_QID",
        "dead.properties.REAL_TOPIC",
    },
}


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> scenario_runs.Both:
    return scenario_runs.both("Later", tmp_path_factory.mktemp("later"), messageDelayLevel=LEVELS)


@pytest.mark.parametrize("name", scenario_runs.names("Later"))
def test_delays_retries_and_replies_are_as_with_apache(later: scenario_runs.Both, name: str) -> None:
    scenario_runs.check(later, name, EXPLAINED)


@pytest.fixture(scope="module")
def later_with_older(tmp_path_factory: pytest.TempPathFactory) -> scenario_runs.Both:
    folder = tmp_path_factory.mktemp("later-older")
    return as_before_5(scenario_runs.both("Later", folder, release=OLDER, messageDelayLevel=LEVELS))


@pytest.mark.parametrize("name", scenario_runs.names("Later"))
def test_delays_retries_and_replies_are_as_with_an_older_apache(
    later_with_older: scenario_runs.Both, name: str
) -> None:
    scenario_runs.check(later_with_older, name, EXPLAINED_WITH_OLDER)


@pytest.fixture(scope="module")
def timers(tmp_path_factory: pytest.TempPathFactory) -> scenario_runs.Both:
    return scenario_runs.both(
        "Timers",
        tmp_path_factory.mktemp("timers"),
        messageDelayLevel=LEVELS,
        recallMessageEnable="true",
        timerMaxDelaySec=3 * 24 * 3600,
        timerPrecisionMs=100,
    )


@pytest.mark.parametrize("name", scenario_runs.names("Timers"))
def test_timers_and_recalls_are_as_with_apache(timers: scenario_runs.Both, name: str) -> None:
    scenario_runs.check(timers, name, EXPLAINED)


BY_CHANCE = ("transaction-with-immunity",)
"""An Apache broker that has no time for three rounds discards nothing."""

CHECKING: dict[str, Any] = {
    "transactionTimeOut": 2000,
    "transactionCheckInterval": 1000,
    "transactionCheckMax": 3,
    "transactionOpBatchInterval": 50,  # Apache 5.x notes an end three seconds late, and asks meanwhile
}


@pytest.fixture(scope="module")
def transactions(tmp_path_factory: pytest.TempPathFactory) -> scenario_runs.Both:
    return scenario_runs.both("Transactions", tmp_path_factory.mktemp("transactions"), **CHECKING)


@pytest.mark.parametrize("name", scenario_runs.names("Transactions"))
def test_transactions_are_as_with_apache(transactions: scenario_runs.Both, name: str) -> None:
    scenario_runs.check(transactions, name, EXPLAINED, BY_CHANCE)


@pytest.fixture(scope="module")
def transactions_with_older(tmp_path_factory: pytest.TempPathFactory) -> scenario_runs.Both:
    folder = tmp_path_factory.mktemp("transactions-older")
    return as_before_5(scenario_runs.both("Transactions", folder, release=OLDER, **CHECKING))


@pytest.mark.parametrize("name", scenario_runs.names("Transactions"))
def test_transactions_are_as_with_an_older_apache(
    transactions_with_older: scenario_runs.Both, name: str
) -> None:
    scenario_runs.check(transactions_with_older, name, EXPLAINED_WITH_OLDER, BY_CHANCE)


def test_each_difference_in_what_comes_back_later_is_explained() -> None:
    assert set(EXPLAINED_WITH_OLDER) <= scenario_runs.explained_in_the_documentation()


def as_before_5(results: scenario_runs.Both) -> scenario_runs.Both:
    def older(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: older(inside) for name, inside in value.items() if name not in SINCE_5}
        return [older(each) for each in value] if isinstance(value, list) else value

    return scenario_runs.Both(older(results.ours), older(results.theirs))
