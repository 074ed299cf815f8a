"""The native loops beside their twins in Python: of any bytes both make the same, or the native one nothing.

There are none of these targets where there are no native loops.
"""

from __future__ import annotations

import zlib
from functools import cache

from kourou.broker.handlers.send_run import RUN_KEY, SendRunHandler
from kourou.native import native
from kourou.protocol.frame import Frame, split_plainly
from kourou.protocol.record import values_of_each_plainly
from kourou.remoting.answer import total_plainly
from kourou.remoting.connection import run_end_plainly
from kourou.spark import columns
from kourou.spark.columns import Choice
from tests.fuzz.target import Target
from tests.fuzz.wire_targets import JSON_WORDS, PROPERTY_WORDS, record_seeds, recorded_frames
from tests.unit.broker.broker_world import BrokerWorld
from tests.unit.native.test_native_columns import outcome, plainly
from tests.unit.native.test_native_records import walk, walk_plainly
from tests.unit.native.test_native_sends import java_header, same_or_less

NAMES = (b"KEYS", b"TAGS", b"UNIQ_KEY")


def feed_frames(data: bytes) -> None:
    assert native is not None
    frames, start, wanted = native.split(data, Frame)
    assert (frames, start, wanted) == split_plainly(data, Frame)
    assert native.total(frames) == total_plainly(frames)
    for at, frame in enumerate(frames):
        for key in (frame.header[:9], frame.header, data[:5]):
            assert native.run_end(frames, at, key) == run_end_plainly(frames, at, key)
    assert native.crc32(data) == zlib.crc32(data)
    assert native.crc32(data[3:], 7) == zlib.crc32(data[3:], 7)


def feed_records(data: bytes) -> None:
    assert native is not None
    for place in (0, 1 << 33):
        assert walk(data, place=place) == walk_plainly(data, place=place)
    many: list[bytes | memoryview] = [data, memoryview(data)[1:], b"", data[:100]]
    found = native.values_of_each(
        many, NAMES, lambda record, names: values_of_each_plainly((record,), names)[0]
    )
    assert found == values_of_each_plainly(many, NAMES)


def feed_columns(data: bytes) -> None:
    choice = Choice(columns.SCHEMA, verify=True)
    found = outcome(data, choice)
    with plainly():
        assert found == outcome(data, choice)


def feed_sends(data: bytes) -> None:
    same_or_less(send_handler(), [data, java_header(), data])
    same_or_less(send_handler(), [java_header(), data, data])


@cache
def send_handler() -> SendRunHandler:
    """Of a broker that is there for the rest of this process, and does nothing else."""
    world = BrokerWorld()
    world.start()
    world.connect().create_topic("orders", 4)
    handler = world.broker._servers[0]._board.run_handlers[RUN_KEY]
    assert isinstance(handler, SendRunHandler)
    return handler


NATIVE_TARGETS = (
    ()
    if native is None
    else (
        Target("native-frames", feed_frames, lambda: list(recorded_frames()), JSON_WORDS),
        Target("native-records", feed_records, record_seeds, PROPERTY_WORDS),
        Target("native-columns", feed_columns, record_seeds, PROPERTY_WORDS, examples=60),
        Target("native-sends", feed_sends, lambda: [java_header(), java_header(9, b="other")], JSON_WORDS),
    )
)
