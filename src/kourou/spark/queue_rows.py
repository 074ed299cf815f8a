"""Which row goes to which queue: decided for all rows of a batch at once.

queueId given           that queue, at the broker that brokerName says if it has the topic
shardingKey given       one key, one queue, the same as `Producer.send(key=…)` and the Java client choose
nothing given           runs of rows to each queue in its turn
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kourou.client.queue_choice import by_key
from kourou.client.routes import Route
from kourou.errors import ConfigError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.checksum import crc32
from kourou.spark.outgoing import Outgoing

Numbers = np.ndarray[Any, np.dtype[Any]]

RUN_ROWS_MAX = 1_000
RUN_ROWS_MIN = 32
_NOT_SAID = -1


class QueueRows:
    """The queues of one topic, and whose turn it is."""

    def __init__(self, route: Route, first_turn: int) -> None:
        """`first_turn` is where the turns begin: tasks that run side by side should not march in step."""
        self.queues: Sequence[MessageQueue] = list(
            dict.fromkeys([*route.write_queues, *route.ordered_queues])
        )
        self._route = route
        self._turn = first_turn

    def of(self, rows: Outgoing) -> Numbers:
        """For each row the number of its queue in `queues`. Raises ConfigError for one that is not there."""
        numbers = self._in_turns(len(rows))
        if rows.sharding_keys is not None:
            numbers = _where(rows.sharding_keys, self._by_key(rows.sharding_keys), numbers)
        if rows.queue_ids is not None:
            numbers = _where(rows.queue_ids, self._by_id(rows), numbers)
        return numbers

    def _in_turns(self, count: int) -> Numbers:
        there = len(self._route.write_queues)
        run = min(RUN_ROWS_MAX, max(RUN_ROWS_MIN, -(-count // there)))
        turns = self._turn + np.arange(count) // run
        self._turn += -(-count // run)
        return turns % there

    def _by_key(self, keys: pa.StringArray) -> Numbers:
        coded = keys.dictionary_encode()
        place = {queue: number for number, queue in enumerate(self.queues)}
        chosen = [place[by_key(self._route.ordered_queues, key)] for key in coded.dictionary.to_pylist()]
        numbers: Numbers = np.array(chosen or [0])[np.asarray(pc.fill_null(coded.indices, 0))]
        return numbers

    def _by_id(self, rows: Outgoing) -> Numbers:
        """Each pair of broker name and queue id is looked up once."""
        assert rows.queue_ids is not None
        ids = np.asarray(pc.fill_null(rows.queue_ids, _NOT_SAID)).astype(np.int64)
        names, codes = [""], np.zeros(len(rows), dtype=np.int64)
        if rows.broker_names is not None:
            coded = pc.fill_null(rows.broker_names, "").dictionary_encode()
            names, codes = coded.dictionary.to_pylist(), np.asarray(coded.indices).astype(np.int64)
        pairs, inverse = np.unique(codes << 32 | (ids + 1), return_inverse=True)
        chosen = [self._named(names[pair >> 32], (pair & 0xFFFFFFFF) - 1) for pair in pairs.tolist()]
        return np.array(chosen)[inverse]

    def _named(self, broker_name: str, queue_id: int) -> int:
        if queue_id == _NOT_SAID:
            return 0
        fitting = [number for number, queue in enumerate(self.queues) if queue.queue_id == queue_id]
        if not fitting:
            most = max(queue.queue_id for queue in self.queues)
            topic = self.queues[0].topic
            more = f"kourou topic create {topic} -r {queue_id + 1} -w {queue_id + 1}"
            raise ConfigError(
                f"topic '{topic}', queue {queue_id}: there is no such queue, they are numbered from 0 to "
                f"{most}; give the topic more queues ({more}), or let them be chosen: df.drop('queueId')"
            )
        for number in fitting:
            if self.queues[number].broker_name == broker_name:
                return number
        turn: int = crc32(broker_name.encode()) % len(fitting)
        return fitting[turn]


def _where(given: pa.Array, chosen: Numbers, otherwise: Numbers) -> Numbers:
    return chosen if not given.null_count else np.where(np.asarray(pc.is_valid(given)), chosen, otherwise)


def by_topic(rows: Outgoing) -> list[tuple[str, Outgoing]]:
    """The rows of each topic, in their order; mostly there is one."""
    coded = rows.topics.dictionary_encode()
    topics: list[str] = coded.dictionary.to_pylist()
    if len(topics) == 1:
        return [(topics[0], rows)]
    indices = np.asarray(coded.indices)
    return [(topic, rows.take(np.flatnonzero(indices == number))) for number, topic in enumerate(topics)]


def grouped(numbers: Numbers) -> list[tuple[int, Numbers]]:
    """Each number there is, with the rows that have it, in their order."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    stops = np.append(starts[1:], len(ordered))
    return [(int(ordered[start]), order[start:stop]) for start, stop in zip(starts, stops, strict=True)]
