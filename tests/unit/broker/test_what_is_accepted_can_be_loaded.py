"""Whatever a peer gets accepted must not keep the broker from starting again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from tests.unit.broker.broker_world import BrokerWorld

numbers = st.one_of(
    st.integers(-5, 20),
    st.sampled_from([2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 2**70]),
)
names = st.sampled_from(["orders", "TBW102", "%RETRY%g", "%RETRY%", "rmq_sys_x", "g" * 128, "a b", ""])


@settings(max_examples=60)
@given(st.data())
def test_a_broker_starts_again_whatever_it_was_asked(data: st.DataObject) -> None:
    world = BrokerWorld()
    try:
        world.start()
        peer = world.connect()
        peer.create_topic("orders", 4)
        for _ in range(3):
            code = data.draw(st.sampled_from([RequestCode.UPDATE_CONSUMER_OFFSET, 17, 11, 10, 310]))
            fields = data.draw(FIELDS[int(code)])
            peer.begin(Command(int(code), {name: str(value) for name, value in fields.items()}, b"x"))
        world.stop()
        world.start()
        assert world.connect().send("never-seen-before").code == ResponseCode.SUCCESS
    finally:
        world.close()


FIELDS = {
    15: st.fixed_dictionaries(
        {"consumerGroup": names, "topic": names, "queueId": numbers, "commitOffset": numbers}
    ),
    17: st.fixed_dictionaries(
        {"topic": names, "readQueueNums": numbers, "writeQueueNums": numbers, "perm": numbers},
        optional={"topicSysFlag": numbers, "order": st.sampled_from(["true", "1", "x"])},
    ),
    11: st.fixed_dictionaries(
        {"consumerGroup": names, "topic": names, "queueId": numbers, "queueOffset": numbers}
        | {"maxMsgNums": numbers, "sysFlag": st.sampled_from([5, 4, 1]), "commitOffset": numbers}
    ),
    10: st.fixed_dictionaries(
        {"producerGroup": names, "topic": names, "defaultTopic": names, "defaultTopicQueueNums": numbers}
        | {"queueId": numbers, "sysFlag": numbers, "bornTimestamp": numbers, "flag": numbers},
        optional={"reconsumeTimes": numbers, "properties": st.just("A\x01b\x02")},
    ),
    310: st.fixed_dictionaries(
        {"a": names, "b": names, "c": names, "d": numbers, "e": numbers, "f": numbers, "g": numbers}
        | {"h": numbers},
        optional={"j": numbers, "l": numbers, "m": st.sampled_from(["true", "0", "x"])},
    ),
}


@pytest.mark.parametrize("value", [2**63, 2**70, -(2**63) - 1])
def test_an_offset_beyond_64_bits_is_refused_with_the_field(world: BrokerWorld, value: int) -> None:
    world.start()
    peer = world.connect()
    peer.create_topic("orders", 4)
    fields = {"consumerGroup": "g", "topic": "orders", "queueId": "0", "commitOffset": str(value)}
    reply = peer.begin(Command(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).reply
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "commitOffset" in (reply.remark or "")
