"""Reading topics once, from a real broker."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame


def test_a_topic_is_a_table(
    source: Callable[..., DataFrame], new_topic: Callable[..., str], fill: Callable[..., None]
) -> None:
    topic = new_topic(queues=2)
    fill(topic, [b"%d" % number for number in range(100)], tags="new", keys="k")
    rows = source(topic).collect()
    assert sorted(int(row.body) for row in rows) == list(range(100))
    assert {row.topic for row in rows} == {topic}
    assert {row.tags for row in rows} == {"new"}
