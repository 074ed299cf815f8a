"""The native loops of a send against their twins in Python: the same, or nothing."""

from __future__ import annotations

import re
import subprocess
from array import array
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hatch_build
from kourou.broker.handlers import send_run
from kourou.broker.handlers.send_run import RUN_KEY, SendRunHandler
from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import MQError
from kourou.native import native
from kourou.protocol import record as records
from kourou.protocol.command import decode
from kourou.protocol.frame import Frame, FrameReader, join, split_plainly
from kourou.remoting.answer import total_plainly
from kourou.remoting.connection import run_end_plainly
from kourou.store.index_file import entries_plainly
from kourou.store.key_hashes import KeyHashes, Keys
from tests.unit.broker.broker_world import BrokerWorld
from tests.unit.native.compilers import COMPILER, HEADERS, needs_compiler
from tests.unit.store.folder import BORN, HERE, Later, bodies_of, fill, read_all, store_on

pytestmark = pytest.mark.skipif(
    native is None,
    reason="NOT TESTED: kourou.native is not compiled here (it takes a C compiler at installation)",
)

HOST_V4, HOST_V6 = b"\x7f\0\0\1\0\0*\xbb", bytes(15) + b"\1\0\0*\xbb"
ID = "7F0000010000A4714E0E2F2A0000000"
MADE_UP = re.compile(rb"UNIQ_KEY\x01(?!%b)[0-9A-F]{32}\x02" % ID.encode())
FIELDS = {
    **{"a": "producers", "b": "orders", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700000000000"},
    **{
        "h": "0",
        "i": f"UNIQ_KEY\\u0001{ID}1\\u0002WAIT\\u0001true\\u0002TAGS\\u0001a",
        "j": "0",
        "k": "false",
    },
    **{"l": "16", "m": "false", "n": "broker-a"},
}
AS_JAVA = '{"code":310,"extFields":{%s},"flag":0,"language":"JAVA","opaque":%d,"version":399}'
AS_CPP = '{"code":310,"language":"CPP","version":399,"opaque":%d,"flag":0,"remark":"","extFields":{%s}}'


def java_header(opaque: int = 7, **changed: str) -> bytes:
    fields = ",".join(f'"{name}":"{value}"' for name, value in {**FIELDS, **changed}.items())
    return (AS_JAVA % (fields, opaque)).encode()


@pytest.fixture(scope="module")
def handler() -> Iterator[SendRunHandler]:
    with closing(BrokerWorld()) as world:
        world.start()
        world.connect().create_topic("orders", 4)
        world.connect().create_topic("other", 2)
        handler = world.broker._servers[0]._board.run_handlers[RUN_KEY]
        assert isinstance(handler, SendRunHandler)
        yield handler


def looked_at(handler: SendRunHandler, frames: list[Frame]) -> tuple[list[Any], list[Any]]:
    assert native is not None
    asked: list[Any] = []
    run: list[Any] = []
    with suppress(MQError):
        native.look_at_sends(
            *(frames, asked, run, handler._queues_of, handler._stored_as, handler._around, 4 << 20)
        )
    return asked, run


def looked_at_plainly(handler: SendRunHandler, frames: list[Frame]) -> tuple[list[Any], list[Any]]:
    asked: list[Any] = []
    run: list[Any] = []
    with suppress(Exception):
        handler._look_at(frames, asked, run)
    return asked, run


def same_or_less(handler: SendRunHandler, headers: list[bytes], body: bytes = b"x") -> int:
    """How many the native one took: all as its twin did."""
    frames = [Frame(0, header, body) for header in headers]
    asked, run = looked_at(handler, frames)
    asked_plainly, run_plainly = looked_at_plainly(handler, frames)
    assert without_made_up(run) == without_made_up(run_plainly[: len(run)])
    assert [(each[0], each[2]) for each in asked] == [
        (each[0], each[2]) for each in asked_plainly[: len(asked)]
    ]
    assert len(asked) == len(run)
    return len(run)


def without_made_up(run: list[Any]) -> list[Any]:
    """A message without a unique id gets one that is made up; its place is told of kinds known before."""
    return [(*each[:2], MADE_UP.sub(b"", each[2]), *each[4:]) for each in run]


def test_headers_as_clients_write_them_are_taken(handler: SendRunHandler) -> None:
    headers = [
        java_header(),
        java_header(8, i=f"UNIQ_KEY\\u0001{ID}2\\u0002WAIT\\u0001true\\u0002TAGS\\u0001a"),
        java_header(9, b="other", e="0"),
        java_header(10, i=f"TAGS\\u0001\u00e9\\u0002UNIQ_KEY\\u0001{ID}3\\u0002", h="-5", f="1"),
        java_header(11, i=""),
        java_header(12, i=f'q\\u0001\\"\\\\\\/\\n\\t\\r\\b\\f\\u0002UNIQ_KEY\\u0001{ID}4'),
        (AS_CPP % (13, ",".join(f'"{name}":"{value}"' for name, value in FIELDS.items()))).encode(),
        java_header(-1).replace(b'"j":"0"', b'"j":null').replace(b'"e":"1"', b'"e":1'),
        java_header(14).replace(b',"k":"false","l":"16","m":"false","n":"broker-a"', b""),
    ]
    assert same_or_less(handler, headers) == len(headers)


@pytest.mark.parametrize(
    "header",
    [
        java_header(m="true"),
        java_header(m="\\u0066alse"),
        java_header(b="nothing-there"),
        java_header(b="%RETRY%g"),
        java_header(e="4"),
        java_header(e="-1"),
        java_header(e="01"),
        java_header(e="1.0"),
        java_header(e=""),
        java_header(f="4"),
        java_header(f="4294967296"),
        java_header(g="9223372036854775808"),
        java_header(i="WAIT\\u0001false"),
        java_header(z="\\x"),
        java_header(o="\\ud800"),
        java_header(i="\\u4e2d"),
        java_header(i="\\x"),
        java_header(i="\\u00"),
        java_header(i="\\"),
        java_header(1 << 31),
        java_header().replace(b'"flag":0', b'"flag":2'),
        java_header().replace(b'"flag":0', b'"flag":-0'),
        java_header().replace(b'"opaque":7,', b""),
        java_header().replace(b'"a":"producers",', b""),
        java_header().replace(b'"a":"producers"', b'"a":5'),
        java_header().replace(b'"a":"producers"', b'"a":null'),
        java_header().replace(b'"a":"producers"', b'"b":"orders"'),
        java_header().replace(b'"version":399', b'"version":{}'),
        java_header().replace(b'"version":399', b'"version":+1'),
        java_header() + b" ",
        java_header() + b"}",
        java_header()[:-1],
        b'{"code":310,',
        b"",
        b'{"code":310,"extFields":null,"opaque":1}',
        b'{"code":310,"extFields":{},"opaque":1}',
        b'{"code":310,"extFields":{"a":"b"},"extFields":{"a":"b"},"opaque":1}',
    ],
)
def test_what_is_unusual_is_left_to_the_twin(handler: SendRunHandler, header: bytes) -> None:
    assert same_or_less(handler, [header]) == 0


def test_a_body_too_large_or_none_is_left_to_the_twin(handler: SendRunHandler) -> None:
    assert same_or_less(handler, [java_header()], b"") == 0
    assert looked_at(handler, [Frame(0, java_header(), bytes((4 << 20) + 1))]) == ([], [])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_change_of_a_header_makes_a_difference(handler: SendRunHandler, data: st.DataObject) -> None:
    header = bytearray(java_header(data.draw(st.integers(-5, 1 << 32))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(header)))
        until = data.draw(st.sampled_from([at, at + 1, at + 5]))
        header[at:until] = data.draw(
            st.sampled_from(
                [b"", b'"', b"\\", b"\\u0001", b",", b"}", b"{", b":", b"0", b"-", b"\xc3\xa9", b"\xff"]
            )
            | st.binary(min_size=1, max_size=3)
        )
    same_or_less(handler, [java_header(), bytes(header), java_header(3)])


class Queue:
    """What a consume queue shows of itself when something is appended."""

    def __init__(self, topic: str) -> None:
        self.topic_bytes = topic.encode()
        self.topic_part = records.topic_part(self.topic_bytes)
        self.next_offset = 5
        self.staged: list[int] = []


messages = st.tuples(
    st.tuples(st.sampled_from(["orders", "é", "t" * 127, "t" * 128, "none"]), st.integers(0, 1)),
    st.binary(min_size=1, max_size=300),
    st.sampled_from([f"UNIQ_KEY\x01{ID}1\x02", "KEYS\x01a b\x02", "", "x\x01y\x02" * 9]).map(str.encode),
    st.sampled_from([0, 9]),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.sampled_from([0, 1, 0x31, -1]),
    st.integers(0, 1 << 41),
    st.integers(0, 5),
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(messages, st.sampled_from([HOST_V4, HOST_V6]), st.integers(0, 1 << 40)), max_size=8),
    st.sampled_from([HOST_V4, HOST_V6]),
    st.integers(0, 3000),
    st.booleans(),
    st.booleans(),
)
def test_records_and_all_that_is_noted_of_them_are_the_same(
    run: list[tuple[Any, bytes, int]], store_host: bytes, room: int, is_prepared: bool, has_index: bool
) -> None:
    assert native is not None
    table = {
        (topic, queue): Queue(topic) for topic in ("orders", "é", "t" * 127, "t" * 128) for queue in (0, 1)
    }
    places: list[Any] = []
    staged_queues: list[Any] = []
    keys = Keys([], [])
    keyed: list[Any] = []
    run = [(each if b"UNIQ" in each[2] else (*each[:3], 0, *each[4:]), *rest) for each, *rest in run]  # type: ignore[misc]
    data, end = native.append_sends(
        *([each for each, _, _ in run], [host for _, host, _ in run]),
        *([prepared for _, _, prepared in run] if is_prepared else None, store_host, table, 100, 100 + room),
        *(1700000000000, places, staged_queues, keys.hashes if has_index else None, keys.places, keyed),
    )
    KeyHashes().collect(keyed, keys)

    at, expected = 100, b""
    offsets = dict.fromkeys(table, 5)
    expected_keys = Keys([], [])
    staged: dict[Any, list[int]] = {}
    for (key, body, properties, id_at, tag, flag, sys_flag, born_ms, times), host, prepared in run:
        if key not in table or not table[key].topic_part:
            break
        made = records.encode_usual(
            *(records.host_shape(host, store_host), table[key].topic_part, key[1], flag, offsets[key], at),
            *(sys_flag, born_ms, host, 1700000000000, store_host, times, body, properties),
            *((prepared,) if is_prepared else ()),
        )
        if at + len(made) > 100 + room:
            break
        staged.setdefault(key, []).extend((at, len(made), tag))
        if has_index:
            KeyHashes().collect([(table[key].topic_bytes, properties, id_at, at)], expected_keys)
        offsets[key] += 1
        expected += made
        at += len(made)
    assert (data, end) == (expected, at)
    assert {key: queue.staged for key, queue in table.items() if queue.staged} == staged
    assert staged_queues == [table[key] for key in staged]
    assert {key: queue.next_offset for key, queue in table.items()} == offsets
    assert keys == expected_keys


USUAL = (("orders", 0), b"body", f"UNIQ_KEY\x01{ID}1\x02".encode(), 9, 97, 0, 0, 1700000000000, 0)


def appended(run: list[Any], queue: object, hosts: list[bytes]) -> tuple[bytes, list[Any]]:
    """The records, and their places."""
    assert native is not None
    places: list[Any] = []
    table, keys = {("orders", 0): queue}, Keys([], [])
    data, _ = native.append_sends(
        *(run, hosts, None, HOST_V4, table, 0, 1 << 30, 1700000000000, places, [], *keys, [])
    )
    return data, places


def test_keys_are_noted_in_the_order_of_the_log() -> None:
    assert native is not None
    with_keys = (*USUAL[:2], b"KEYS\x01a b\x02" + USUAL[2], 0, *USUAL[4:])
    run, table = [USUAL, with_keys, USUAL, with_keys], {("orders", 0): Queue("orders")}
    noted, plain = Keys([], []), Keys([], [])
    keyed: list[Any] = []
    places: list[tuple[int, int]] = []
    native.append_sends(*(run, [HOST_V4] * 4, None, HOST_V4, table, 0, 1 << 30, 0, places, [], *noted, keyed))
    KeyHashes().collect(keyed, noted)
    messages = zip(run, places, strict=True)
    KeyHashes().collect([(b"orders", each[2], each[3], place) for each, (place, _) in messages], plain)
    assert noted == plain
    assert len(plain.places) == 8


class Meddling(Queue):
    """Does something when it is told of the first message."""

    def __init__(self, meddle: Callable[[], None]) -> None:
        super().__init__("orders")
        self.meddle = meddle

    def __setattr__(self, name: str, value: object) -> None:
        if name == "next_offset" and "meddle" in self.__dict__:
            self.meddle()
        super().__setattr__(name, value)


def test_a_message_that_grows_while_the_run_is_appended_does_not_leave_its_room() -> None:
    run: list[Any] = [USUAL, USUAL]

    def grow() -> None:
        run[1] = (USUAL[0], bytes(1 << 20), *USUAL[2:])

    data, places = appended(run, Meddling(grow), [HOST_V4] * 2)
    assert len(places) == 1
    assert len(data) == records.Record(data).size


def test_a_run_that_is_emptied_while_it_is_appended_ends_there() -> None:
    run: list[Any] = [(*USUAL[:2], bytes(bytearray(USUAL[2])), *USUAL[3:]) for _ in range(2)]
    hosts = [bytes(bytearray(HOST_V4)) for _ in range(2)]

    def empty() -> None:
        run.clear()
        hosts.clear()

    data, places = appended(run, Meddling(empty), hosts)
    assert len(places) == 1
    assert records.check(data, 0, len(data)).verdict is records.Verdict.OK


class Index:
    """A number to some, and none to a run."""

    def __index__(self) -> int:
        return 7


@pytest.mark.parametrize("place", range(4, 9))
def test_nobody_is_asked_for_a_number(place: int) -> None:
    message = (*USUAL[:place], Index(), *USUAL[place + 1 :])
    queue = Queue("orders")
    if place == 4:  # the tag is handed on as it is
        assert len(appended([message], queue, [HOST_V4])[1]) == 1
    else:
        with pytest.raises(TypeError, match="an int is needed, not Index"):
            appended([message], queue, [HOST_V4])
        assert (queue.next_offset, queue.staged) == (5, [])


def test_a_topic_that_is_no_bytes_is_an_error_as_any_other() -> None:
    queue = Queue("orders")
    queue.topic_bytes = "orders"  # type: ignore[assignment]
    with pytest.raises(TypeError, match="topic_bytes are bytes"):
        appended([USUAL], queue, [HOST_V4])


def test_places_that_no_log_has_are_refused() -> None:
    assert native is not None
    for at, room_end in ((-1, 1 << 30), (0, -1), (-(1 << 63), (1 << 63) - 1)):
        with pytest.raises(ValueError, match="no place in a log"):
            native.append_sends(
                *([], [], None, HOST_V4, {}, at, room_end, 1700000000000, [], [], None, [], [])
            )
    place = (1 << 63) - 300
    table = {("orders", 0): Queue("orders")}
    for room_end in (place, (1 << 63) - 1):
        data, end = native.append_sends(
            *([USUAL] * 3, [HOST_V4] * 3, None, HOST_V4, table, place, room_end, 0, [], [], None, [], [])
        )
        assert end == place + len(data) <= room_end


@pytest.mark.parametrize("module", [native, None], ids=["native", "plain"])
def test_a_run_that_fails_in_the_middle_leaves_nothing_behind(module: object) -> None:
    tick = Later()
    files = SimulatedFiles()
    store = store_on(files, defer=tick.defer)
    fill(store, 2)
    tick.run()
    fill(store, 1, start=2)
    usual = [(("T", 0), b"T-0-%d" % number, *USUAL[2:]) for number in range(3, 6)]
    with mock.patch("kourou.store.store.native", module):
        with pytest.raises((TypeError, KeyError)):
            store.append_run(usual, [BORN, BORN, b"no host"], HERE)
        assert store.append_run(usual[:2], [BORN, BORN], HERE).places[0][1] == 3
    tick.run()
    fill(store, 1, start=5)
    tick.run()
    assert bodies_of(store) == [b"T-0-%d" % number for number in range(6)]
    assert [record.queue_offset for record in read_all(store)] == list(range(6))
    assert len(store.find("T", f"{ID}1", 64)) == 2
    store.close()


@pytest.mark.parametrize("region", ["DefaultRegion", "50%", "%d%b%%016X", 'a"b\\', "\u00e9"])
def test_any_region_is_answered_with(region: str) -> None:
    with closing(BrokerWorld()) as world:
        world.start(region=region)
        world.make_topic("orders")
        handler = world.broker._servers[0]._board.run_handlers[RUN_KEY]
        asked, places = [(1, b"A1", 7)], [(1 << 40, 5)]
        made = handler._accepting(asked, places)  # type: ignore[attr-defined]
        with mock.patch.object(send_run, "native", None):
            assert handler._accepting(asked, places) == made  # type: ignore[attr-defined]
        reply = decode(FrameReader().feed(made[0])[0])
        assert reply.fields["MSG_REGION"] == region


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1 << 20), st.binary(max_size=40), st.integers(-(1 << 31), (1 << 31) - 1),
            st.integers(0, (1 << 63) - 1), st.integers(0, 1 << 62),
        ),
        max_size=5,
    )
)  # fmt: skip
def test_answers_are_the_same(handler: SendRunHandler, each: list[tuple[int, bytes, int, int, int]]) -> None:
    asked = [(queue_id, unique_id, opaque) for queue_id, unique_id, opaque, _, _ in each]
    places = [(place, offset) for *_, place, offset in each]
    made = handler._accepting(asked, places)
    with mock.patch.object(send_run, "native", None):
        assert made == handler._accepting(asked, places)


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.integers(0, 255), st.binary(min_size=8, max_size=30), st.binary(max_size=30)), max_size=4
    ),
    st.binary(max_size=20),
)
def test_frames_are_split_alike(parts: list[tuple[int, bytes, bytes]], rest: bytes) -> None:
    assert native is not None
    data = b"".join(join(serialization, header, body) for serialization, header, body in parts) + rest
    assert native.split(data, Frame) == split_plainly(data, Frame)
    frames = native.split(data, Frame)[0]
    assert native.total(frames) == total_plainly(frames)
    for at in range(len(frames)):
        key = frames[at].header[:4]
        assert native.run_end(frames, at, key) == run_end_plainly(frames, at, key)


def test_lengths_that_cannot_be_are_refused_alike() -> None:
    for data in (b"\0\0\0\4\0\0\0\0", b"\xff" * 9, b"\1\0\0\0\0\0\0\x0a", b"\0\0\0\x20\0\0\1\0"):
        with pytest.raises(MQError, match="a frame has at most"):
            FrameReader().feed(data)


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.integers(0, (1 << 31) - 1), st.integers(0, 1 << 62)), max_size=20),
    st.integers(1, 50),
)
def test_index_entries_are_the_same(each: list[tuple[int, int]], slots: int) -> None:
    assert native is not None
    results = []
    for make in (native.index_entries, entries_plainly):
        pages: list[Any] = [None] * (slots // 8 + 1)

        def load(number: int, pages: list[Any] = pages) -> array[int]:
            pages[number] = array("i", [number] * 8)
            return pages[number]

        hashes, places = [pair[0] for pair in each], [pair[1] for pair in each]
        results.append((make(hashes, places, 3, 77, slots, 3, pages, load), pages))
    assert results[0] == results[1]


def test_a_page_may_lie_anywhere() -> None:
    assert native is not None
    page = memoryview(bytearray(33))[1:].cast("i")
    assert native.index_entries([5, 13], [1, 2], 3, 0, 8, 3, [page], print)[1] == [0, 3]
    assert page.tolist() == [0, 0, 0, 0, 0, 4, 0, 0]


def test_keys_that_are_taken_away_while_they_are_put_in_are_missed() -> None:
    assert native is not None
    hashes, places = [1, 2, 3], [10, 20, 30]

    def load(number: int) -> array[int]:
        places.clear()
        return array("i", [0] * 8)

    with pytest.raises(RuntimeError, match="taken away"):
        native.index_entries(hashes, places, 3, 0, 8, 3, [None], load)


def test_more_entries_than_a_file_can_count_are_refused() -> None:
    assert native is not None
    with pytest.raises(ValueError, match="no such index file"):
        native.index_entries([1], [1], (1 << 31) - 1, 0, 8, 3, [array("i", [0] * 8)], print)


@needs_compiler
def test_a_big_endian_machine_swaps_nothing() -> None:
    assert COMPILER is not None
    for order, swaps in (("BIG", False), ("LITTLE", True)):
        flags = ["-E", "-U__BYTE_ORDER__", f"-D__BYTE_ORDER__=__ORDER_{order}_ENDIAN__"]
        include = f"-I{HEADERS.parent}"
        source = hatch_build.ROOT / "native" / "kourou.h"
        done = subprocess.run(
            [COMPILER, *flags, include, str(source)], check=True, capture_output=True, text=True
        )
        ours = done.stdout.rpartition("put_u16")[2]
        assert ("return __builtin_bswap64" in ours) == swaps


@pytest.mark.parametrize(
    "name",
    ["crc32", "split", "run_end", "total", "look_at_sends", "append_sends", "accepting", "index_entries"],
)
@pytest.mark.parametrize(
    "arguments", [(), (None,), (1, 2), ([], [], []), (b"",) * 8, ([None], [None]), (None,) * 13]
)
def test_nonsense_is_refused_or_does_no_harm(name: str, arguments: tuple[Any, ...]) -> None:
    with suppress(TypeError, ValueError, AttributeError):
        getattr(native, name)(*arguments)
