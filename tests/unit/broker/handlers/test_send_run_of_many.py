"""Sends that many producers make in one tick: handled as one run, answered and stored each for its own."""

from __future__ import annotations

from contextlib import closing

import pytest

from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.frame import Frame
from kourou.protocol.headers import SendMessageV2
from kourou.protocol.record import decode_all
from kourou.remoting.answer import RunAnswers
from tests.unit.broker.broker_world import BrokerWorld, Peer, Waiting

TOPIC = "orders"
QUEUES = 4


def send(queue_id: int, body: bytes, properties: str = "TAGS\x01a\x02") -> Command:
    header = SendMessageV2("producers", TOPIC, "TBW102", 4, queue_id, 0, 5, 0, properties=properties)
    return request(RequestCode.SEND_MESSAGE_V2, header, body)


def begin_together(peers: list[Peer], commands: list[list[Command]]) -> list[list[Waiting]]:
    """Each peer writes all of its own, before the broker sees any."""
    world = peers[0]._world
    settle, world.settle = world.settle, lambda: None  # type: ignore[method-assign]
    try:
        waiting = [peer.begin_all(each) for peer, each in zip(peers, commands, strict=True)]
    finally:
        world.settle = settle  # type: ignore[method-assign]
    world.settle()
    return waiting


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_what_many_send_in_a_tick_is_one_run_and_each_hears_of_its_own(flush: str) -> None:
    with closing(BrokerWorld()) as world:
        world.start(flush_disk_type=flush)
        peers = [world.connect() for _ in range(5)]
        peers[0].create_topic(TOPIC, QUEUES)
        for queue_id in range(QUEUES):  # the first of a queue is unusual
            assert peers[0].begin(send(queue_id, b"first")).reply.code == ResponseCode.SUCCESS
        runs: list[int] = []
        board = world.broker._servers[0]._board
        ((key, handler),) = board.spanning_handlers.items()

        class Counting:
            spans_connections = True

            def __call__(self, frames: list[Frame], answers: RunAnswers) -> int:
                taken = handler(frames, answers)
                runs.append(taken)
                return taken

        board.spanning_handlers[key] = Counting()
        sent = [
            [send((number + each) % QUEUES, b"%d-%d" % (number, each)) for each in range(number + 1)]
            for number in range(5)
        ]
        waiting = begin_together(peers, sent)
        assert runs == [15]

        stored = {
            (record.queue_id, record.queue_offset): record
            for queue_id in range(QUEUES)
            for record in decode_all(b"".join(world.broker.store.read(TOPIC, queue_id, 0).messages))
        }
        assert len(stored) == QUEUES + 15
        for number, (peer, replies) in enumerate(zip(peers, waiting, strict=True)):
            for each, waited in enumerate(replies):
                fields = waited.reply.fields
                assert waited.reply.code == ResponseCode.SUCCESS
                record = stored[int(fields["queueId"]), int(fields["queueOffset"])]
                assert record.body == b"%d-%d" % (number, each)
                assert int.from_bytes(record.born_host[-4:], "big") == peer.transport.local[1]


def test_one_refused_message_harms_nobody_elses() -> None:
    with closing(BrokerWorld()) as world:
        world.start()
        peers = [world.connect() for _ in range(3)]
        peers[0].create_topic(TOPIC, QUEUES)
        peers[0].begin(send(0, b"first"))
        waiting = begin_together(
            peers,
            [[send(0, b"a")], [send(0, b"b"), send(77, b"no such queue"), send(0, b"c")], [send(0, b"d")]],
        )
        codes = [[each.reply.code == ResponseCode.SUCCESS for each in replies] for replies in waiting]
        assert codes == [[True], [True, False, True], [True]]
        records = decode_all(b"".join(world.broker.store.read(TOPIC, 0, 0).messages))
        assert [record.body for record in records] == [b"first", b"a", b"b", b"c", b"d"]
