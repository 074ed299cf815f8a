"""What a cluster knows of itself, as tables: `.option("table", …)`.

    topics queues groups lag clients   asked of the brokers by one task, each time the table is read
    trace                              the trace topic, its lines taken apart, read by many tasks
    dlq                                all dead-letter topics, with where each letter comes from; likewise

Options choose: `subscribe` or `subscribePattern` topics, `groupId` one group. What only an operator may ask
needs an operator's rights here, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kourou.admin import Connection, groups, messages, producers, topics
from kourou.admin.dlq import ORIGIN_DLQ_ID, ORIGIN_ID, ORIGIN_TOPIC, RETRY_TOPIC
from kourou.errors import ConfigError, NotFound
from kourou.protocol import record
from kourou.protocol.names import DEAD_LETTER_PREFIX, TRACE_TOPIC, dead_letter_topic
from kourou.spark import columns
from kourou.spark.columns import MAP, TIMESTAMP, Piece
from kourou.spark.options import ALL_NAMES, SUBSCRIPTION_NAMES, Given, SourceOptions, source_options
from kourou.spark.plain_errors import hide_traceback, in_one_line
from kourou.spark.pulls import pulled, shared_cluster
from kourou.spark.reader import TopicReader
from kourou.spark.task import RangesPartition, pull_plan, read_ranges

TEXT, INT, LONG, FLOAT, FLAG = pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.bool_()

Row = tuple[Any, ...]
Rows = Callable[["Asking"], Iterator[Row]]


def table_schema(table: str) -> pa.Schema:
    """The columns of a table; raises ConfigError when there is no such table."""
    schema = SCHEMAS.get(table)
    if schema is None:
        near = get_close_matches(table, TABLES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(TABLES)}"
        raise ConfigError(f"option table={table!r} names no table; {hint}")
    return schema


def table_reader(table: str, options: Mapping[str, str], schema: pa.Schema) -> DataSourceReader:
    """Reads one of the tables; `schema` is a choice of its columns."""
    if table in ROWS:
        return AskedReader(table, Given(options, ALL_NAMES), schema)
    return TopicTableReader(table, _topic_options(table, options), schema)


# ------------------------------------------------------------------------------- asked of the brokers


class Asking:
    """The connection, and what the options choose."""

    def __init__(
        self, connection: Connection, subscribed: tuple[str, ...], pattern: str | None, group: str | None
    ):
        self.connection = connection
        self.group = group
        self._subscribed = subscribed
        self._pattern = pattern

    def wants(self, topic: str) -> bool:
        if self._pattern is not None:
            return re.fullmatch(self._pattern, topic) is not None
        return not self._subscribed or topic in self._subscribed

    def topics(self) -> list[topics.Topic]:
        everything = bool(self._subscribed) or self._pattern is not None
        return [
            each
            for each in topics.all_topics(self.connection, everything=everything)
            if self.wants(each.name)
        ]

    def groups(self) -> list[str]:
        return groups.names(self.connection) if self.group is None else [self.group]


class AskedReader(DataSourceReader):
    """A table that one task asks the brokers for."""

    def __init__(self, table: str, given: Given, schema: pa.Schema) -> None:
        from kourou.spark.access import ClusterAccess

        self._table = table
        self._schema = schema
        self._access = ClusterAccess.given(given)
        self._subscribed = tuple(
            part.strip() for part in (given.text("subscribe") or "").split(",") if part.strip()
        )
        self._pattern = given.text("subscribePattern")
        self._group = given.text("groupId")

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter([self._asked()])

    @in_one_line
    def _asked(self) -> pa.RecordBatch:
        settings = self._access.settings()
        with Connection(self._access.name_server, access=settings.access, tls=settings.tls) as connection:
            asking = Asking(connection, self._subscribed, self._pattern, self._group)
            return _batch(list(ROWS[self._table](asking)), SCHEMAS[self._table], self._schema)


def _batch(rows: Sequence[Row], full: pa.Schema, chosen: pa.Schema) -> pa.RecordBatch:
    by_name = {
        field.name: pa.array([row[number] for row in rows], field.type) for number, field in enumerate(full)
    }
    return pa.RecordBatch.from_arrays([by_name[name] for name in chosen.names], schema=chosen)


def _moment(moment_ms: int | None) -> int | None:
    """As a timestamp column takes it; brokers say 0 for never."""
    return moment_ms * 1000 if moment_ms else None


def _topics(asking: Asking) -> Iterator[Row]:
    for each in asking.topics():
        yield (
            each.name,
            str(each.kind),
            ",".join(each.brokers),
            each.read_queues,
            each.write_queues,
            each.perm,
            each.order,
            list(each.attributes.items()),
        )


def _queues(asking: Asking) -> Iterator[Row]:
    names = [topic.name for topic in asking.topics()]
    for _, stats in asking.connection.all(names, lambda name: topics.stats(asking.connection, name)):
        for queue in stats.queues:
            yield (
                queue.topic,
                queue.broker,
                queue.queue_id,
                queue.min_offset,
                queue.max_offset,
                queue.messages,
                _moment(queue.last_updated_ms),
            )


def _groups(asking: Asking) -> Iterator[Row]:
    settings = {each.name: each for each in groups.all_groups(asking.connection)}
    for state in groups.states(asking.connection, asking.groups()):
        known = settings.get(state.group)
        yield (
            state.group,
            ",".join(known.brokers) if known else None,
            state.members,
            state.consume_type or None,
            state.message_model or None,
            ",".join(state.topics),
            state.lag,
            state.tps,
            known.retry_max if known else None,
            known.is_enabled if known else None,
            "; ".join(state.disagreements) or None,
        )


def _lag(asking: Asking) -> Iterator[Row]:
    def of_group(group: str) -> tuple[groups.QueueLag, ...]:
        try:
            return groups.lag(asking.connection, group).queues
        except NotFound:
            return ()  # it broadcasts, or has never committed anything

    for _, found in asking.connection.all(asking.groups(), of_group):
        now_ms = asking.connection.clock.now_ms()
        for queue in found:
            if asking.wants(queue.topic):
                yield (
                    queue.group,
                    queue.topic,
                    queue.broker,
                    queue.queue_id,
                    queue.broker_offset,
                    queue.consumer_offset,
                    queue.lag,
                    queue.in_flight,
                    queue.behind_ms(now_ms) / 1000,
                    _moment(queue.last_consumed_ms),
                )


def _clients(asking: Asking) -> Iterator[Row]:
    def of_group(group: str) -> groups.Members | None:
        try:
            return groups.members(asking.connection, group)
        except NotFound:
            return None  # nobody is connected

    for group, found in asking.connection.all(asking.groups(), of_group):
        for member in found.members if found is not None else ():
            brokers = ",".join(member.brokers)
            subscribed = ",".join(each.topic for each in found.subscriptions) if found is not None else None
            yield (
                "consumer",
                group,
                member.client_id,
                member.address,
                member.language,
                member.version,
                brokers,
                subscribed,
            )
    for each in producers.all_producers(asking.connection):
        if asking.group in (None, each.group):
            yield (
                "producer",
                each.group,
                each.client_id,
                each.address,
                each.language,
                each.version,
                each.broker,
                None,
            )


ROWS: dict[str, Rows] = {
    "topics": _topics,
    "queues": _queues,
    "groups": _groups,
    "lag": _lag,
    "clients": _clients,
}

# --------------------------------------------------------------------------------- read from topics


class TopicTableReader(TopicReader):
    """A table that lies in topics: planned as they are, and made into other columns on the way."""

    def __init__(self, table: str, options: SourceOptions, schema: pa.Schema) -> None:
        super().__init__(options, columns.SCHEMA)
        self._table = table
        self._chosen = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _TOPIC_TABLES[self._table](self._options, partition, self._chosen)


def _topic_options(table: str, options: Mapping[str, str]) -> SourceOptions:
    """The topics a table lies in, unless they are said."""
    named = dict(Given(options, ALL_NAMES).values)
    if not set(SUBSCRIPTION_NAMES) & set(named):
        group = named.get("groupId", "").strip()
        if table == "trace":
            named["subscribe"] = TRACE_TOPIC
        else:
            named["subscribePattern"] = (
                re.escape(dead_letter_topic(group)) if group else f"{DEAD_LETTER_PREFIX}.+"
            )
    parsed = source_options(named, streaming=False)
    return replace(
        parsed, include_dead_letters=True, group=None, group_prefix=parsed.group or parsed.group_prefix
    )


def _trace(options: SourceOptions, partition: InputPartition, chosen: pa.Schema) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, RangesPartition):
        return
    try:
        cluster = shared_cluster(options.access)
        for piece in pulled(cluster, partition.ranges, pull_plan(options)):
            yield _batch(list(_trace_rows(piece)), SCHEMAS["trace"], chosen)
    except Exception:
        hide_traceback()
        raise


def _trace_rows(piece: Piece) -> Iterator[Row]:
    for each in record.decode_all(piece.data):
        for step in messages.trace_steps(record.to_received(each, piece.broker_name)):
            yield (
                step.kind,
                _moment(step.time_ms),
                step.group or None,
                step.client or None,
                step.topic or None,
                step.message_id,
                step.tags or None,
                step.keys or None,
                step.broker or None,
                step.spent_ms,
                step.is_success,
                step.retry_times,
                step.request_id or None,
                step.detail or None,
            )


def _dead_letters(
    options: SourceOptions, partition: InputPartition, chosen: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for batch in read_ranges(options, columns.SCHEMA, partition):
        properties = batch.column("properties")

        def first_of(names: Sequence[str], properties: pa.MapArray = properties) -> pa.Array:
            return pc.coalesce(*(pc.map_lookup(properties, name, "last") for name in names))

        made = {
            "group": pc.utf8_slice_codeunits(batch.column("topic"), len(DEAD_LETTER_PREFIX)),
            "originTopic": first_of((RETRY_TOPIC, ORIGIN_TOPIC)),
            "originMsgId": first_of((ORIGIN_ID, ORIGIN_DLQ_ID)),
        }
        yield pa.RecordBatch.from_arrays(
            [made[name] if name in made else batch.column(name) for name in chosen.names], schema=chosen
        )


_TOPIC_TABLES: dict[str, Callable[[SourceOptions, InputPartition, pa.Schema], Iterator[pa.RecordBatch]]] = {
    "trace": _trace,
    "dlq": _dead_letters,
}

TABLES = (*ROWS, *_TOPIC_TABLES, "commitlog")

SCHEMAS: dict[str, pa.Schema] = {
    "topics": pa.schema(
        [
            ("topic", TEXT),
            ("kind", TEXT),
            ("brokers", TEXT),
            ("readQueues", INT),
            ("writeQueues", INT),
            ("perm", INT),
            ("ordered", FLAG),
            ("attributes", MAP),
        ]
    ),
    "queues": pa.schema(
        [
            ("topic", TEXT),
            ("brokerName", TEXT),
            ("queueId", INT),
            ("minOffset", LONG),
            ("maxOffset", LONG),
            ("messages", LONG),
            ("lastTimestamp", TIMESTAMP),
        ]
    ),
    "groups": pa.schema(
        [
            ("group", TEXT),
            ("brokers", TEXT),
            ("members", INT),
            ("consumeType", TEXT),
            ("messageModel", TEXT),
            ("topics", TEXT),
            ("lag", LONG),
            ("tps", FLOAT),
            ("retryMax", INT),
            ("enabled", FLAG),
            ("disagreements", TEXT),
        ]
    ),
    "lag": pa.schema(
        [
            ("group", TEXT),
            ("topic", TEXT),
            ("brokerName", TEXT),
            ("queueId", INT),
            ("brokerOffset", LONG),
            ("consumerOffset", LONG),
            ("lag", LONG),
            ("inFlight", LONG),
            ("lagSeconds", FLOAT),
            ("lastConsumed", TIMESTAMP),
        ]
    ),
    "clients": pa.schema(
        [
            ("kind", TEXT),
            ("group", TEXT),
            ("clientId", TEXT),
            ("address", TEXT),
            ("language", TEXT),
            ("version", TEXT),
            ("brokers", TEXT),
            ("topics", TEXT),
        ]
    ),
    "trace": pa.schema(
        [
            ("kind", TEXT),
            ("time", TIMESTAMP),
            ("group", TEXT),
            ("client", TEXT),
            ("topic", TEXT),
            ("msgId", TEXT),
            ("tags", TEXT),
            ("keys", TEXT),
            ("brokerName", TEXT),
            ("spentMs", LONG),
            ("success", FLAG),
            ("retryTimes", INT),
            ("requestId", TEXT),
            ("detail", TEXT),
        ]
    ),
    "dlq": pa.schema([("group", TEXT), ("originTopic", TEXT), ("originMsgId", TEXT), *columns.TYPES.items()]),
}
