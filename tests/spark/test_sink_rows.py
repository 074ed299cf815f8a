"""Rows as bytes: what is made for all rows at once is what the plain functions make one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kourou.client.queue_choice import by_key
from kourou.errors import ConfigError
from kourou.protocol import properties as props
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.record import encode_batch
from kourou.protocol.staged import Chunk, StagedMessage, encode_chunk
from kourou.spark.outgoing import LEFT_OUT, Rows, check_columns, unique_ids
from kourou.spark.queue_rows import QueueRows, by_topic, grouped
from kourou.spark.sending import batch_items, cut
from kourou.spark.staging import chunk_bytes

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=12)
NAMES = st.one_of(TEXT, st.sampled_from(["colour", "KEYS", "TAGS", "DELAY", "MSG_REGION", "UNIQ_KEY", "n"]))
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "body": st.binary(min_size=1, max_size=40),
            "keys": st.none() | TEXT,
            "tags": st.none() | TEXT,
            "msgId": st.none() | TEXT,
            "properties": st.none() | st.dictionaries(NAMES, st.none() | TEXT, max_size=4),
            "flag": st.none() | st.integers(-(2**31), 2**31 - 1),
        }
    ),
    min_size=1,
    max_size=12,
)

KINDS = {
    "body": pa.binary(),
    "keys": pa.string(),
    "tags": pa.string(),
    "msgId": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "flag": pa.int32(),
    "shardingKey": pa.string(),
    "queueId": pa.int32(),
    "brokerName": pa.string(),
    "delayLevel": pa.int32(),
}


def batch_of(rows: list[dict[str, Any]], *columns: str) -> pa.RecordBatch:
    names = columns or tuple(rows[0])
    arrays = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if name == "properties":
            values = [None if value is None else list(value.items()) for value in values]
        arrays[name] = pa.array(values, KINDS[name])
    return pa.RecordBatch.from_pydict(arrays)


def maker() -> Rows:
    return Rows(topic="orders", identity="query/7/0", now_ms=1_600_000_000_000)


def expected_properties(row: dict[str, Any], unique_id: str) -> dict[str, str]:
    table = {"UNIQ_KEY": row["msgId"] or unique_id}
    if row["keys"]:
        table["KEYS"] = row["keys"]
    if row["tags"]:
        table["TAGS"] = row["tags"]
    given = (row["properties"] or {}).items()
    return table | {name: value for name, value in given if name and value and name not in LEFT_OUT}


@given(ROWS)
@settings(max_examples=150, deadline=None)
def test_the_properties_of_all_rows_are_those_of_each(rows: list[dict[str, Any]]) -> None:
    outgoing = maker().take_in(batch_of(rows))
    ids = unique_ids(maker()._id_prefix, 0, len(rows)).to_pylist()
    for row, packed, unique_id in zip(rows, outgoing.properties.to_pylist(), ids, strict=True):
        assert props.parse(packed) == expected_properties(row, unique_id)
    assert outgoing.flags.tolist() == [row["flag"] or 0 for row in rows]


@given(ROWS)
@settings(max_examples=60, deadline=None)
def test_the_raw_form_of_properties_says_the_same_as_the_map(rows: list[dict[str, Any]]) -> None:
    as_map = maker().take_in(batch_of(rows))
    raw = [props.encode({k: v for k, v in (row["properties"] or {}).items() if v}).decode() for row in rows]
    batch = batch_of(rows, "body", "keys", "tags", "msgId", "flag").append_column(
        "properties", pa.array(raw, pa.string())
    )
    as_text = maker().take_in(batch)
    assert [props.parse(each) for each in as_text.properties.to_pylist()] == [
        props.parse(each) for each in as_map.properties.to_pylist()
    ]


@given(ROWS, st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_bytes_made_for_all_rows_are_those_made_one_by_one(rows: list[dict[str, Any]], first: int) -> None:
    whole = maker().take_in(batch_of(rows))
    backwards = whole.take(np.arange(len(rows))[::-1])
    for outgoing in (whole, whole.slice(first % len(rows), len(rows)), backwards):
        bodies, packed = outgoing.bodies.to_pylist(), outgoing.properties.to_pylist()
        flags = outgoing.flags.tolist()
        items = batch_items(outgoing)
        assert b"".join(items.to_pylist()) == encode_batch(zip(flags, bodies, packed, strict=True))
        queue_ids = np.arange(len(outgoing)) % 3
        messages = [
            StagedMessage(queue_id, flag, 1_600_000_000_000, body, properties)
            for queue_id, flag, body, properties in zip(
                queue_ids.tolist(), flags, bodies, packed, strict=True
            )
        ]
        data = chunk_bytes(outgoing, queue_ids)
        assert data == encode_chunk(messages)
        assert list(Chunk(data).messages()) == messages


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 200), st.integers(1, 20))
@settings(max_examples=100, deadline=None)
def test_cuts_leave_nothing_out_and_make_no_part_too_large(
    sizes: list[int], bytes_max: int, rows_max: int
) -> None:
    parts = list(cut(np.cumsum(sizes), bytes_max, rows_max))
    assert [row for start, stop in parts for row in range(start, stop)] == list(range(len(sizes)))
    for start, stop in parts:
        assert stop - start <= rows_max
        assert stop - start == 1 or sum(sizes[start:stop]) <= bytes_max


def test_unique_ids_are_numbered_and_the_same_rows_have_the_same() -> None:
    first, again = maker(), maker()
    batch = batch_of([{"body": b"x"}] * 300)
    ids = [first.take_in(batch).properties.to_pylist() for _ in range(2)]
    assert ids == [again.take_in(batch).properties.to_pylist() for _ in range(2)]
    flat = [each for part in ids for each in part]
    assert len(set(flat)) == 600
    assert unique_ids("A" * 24, 254, 3).to_pylist() == ["A" * 24 + f"{n:08X}" for n in (254, 255, 256)]
    other = Rows(topic="orders", identity="query/8/0", now_ms=1).take_in(batch).properties.to_pylist()
    assert set(other).isdisjoint(flat)


# -------------------------------------------------------------------------------------------------- queues


class ARoute:
    """Two brokers with two queues each."""

    def __init__(self) -> None:
        self.write_queues = tuple(
            MessageQueue(topic="orders", broker_name=name, queue_id=number)
            for name in "ab"
            for number in (0, 1)
        )
        self.ordered_queues = self.write_queues


def queue_rows(rows: list[dict[str, Any]]) -> list[MessageQueue]:
    choice = QueueRows(ARoute(), 0)  # type: ignore[arg-type]
    return [choice.queues[number] for number in choice.of(maker().take_in(batch_of(rows)))]


def test_a_queue_that_is_named_is_taken_and_a_key_decides_else() -> None:
    named: list[dict[str, Any]] = [
        {"body": b"1", "queueId": 1, "brokerName": "b", "shardingKey": "k"},
        {"body": b"2", "queueId": 0, "brokerName": "a", "shardingKey": None},
        {"body": b"3", "queueId": 1, "brokerName": "elsewhere", "shardingKey": None},
        {"body": b"4", "queueId": None, "brokerName": "b", "shardingKey": "k"},
        {"body": b"5", "queueId": None, "brokerName": None, "shardingKey": None},
    ]
    chosen = queue_rows(named)
    assert [(queue.broker_name, queue.queue_id) for queue in chosen[:2]] == [("b", 1), ("a", 0)]
    assert chosen[2].queue_id == 1
    assert chosen[3] == by_key(ARoute().ordered_queues, "k")
    with pytest.raises(ConfigError, match="queue 7: there is no such queue"):
        queue_rows([{"body": b"1", "queueId": 7}])


def test_without_a_wish_all_queues_get_some_rows_in_runs() -> None:
    choice = QueueRows(ARoute(), 3)  # type: ignore[arg-type]
    rows = maker().take_in(batch_of([{"body": b"x"}] * 1_000))
    numbers = choice.of(rows)
    assert np.bincount(numbers).tolist() == [250, 250, 250, 250]
    assert np.count_nonzero(np.diff(numbers)) == 3
    few = choice.of(rows.slice(0, 10))
    assert len(set(few.tolist())) == 1
    assert choice.of(rows.slice(0, 10))[0] != few[0], "the next few go to the next queue"


def test_rows_are_parted_by_topic_and_by_queue_in_their_order() -> None:
    batch = batch_of([{"body": b"%d" % n} for n in range(6)]).append_column(
        "topic", pa.array(["a", "b", "a", "b", "b", "a"])
    )
    rows = Rows(topic=None, identity="x", now_ms=1).take_in(batch)
    assert [(topic, part.bodies.to_pylist()) for topic, part in by_topic(rows)] == [
        ("a", [b"0", b"2", b"5"]),
        ("b", [b"1", b"3", b"4"]),
    ]
    assert [(n, rows.tolist()) for n, rows in grouped(np.array([2, 0, 2, 1, 0]))] == [
        (0, [1, 4]),
        (1, [3]),
        (2, [0, 2]),
    ]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (["value"], "there is no column 'body'"),
        (["body", "tag"], "did you mean tags"),
        (["body", "zzz"], "drop it: df.drop"),
    ],
)
def test_columns_that_are_none_of_ours_are_refused(columns: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_columns(columns)
