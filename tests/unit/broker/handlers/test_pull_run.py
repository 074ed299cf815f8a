"""The fast way of a pull against the plain one: the same answers, the same things remembered."""

from __future__ import annotations

from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kourou.broker.handlers.pull import COMMIT, OWN_SUBSCRIPTION, SUSPEND
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import BINARY, FLAG_ONE_WAY, Command, request
from kourou.protocol.headers import PullMessage
from kourou.protocol.record import decode_all
from kourou.remoting.connection import Connection
from kourou.store import ahead, reading, replies
from tests.unit.broker.broker_world import BrokerWorld, Peer, pull, send

TOPIC = "orders"
PROPERTIES = [f"UNIQ_KEY\x01ID%d\x02TAGS\x01{tag}\x02n\x01%d\x02" for tag in "abc"]

usual = st.builds(
    PullMessage,
    st.just("readers"),
    st.just(TOPIC),
    st.integers(0, 1),
    st.integers(0, 9),
    st.integers(1, 5),
    st.sampled_from([OWN_SUBSCRIPTION, OWN_SUBSCRIPTION | COMMIT]),
    commit_offset=st.integers(0, 5),
    subscription=st.sampled_from([None, "*", "a", "a || b"]),
    expression_type=st.sampled_from([None, "TAG"]),
)
by_sql = st.builds(
    PullMessage,
    st.just("readers"),
    st.just(TOPIC),
    st.integers(0, 1),
    st.integers(0, 9),
    st.integers(1, 5),
    st.just(OWN_SUBSCRIPTION),
    subscription=st.sampled_from(
        ["n > 5", "n > 100 OR TAGS = 'a'", "TAGS IN ('a', 'b') AND n < 11", "1 = 1"]
    ),
    expression_type=st.just("SQL92"),
)
unusual = st.builds(
    PullMessage,
    st.sampled_from(["readers", "idle", "../evil"]),
    st.sampled_from([TOPIC, "nothing", "%RETRY%readers"]),
    st.integers(-1, 4),
    st.integers(-1, 30),
    st.integers(-1, 40),
    st.sampled_from([0, COMMIT, SUSPEND | OWN_SUBSCRIPTION, OWN_SUBSCRIPTION]),
    commit_offset=st.integers(-1, 5),
    suspend_timeout_ms=st.just(1000),
    subscription=st.sampled_from([None, "*", "||", "a", "n > 1"]),
    expression_type=st.sampled_from([None, "TAG", "SQL92", "else"]),
)


def outcome(handlers_only: bool, pulls: list[PullMessage], reset: bool) -> tuple[object, ...]:
    with closing(BrokerWorld()) as world:
        broker = world.start(property_filter=True)
        if handlers_only:
            for server in broker._servers:
                server._board.run_handlers.clear()
        peer = world.connect()
        peer.create_topic(TOPIC, 2)
        peer.begin_all(
            send(
                TOPIC,
                b"%d" % number,
                queue_id=number % 2,
                properties=PROPERTIES[number % 3] % (number, number),
            )
            for number in range(14)
        )
        if reset:
            broker.offsets.reset("readers", TOPIC, 1, 3)
        waiting = peer.begin_all(request(RequestCode.PULL_MESSAGE, header) for header in pulls)
        world.pass_time(2, 1)
        answers = [described(each.reply) for each in waiting]
        flows = dict(broker.stats.got_by_topic_and_group)
        offsets = broker.offsets.all.offset_table, broker.offsets._pulled
        held = [
            (each.in_flight_requests, each.in_flight_bytes) for each in broker._servers[0]._board.connections
        ]
        return answers, flows, offsets, held, broker._servers[0]._board.requests


def described(reply: Command) -> tuple[object, ...]:
    remark = None if reply.remark in (None, "FOUND") else reply.remark
    return reply.code, dict(reply.fields), remark, reply.body


@settings(max_examples=25)
@given(st.lists(st.one_of(usual, by_sql, unusual), min_size=1, max_size=10), st.booleans(), st.booleans())
def test_a_run_ends_as_its_pulls_one_by_one_would(
    pulls: list[PullMessage], reset: bool, is_native: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ahead, "ENTRIES_TOGETHER", 4)
        if not is_native:
            patch.setattr(replies, "_pull_reply", None)
        for module in (ahead, reading):  # as if there were far more messages
            patch.setattr(module, "BLOCK_ENTRIES", 2)
            patch.setattr(module, "FILTERED_BLOCK_ENTRIES", 3)
        assert outcome(False, pulls, reset) == outcome(True, pulls, reset)


def filled(world: BrokerWorld, count: int, body: bytes = b"x") -> Peer:
    world.start()
    peer = world.connect()
    peer.create_topic(TOPIC, 1)
    for _ in range(count):
        peer.send(TOPIC, body)
    return peer


def test_a_run_is_answered_with_one_write_and_in_its_order(world: BrokerWorld) -> None:
    peer = filled(world, 12)
    writes = connection_of(world).writes
    waiting = peer.begin_all(pull(TOPIC, 0, offset, message_count_max=2) for offset in range(8))
    assert [int(each.reply.fields["nextBeginOffset"]) for each in waiting] == list(range(2, 10))
    assert [[r.queue_offset for r in decode_all(each.reply.body)] for each in waiting] == [
        [offset, offset + 1] for offset in range(8)
    ]
    assert connection_of(world).writes - writes == 1


def test_a_run_of_large_answers_goes_out_bit_by_bit(world: BrokerWorld) -> None:
    peer = filled(world, 2, bytes(200_000))
    writes = connection_of(world).writes
    waiting = peer.begin_all(pull(TOPIC, 0, 0, message_count_max=1) for _ in range(24))
    assert {len(each.reply.body) // 200_000 for each in waiting} == {1}
    assert connection_of(world).writes - writes >= 4


def test_binary_headers_and_json_ones_that_begin_otherwise_are_answered_too(world: BrokerWorld) -> None:
    peer = filled(world, 3)
    assert len(decode_all(peer.begin(pull(TOPIC, serialization=BINARY)).reply.body)) == 3
    fields = {"consumerGroup": "g", "topic": TOPIC, "queueId": 0, "queueOffset": 1, "maxMsgNums": 9}
    header = {"flag": 0, "code": 11, "extFields": {**fields, "sysFlag": 4, "subscription": "*"}}
    assert len(decode_all(peer.begin_raw(header).reply.body)) == 2


def test_a_one_way_pull_among_others_is_not_answered(world: BrokerWorld) -> None:
    peer = filled(world, 3)
    pulls = [pull(TOPIC, 0, offset) for offset in range(3)]
    pulls[1].flag = FLAG_ONE_WAY
    waiting = peer.begin_all(pulls)
    assert [each.is_answered for each in waiting] == [True, False, True]
    assert [len(decode_all(each.reply.body)) for each in waiting[::2]] == [3, 1]


def connection_of(world: BrokerWorld) -> Connection:
    (connection,) = world.broker._servers[0]._board.connections
    return connection
