"""What each request needs."""

from __future__ import annotations

import json

import pytest

from kourou.access.needs import is_mapped, needs_of
from kourou.access.rules import ADMIN, CREATE, GET, PUB, SUB, UPDATE, Need
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command

HEARTBEAT = {
    "clientID": "c",
    "producerDataSet": [{"groupName": "p"}],
    "consumerDataSet": [
        {
            "groupName": "g",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [{"topic": "t"}, {"topic": "%RETRY%g"}],
        }
    ],
}
LOCK = {"consumerGroup": "g", "clientId": "c", "mqSet": [{"brokerName": "b", "queueId": 0, "topic": "t"}]}


@pytest.mark.parametrize(
    ("code", "fields", "body", "needs"),
    [
        (10, {"topic": "t", "producerGroup": "p"}, {}, [Need("Topic", "t", PUB, "p")]),
        (310, {"b": "t", "a": "p"}, {}, [Need("Topic", "t", PUB, "p")]),
        (320, {"b": "%RETRY%g", "a": "p"}, {}, [Need("Group", "g", SUB)]),
        (310, {"b": "t"}, {}, [Need("Topic", "t", PUB, "")]),
        (
            11,
            {"topic": "t", "consumerGroup": "g"},
            {},
            [Need("Topic", "t", SUB, "g"), Need("Group", "g", SUB)],
        ),
        (12, {"topic": "t", "key": "k"}, {}, [Need("Topic", "t", SUB, "")]),
        (36, {"group": "g", "offset": "1"}, {}, [Need("Group", "g", SUB)]),
        (37, {"producerGroup": "p"}, {}, []),
        (34, {}, HEARTBEAT, [Need("Group", "g", SUB), Need("Topic", "t", SUB, "g"), Need("Group", "g", SUB)]),
        (41, {}, LOCK, [Need("Group", "g", SUB), Need("Topic", "t", SUB, "g")]),
        (105, {"topic": "t"}, {}, [Need("Topic", "t", GET | SUB | PUB)]),
        (200, {}, {"groupName": "g"}, [Need("Group", "g", CREATE | UPDATE)]),
        (103, {"clusterName": "c"}, {}, [Need("Cluster", "c", UPDATE)]),
        (25, {}, {}, [Need("Cluster", "*", ADMIN)]),
        (31_000, {}, {}, [Need("Cluster", "*", ADMIN)]),
        (17, {}, {}, [Need("Cluster", "*", ADMIN)]),
    ],
)
def test_a_request_needs_what_it_is_about(
    code: int, fields: dict[str, str], body: dict[str, object], needs: list[Need]
) -> None:
    command = Command(code, body=json.dumps(body).encode() if body else b"")
    command.replace_fields(fields)
    assert list(needs_of(command)) == needs


def test_a_code_nobody_thought_of_is_for_administrators() -> None:
    assert not is_mapped(31_000)
    assert is_mapped(RequestCode.SEND_MESSAGE_V2)
