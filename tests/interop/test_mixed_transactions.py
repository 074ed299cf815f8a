"""One transaction producer group with a Java and a Kourou member: brokers ask either about anybody's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kourou
from tests.interop import ours
from tests.interop.java_member import java_transaction_member
from tests.interop.ours import wait_until
from tests.interop.test_our_producers_with_apache import bodies, cluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

QUICKLY: dict[str, Any] = {"transactionCheckInterval": 1000, "transactionTimeOut": 1000}
TOPIC, GROUP = "Mixed", "mixed-transactions"


@pytest.mark.parametrize("kind", ["ours", "apache"])
def test_whoever_is_left_of_a_group_answers_for_those_who_are_gone(
    kind: str, version: str, tmp_path: Path
) -> None:
    """Each member leaves transactions unknown and goes; the other one, of the other kind, is asked."""
    if kind == "ours":
        with (
            ours.name_server(tmp_path) as names,
            ours.broker(tmp_path, names.address, **QUICKLY),
        ):
            _both_ways(version, tmp_path, names.address)
    else:
        with cluster(version, tmp_path, **QUICKLY) as name_server:
            _both_ways(version, tmp_path, name_server)


def _both_ways(version: str, folder: Path, name_server: str) -> None:
    asked: list[bytes] = []

    def check(message: kourou.ReceivedMessage) -> kourou.TransactionState:
        asked.append(message.body)
        keep = message.keys == "commit"
        return kourou.TransactionState.COMMIT if keep else kourou.TransactionState.ROLLBACK

    with kourou.Producer("plain", name_server, send_timeout=10.0) as producer:
        producer.send(kourou.Message(TOPIC, b"plain"))
    with java_transaction_member(version, folder, name_server, GROUP, TOPIC) as java:
        with kourou.TransactionProducer(GROUP, check, name_server, send_timeout=10.0) as producer:
            for key in ("commit", "rollback"):
                message = kourou.Message(TOPIC, f"ours, {key}".encode(), keys=key)
                with producer.transaction(message) as transaction:
                    transaction.leave_unknown()
        # We are gone: Java is asked about ours.
        wait_until(
            lambda: {"ours, commit", "ours, rollback"} <= {each["body"] for each in java.events("asked")},
            60,
            "Java was asked about our transactions",
        )
        wait_until(lambda: b"ours, commit" in bodies(name_server, TOPIC, 0), 30, "ours was committed by Java")
        with kourou.TransactionProducer(GROUP, check, name_server, send_timeout=10.0):
            for key in ("commit", "rollback"):
                java.tell(f"{key} java, {key}")
            wait_until(lambda: len(java.events("begun")) == 2, 30, "Java began its transactions")
            java.leave()
            # Java is gone: we are asked about those it left.
            wait_until(
                lambda: b"java, commit" in bodies(name_server, TOPIC, 0),
                60,
                "a transaction of Java's was committed",
            )
    found = set(bodies(name_server, TOPIC, 0))
    assert found == {b"plain", b"ours, commit", b"java, commit"}
    told = {each["body"].encode() for each in java.events("asked")}
    assert {b"java, commit", b"java, rollback"} <= set(asked) | told
