"""The fast way of a send against the plain one: the same bytes stored, the same answers."""

from __future__ import annotations

import itertools
from contextlib import closing

from hypothesis import given, settings
from hypothesis import strategies as st

from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import FLAG_ONE_WAY, Command, request
from kourou.protocol.headers import SendMessageV2
from kourou.protocol.record import decode_all
from kourou.remoting.connection import Connection
from tests.unit.broker.broker_world import BrokerWorld, Peer, send

TOPIC = "orders"

UNIQUE_ID = "7F0000010000A4714E0E2F2A00000001"
USUAL_TEXTS = [
    *("", "TAGS\x01a\x02", "TAGS\x01a", "WAIT\x01true\x02TAGS\x01b\x02", "KEYS\x01k\x02WAIT\x01true"),
    *(f"UNIQ_KEY\x01{UNIQUE_ID}\x02WAIT\x01true\x02TAGS\x01a\x02", f"TAGS\x01a\x02UNIQ_KEY\x01{UNIQUE_ID}"),
    *("UNIQ_KEY\x01ABC\x02", "X_UNIQ_KEY\x01ABC\x02TAGS\x01é\x02", "DELAY\x010\x02", "MSG_REGION\x01x\x02"),
]
UNUSUAL_TEXTS = ["WAIT\x01false\x02", "UNIQ_KEY\x01a-b\x02", "DELAY\x013\x02", "TRAN_MSG\x01true\x02"]
UNUSUAL_TOPICS = ["made-by-a-send", "SCHEDULE_TOPIC_XXXX", "../evil"]


def message(
    topics: list[str], queues: int, sys_flags: list[int], texts: list[str], batch: list[bool | None]
) -> st.SearchStrategy[SendMessageV2]:
    return st.builds(
        SendMessageV2,
        st.just("producers"),
        st.sampled_from(topics),
        st.just("TBW102"),
        st.just(4),
        st.integers(0, queues),
        st.sampled_from(sys_flags),
        st.integers(0, 2**40),
        st.integers(-3, 3),
        properties=st.sampled_from(texts),
        reconsume_times=st.sampled_from([None, 0, 2]),
        batch=st.sampled_from(batch),
    )


usual = st.tuples(
    message([TOPIC], 3, [0, 1], USUAL_TEXTS, [None, False]), st.sampled_from([b"x", b"y" * 2000])
)
unusual = st.tuples(
    message([TOPIC, *UNUSUAL_TOPICS], 5, [0, 4, 8], USUAL_TEXTS + UNUSUAL_TEXTS, [None, True]),
    st.sampled_from([b"", b"x", b"y" * 3000]),
)


def outcome(handlers_only: bool, messages: list[tuple[SendMessageV2, bytes]]) -> tuple[object, ...]:
    """What is answered and stored, with what must differ from run to run taken out."""
    with closing(BrokerWorld()) as world:
        world.start(message_bytes_max=2048)
        if handlers_only:
            for server in world.broker._servers:
                server._board.run_handlers.clear()
        peer = world.connect()
        peer.create_topic(TOPIC, 4)
        waiting = peer.begin_all(
            request(RequestCode.SEND_MESSAGE_V2, header, body) for header, body in messages
        )
        answers = [without_chance(each.reply) for each in waiting]
        records = [
            (
                *(record.topic, record.queue_id, record.flag, record.sys_flag, record.born_ms, record.body),
                *(record.reconsume_times, stable(record.properties)),
            )
            for topic, queues in sorted(world.broker.store.topics().items())
            for queue_id in queues
            for record in decode_all(b"".join(world.broker.store.read(topic, queue_id, 0).messages))
        ]
        return answers, records


def without_chance(reply: Command) -> tuple[object, ...]:
    """Unique ids are made up, and with them the lengths and so the places of records."""
    names = ("msgId", "transactionId")
    fields = {name: value for name, value in reply.fields.items() if name not in names}
    return reply.code, fields, reply.remark, sorted(reply.fields)


def stable(properties: bytes) -> bytes:
    """Without what the broker makes up: a unique id, and the checksum over it."""
    made_up = (b"UNIQ_KEY", b"__transactionId__", b"__CRC32#")
    kept = [each for each in properties.split(b"\x02") if not each.startswith(made_up)]
    return b"\x02".join(kept)


@settings(max_examples=40)
@given(st.lists(st.one_of(usual, usual, unusual), min_size=1, max_size=12))
def test_a_run_ends_as_its_messages_one_by_one_would(messages: list[tuple[SendMessageV2, bytes]]) -> None:
    assert outcome(False, messages) == outcome(True, messages)


def test_a_run_is_answered_with_one_write_and_in_its_order(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    peer.create_topic(TOPIC, 4)
    header = SendMessageV2("g", TOPIC, "TBW102", 4, 1, 0, 0, 0)
    writes = connection_of(world).writes
    waiting = peer.begin_all(request(RequestCode.SEND_MESSAGE_V2, header, b"x") for _ in range(16))
    assert [int(each.reply.fields["queueOffset"]) for each in waiting] == list(range(16))
    assert connection_of(world).writes - writes == 1


def test_a_run_that_is_not_stored_is_refused_message_by_message(world: BrokerWorld) -> None:
    world.start(flush_disk_type="SYNC_FLUSH", sync_flush_timeout_ms=50)
    peer = world.connect()
    peer.create_topic(TOPIC, 4)
    world.disk.hold()
    header = SendMessageV2("g", TOPIC, "TBW102", 4, 1, 0, 0, 0)
    waiting = peer.begin_all(request(RequestCode.SEND_MESSAGE_V2, header, b"x") for _ in range(3))
    world.pass_time(0.1)
    assert [each.reply.code for each in waiting] == [ResponseCode.FLUSH_DISK_TIMEOUT] * 3
    assert len({each.reply.fields["msgId"] for each in waiting}) == 3
    world.disk.release()


def used_to_it(world: BrokerWorld, **settings: int) -> Peer:
    """A client whose queue and properties the broker has seen: nothing but what a test changes is unusual."""
    world.start(**settings)
    peer = world.connect()
    peer.create_topic(TOPIC, 1)
    for _ in range(2):
        assert peer.begin(usual_send()).reply.code == ResponseCode.SUCCESS
    return peer


def usual_send(body: bytes = b"x", sys_flag: int = 0) -> Command:
    return send(TOPIC, body, properties=USUAL_TEXTS[5], sys_flag=sys_flag)


def codes(peer: Peer, *sends: Command) -> list[int]:
    return [each.reply.code for each in peer.begin_all(sends)]


def test_a_run_takes_no_message_that_says_it_is_of_a_transaction(world: BrokerWorld) -> None:
    peer = used_to_it(world)
    sends = [usual_send(b"%d" % sys_flag, sys_flag) for sys_flag in (0, 4, 8, 12, 1)]
    refused = ResponseCode.MESSAGE_ILLEGAL
    assert codes(peer, *sends) == [ResponseCode.SUCCESS, refused, refused, refused, ResponseCode.SUCCESS]
    assert [(each.body, each.sys_flag) for each in peer.records(TOPIC)[2:]] == [(b"0", 0), (b"1", 1)]


def test_a_one_way_send_among_others_is_stored_and_not_answered(world: BrokerWorld) -> None:
    peer = used_to_it(world)
    sends = [usual_send(b"%d" % number) for number in range(3)]
    sends[1].flag = FLAG_ONE_WAY
    waiting = peer.begin_all(sends)
    assert [each.is_answered for each in waiting] == [True, False, True]
    assert peer.bodies(TOPIC)[2:] == [b"0", b"1", b"2"]


def test_a_run_takes_no_message_without_a_body_or_with_one_too_large(world: BrokerWorld) -> None:
    peer = used_to_it(world, message_bytes_max=2048)
    refused = ResponseCode.MESSAGE_ILLEGAL
    sends = [usual_send(bytes(size)) for size in (1, 2049, 2048, 0, 2)]
    assert codes(peer, *sends) == [
        *(ResponseCode.SUCCESS, refused, ResponseCode.SUCCESS, refused, ResponseCode.SUCCESS)
    ]
    assert [len(body) for body in peer.bodies(TOPIC)[2:]] == [1, 2048, 2]


def connection_of(world: BrokerWorld) -> Connection:
    return next(itertools.chain.from_iterable(server.connections for server in world.broker._servers))
