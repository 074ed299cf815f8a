"""Every option of `format("rocketmq")`: its name, what may be said, and what it means when nothing is.

Names are those of Spark's Kafka connector where the idea is the same. Spark hands options over as text, with
names in whatever case. A name nobody knows is an error, because a misspelt limit is no limit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Literal, NoReturn

from kourou.client.operations import SQL92, TAG
from kourou.errors import ConfigError
from kourou.protocol.compression import INFLATED_BYTES_MAX
from kourou.protocol.names import group_fault, topic_fault
from kourou.spark.access import ACCESS_NAMES, SECRET_NAMES, ClusterAccess

EARLIEST, LATEST = -2, -1
"""What these two numbers stand for in JSON, as in the Kafka connector."""

SUBSCRIPTION_NAMES = ("subscribe", "subscribePattern", "assign")

SOURCE_NAMES = (
    *ACCESS_NAMES,
    *SUBSCRIPTION_NAMES,
    "table",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "tags",
    "filterSql",
    "queueIds",
    "groupId",
    "groupIdPrefix",
    "properties",
    "includeRetry",
    "includeDlq",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "targetPartitionBytes",
    "verifyCrc",
    "maxInflatedBytes",
    "pullBatchSize",
    "pullTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)

SINK_NAMES = (
    *("topic", "delivery", "sendTimeoutMs", "keepBornTimestamp"),
    *("transactionId", "transactionNumber"),
)
"""Those of `writer.py`: a table of SQL is read and written with the same options."""

STORE_NAMES = ("storePath",)
"""Those of `store_scan.py`."""

ALL_NAMES = (*SOURCE_NAMES, *SINK_NAMES, *STORE_NAMES)

SPARK_NAMES = (
    *("path", "checkpointLocation", "queryName", "mergeSchema", "serialization.format"),
    *("provider", "location", "owner", "external", "comment", "collation", "is_managed_location"),
)
"""What Spark itself puts beside ours, the second line for tables of its catalog."""

KAFKA_NAMES = {
    "kafka.bootstrap.servers": "namesrvAddr",
    "kafka.group.id": "groupId",
    "kafkaConsumer.pollTimeoutMs": "pullTimeoutMs",
    "kafka.security.protocol": "tls",
}
"""What is called otherwise by Spark's Kafka connector, and what it is here."""

KAFKA_PREFIXES = {"kafka.sasl.": "credentialsFile", "kafka.ssl.": "tls, tlsTrust, tlsCertificate and tlsKey"}

KAFKA_NEEDLESS = {
    "includeHeaders": "is not needed: the column properties is always there",
    "partition.metadata.cache.ttl.ms": "is not needed: new queues are looked for every two seconds",
}

SPARK_PREFIX = "option."
"""Put by Spark before the options of a table of its catalog."""

TARGET_PARTITION_BYTES = 128 * 1024 * 1024
"""As Spark cuts files: a task costs some 50 ms, and so much is read in half a second."""

Where = Literal["earliest", "latest", "group"]
QueueNumbers = dict[str, dict[str, dict[int, int]]]
"""By topic, broker and queue."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Where a read begins, or ends: the first of these that is given."""

    timestamp_ms: int | None = None
    timestamps_ms: QueueNumbers | None = None
    offsets: QueueNumbers | None = None
    where: Where = "earliest"

    @property
    def names_queues(self) -> QueueNumbers | None:
        """What was said of single queues, if that is what counts."""
        return None if self.timestamp_ms is not None else self.timestamps_ms or self.offsets

    @property
    def is_of_a_group(self) -> bool:
        """Whether the place of a group is what counts."""
        return self.where == "group" and self.timestamp_ms is None and self.names_queues is None

    @property
    def is_of_the_moment(self) -> bool:
        """Whether asking again later may give another answer: then a query must remember the first."""
        if self.timestamp_ms is not None or self.timestamps_ms is not None:
            return True
        if self.offsets is not None:
            return any(
                offset == LATEST
                for brokers in self.offsets.values()
                for queues in brokers.values()
                for offset in queues.values()
            )
        return self.where == "latest"


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """All that can be said about reading topics; made by `source_options`."""

    access: ClusterAccess
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, Mapping[str, tuple[int, ...]]] | None = None
    """By topic and broker; the broker "" is every one."""
    starting: Bound = field(default_factory=Bound)
    ending: Bound = field(default_factory=lambda: Bound(where="latest"))
    after_last_message: Literal["error", "latest"] = "latest"
    """What a timestamp means in a queue that has nothing that new."""
    expression: str = "*"
    expression_kind: str = TAG
    queue_ids: frozenset[int] | None = None
    group: str | None = None
    group_prefix: str = "spark-rocketmq"
    include_retry: bool = False
    include_dead_letters: bool = False
    fail_on_data_loss: bool = True
    rows_per_trigger_max: int | None = None
    bytes_per_trigger_max: int | None = None
    rows_per_trigger_min: int | None = None
    trigger_delay_ms_max: int = 15 * 60 * 1000
    partitions_min: int | None = None
    rows_per_partition_max: int | None = None
    partition_bytes: int = TARGET_PARTITION_BYTES
    verify_crc: bool = False
    inflated_bytes_max: int = INFLATED_BYTES_MAX
    pull_messages_max: int | None = None
    pull_timeout_ms: int = 30_000
    lookup_tries: int = 3
    lookup_pause_ms: int = 1_000

    @property
    def is_filtered(self) -> bool:
        """Whether a broker leaves messages out: then gaps in the offsets are as they should be."""
        return self.expression_kind == SQL92 or self.expression != "*"


def source_options(options: Mapping[str, str], *, streaming: bool | None) -> SourceOptions:
    """What the text says; raises ConfigError that names the option, its value and the way out.

    `streaming` is None where it is not known yet: then only what is wrong in both cases is refused.
    """
    given = Given(options, ALL_NAMES)
    topics, pattern, assigned = _subscription(given)
    expression, kind = _filter(given)
    result = SourceOptions(
        access=ClusterAccess.given(given),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=_bound(given, "starting", "latest" if streaming else "earliest"),
        ending=_bound(given, "ending", "latest"),
        after_last_message=_choice(
            given, "startingOffsetsByTimestampStrategy", ("error", "latest"), "latest"
        ),
        expression=expression,
        expression_kind=kind,
        queue_ids=_queue_ids(given),
        group=_group(given, "groupId"),
        group_prefix=_group(given, "groupIdPrefix") or SourceOptions.group_prefix,
        include_retry=given.flag("includeRetry", False),
        include_dead_letters=given.flag("includeDlq", False),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        rows_per_trigger_max=given.count("maxOffsetsPerTrigger"),
        bytes_per_trigger_max=given.size("maxBytesPerTrigger"),
        rows_per_trigger_min=given.count("minOffsetsPerTrigger"),
        trigger_delay_ms_max=given.duration_ms("maxTriggerDelay", SourceOptions.trigger_delay_ms_max),
        partitions_min=given.count("minPartitions"),
        rows_per_partition_max=given.count("maxRecordsPerPartition"),
        partition_bytes=given.size("targetPartitionBytes") or TARGET_PARTITION_BYTES,
        verify_crc=given.flag("verifyCrc", False),
        inflated_bytes_max=given.size("maxInflatedBytes") or INFLATED_BYTES_MAX,
        pull_messages_max=given.count("pullBatchSize"),
        pull_timeout_ms=given.count("pullTimeoutMs") or SourceOptions.pull_timeout_ms,
        lookup_tries=given.count("fetchOffset.numRetries") or SourceOptions.lookup_tries,
        lookup_pause_ms=given.count("fetchOffset.retryIntervalMs") or SourceOptions.lookup_pause_ms,
    )
    _check_together(given, result, streaming)
    return result


def _check_together(given: Given, options: SourceOptions, streaming: bool | None) -> None:
    """What makes no sense beside something else."""
    if options.group is None:
        for name in ("includeRetry", "includeDlq"):
            if given.flag(name, False) and options.pattern is None:
                given.refuse(name, "needs groupId: whose retries, whose dead letters?")
        for name, bound in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
            if bound.is_of_a_group:
                given.refuse(name, "means where a group is: name it by groupId")
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name in given:
                given.refuse(name, "is for a batch: a streaming query has no end (Trigger.AvailableNow has)")
    low, high = options.rows_per_trigger_min, options.rows_per_trigger_max
    if low is not None and high is not None and low > high:
        given.refuse("minOffsetsPerTrigger", f"is more than maxOffsetsPerTrigger, which is {high}")


# -------------------------------------------------------------------------------------- reading the text


class Given:
    """Options as Spark hands them over, by their proper names."""

    def __init__(self, options: Mapping[str, str], known: Collection[str]) -> None:
        by_lower = {name.lower(): name for name in known}
        spark_s = {name.lower() for name in SPARK_NAMES}
        secret = {name.lower(): name for name in SECRET_NAMES}
        self.values: dict[str, str] = {}
        for given, value in options.items():
            name = given.removeprefix(SPARK_PREFIX)
            proper = by_lower.get(name.lower())
            if name.lower() in secret:
                raise ConfigError(
                    f"option {secret[name.lower()]} would lie open in the plan and in table definitions: put "
                    "accessKey and secretKey into a file and name it by credentialsFile, or set the "
                    "environment variables KOUROU_ACCESS_KEY and KOUROU_SECRET_KEY"
                )
            if proper is not None:
                self.values[proper] = value
            elif name.lower() not in spark_s:
                raise ConfigError(f"unknown option {name!r}{_hint(name, by_lower)}")

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def text(self, name: str) -> str | None:
        """What is said, without spaces around it; None when nothing is."""
        value = self.values.get(name, "").strip()
        return value or None

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            self.refuse(name, "must be true or false")
        return value.lower() == "true"

    def count(self, name: str) -> int | None:
        """A whole number from 1 on."""
        value = self.text(name)
        if value is None:
            return None
        if not (value.isascii() and value.isdecimal() and len(value) < 19 and int(value) > 0):
            self.refuse(name, "must be a whole number from 1 on")
        return int(value)

    def size(self, name: str) -> int | None:
        """Bytes: a number, or one with k, m or g behind it."""
        value = self.text(name)
        if value is None:
            return None
        match = re.fullmatch(r"([0-9]{1,15})\s*([kmgt]?)i?b?", value.lower(), re.ASCII)
        if match is None or int(match[1]) == 0:
            self.refuse(name, "must be a number of bytes, like 1048576, 512k, 64m or 1g")
        return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[match[2]]

    def duration_ms(self, name: str, default: int) -> int:
        """A number with its unit."""
        value = self.text(name)
        if value is None:
            return default
        match = re.fullmatch(r"([0-9]{1,12})\s*(ms|s|m|min|h|d)", value.lower(), re.ASCII)
        if match is None:
            self.refuse(name, "must be a time like 500ms, 30s, 15m or 1h")
        seconds_1000 = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
        return int(match[1]) * seconds_1000[match[2]]

    def moment_ms(self, name: str) -> int | None:
        """Milliseconds since 1970, or a date and time in ISO 8601; UTC unless it says otherwise."""
        value = self.text(name)
        if value is None:
            return None
        if value.isascii() and value.isdecimal() and len(value) < 19:
            return int(value)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.refuse(name, "must be milliseconds since 1970, or a time like 2026-01-31T12:00:00Z")
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)

    def document(self, name: str) -> Any:
        """JSON."""
        value = self.text(name)
        if value is None:
            return None
        try:
            return json.loads(value)
        except ValueError as error:
            self.refuse(name, f"is not JSON: {error}")

    def refuse(self, name: str, why: str) -> NoReturn:
        value = self.values.get(name, "")
        shown = value if len(value) <= 200 else value[:200] + "…"
        raise ConfigError(f"option {name}={shown!r} {why}")


def _hint(name: str, by_lower: Mapping[str, str]) -> str:
    kafka_s = _kafka_hint(name.lower())
    if kafka_s is not None:
        return f"; Kafka's {name} {kafka_s}"
    near = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return (
        f"; did you mean {by_lower[near[0]]}?"
        if near
        else f"; there are: {', '.join(sorted(by_lower.values()))}"
    )


def _kafka_hint(name: str) -> str | None:
    """What somebody should know who comes with the options of a Kafka source."""
    for theirs, why in KAFKA_NEEDLESS.items():
        if theirs.lower() == name:
            return why
    for theirs, ours in KAFKA_NAMES.items():
        if theirs.lower() == name:
            return f"is {ours} here"
    for prefix, ours in KAFKA_PREFIXES.items():
        if name.startswith(prefix):
            return f"is said by {ours} here"
    return "means nothing here" if name.startswith("kafka.") else None


# ------------------------------------------------------------------------------------- what to read


def _subscription(
    given: Given,
) -> tuple[tuple[str, ...], str | None, Mapping[str, Mapping[str, tuple[int, ...]]] | None]:
    said = [name for name in SUBSCRIPTION_NAMES if given.text(name)]
    if not said:
        raise ConfigError(
            "which topics? Give one of the options subscribe ('orders,payments'), subscribePattern "
            "('shop-.*'), assign ('{\"orders\": [0, 1]}'), or table for one of the system's own"
        )
    if len(said) > 1:
        raise ConfigError(f"options {' and '.join(said)} say both what to read: give one of them")
    topics: tuple[str, ...] = ()
    if listed := given.text("subscribe"):
        topics = tuple(dict.fromkeys(part.strip() for part in listed.split(",") if part.strip()))
        for topic in topics:
            if fault := topic_fault(topic):
                given.refuse("subscribe", f"cannot be: {fault}")
        if not topics:
            given.refuse("subscribe", "names no topic")
    pattern = given.text("subscribePattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            given.refuse("subscribePattern", f"is not a regular expression: {error}")
    assigned = _assigned(given)
    return (*topics, *(assigned or ())), pattern, assigned


def _assigned(given: Given) -> Mapping[str, Mapping[str, tuple[int, ...]]] | None:
    document = given.document("assign")
    if document is None:
        return None
    why = 'must look like {"topic": [0, 1]} or {"topic": {"broker": [0, 1]}}'
    if not isinstance(document, dict) or not document:
        given.refuse("assign", why)
    assigned = {}
    for topic, queues in document.items():
        if fault := topic_fault(topic):
            given.refuse("assign", f"cannot be: {fault}")
        by_broker = queues if isinstance(queues, dict) else {"": queues}
        for numbers in by_broker.values():
            if not isinstance(numbers, list) or not numbers or not all(_is_queue(each) for each in numbers):
                given.refuse("assign", why)
        assigned[topic] = {broker: tuple(sorted(set(numbers))) for broker, numbers in by_broker.items()}
    return assigned


def _is_queue(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= 0x7FFF_FFFF


def _filter(given: Given) -> tuple[str, str]:
    tags, sql = given.text("tags"), given.text("filterSql")
    if tags is not None and sql is not None:
        given.refuse("filterSql", "cannot go with tags: write TAGS IN ('a', 'b') into the expression")
    return (sql, SQL92) if sql is not None else (tags or "*", TAG)


def _queue_ids(given: Given) -> frozenset[int] | None:
    text = given.text("queueIds")
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isascii() and part.isdecimal() for part in parts):
        given.refuse("queueIds", "must be numbers like 0,1,2")
    return frozenset(int(part) for part in parts)


def _group(given: Given, name: str) -> str | None:
    group = given.text(name)
    if group is not None and (fault := group_fault(group)):
        given.refuse(name, f"cannot be: {fault}")
    return group


def _choice(given: Given, name: str, choices: Iterable[Any], default: Any) -> Any:
    value = given.text(name)
    if value is None:
        return default
    if value.lower() not in choices:
        given.refuse(name, f"must be one of: {', '.join(choices)}")
    return value.lower()


# ------------------------------------------------------------------------------------- from where to where


def _bound(given: Given, which: str, default: Where) -> Bound:
    allowed = ("earliest", "latest", "group")
    name = f"{which}Offsets"
    text = given.text(name)
    where: Where = default
    offsets = None
    if text is not None:
        if text.startswith("{"):
            offsets = _queue_numbers(given, name, lowest=EARLIEST)
        elif text.lower() in allowed:
            where = _choice(given, name, allowed, default)
        else:
            given.refuse(
                name, f'must be {", ".join(allowed)}, or JSON like {{"topic": {{"broker": {{"0": 23}}}}}}'
            )
    timestamps = f"{which}OffsetsByTimestamp"
    return Bound(
        timestamp_ms=given.moment_ms(f"{which}Timestamp"),
        timestamps_ms=_queue_numbers(given, timestamps, lowest=0) if timestamps in given else None,
        offsets=offsets,
        where=where,
    )


def _queue_numbers(given: Given, name: str, lowest: int) -> QueueNumbers:
    document = given.document(name)
    why = 'must look like {"topic": {"broker": {"0": 23}}}, with -2 for the earliest and -1 for the latest'
    if not isinstance(document, dict):
        given.refuse(name, why)
    table: QueueNumbers = {}
    for topic, brokers in document.items():
        if not isinstance(brokers, dict):
            given.refuse(name, why)
        for broker, queues in brokers.items():
            if not isinstance(queues, dict):
                given.refuse(name, why)
            for queue, number in queues.items():
                is_number = isinstance(number, int) and not isinstance(number, bool)
                if not queue.isdecimal() or not is_number or number < lowest:
                    given.refuse(name, f"{why}; {topic!r}, {broker!r}, {queue!r} is {number!r}")
                table.setdefault(topic, {}).setdefault(broker, {})[int(queue)] = number
    return table
