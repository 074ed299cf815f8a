"""Every option: what may be said, and what is refused, with a way out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kourou.errors import ConfigError
from kourou.spark.access import credentials
from kourou.spark.options import SINK_NAMES, SOURCE_NAMES, STORE_NAMES, Bound, SourceOptions, source_options

QUEUES = '{"orders":{"b":{"0":5}}}'
PLACES = '{"orders":{"b":{"0":23,"1":-1}}}'
BASE = {"namesrvAddr": "localhost:9876", "subscribe": "orders"}


KAFKA_OPTIONS = """
    assign subscribe subscribePattern kafka.bootstrap.servers startingTimestamp startingOffsetsByTimestamp
    startingOffsets endingTimestamp endingOffsetsByTimestamp endingOffsets failOnDataLoss
    kafkaConsumer.pollTimeoutMs fetchOffset.numRetries fetchOffset.retryIntervalMs maxOffsetsPerTrigger
    minOffsetsPerTrigger maxTriggerDelay minPartitions maxRecordsPerPartition groupIdPrefix kafka.group.id
    includeHeaders startingOffsetsByTimestampStrategy partition.metadata.cache.ttl.ms topic
"""
"""As the guide of Spark's own connector lists them."""


def parsed(streaming: bool = False, **options: str) -> SourceOptions:
    return source_options({**BASE, **options}, streaming=streaming)


def refused(options: Mapping[str, str], streaming: bool | None = False) -> str:
    with pytest.raises(ConfigError) as caught:
        source_options(options, streaming=streaming)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("subscribe", "a, b,,a", "topics", ("a", "b")),
        ("tags", "new || paid", "expression", "new || paid"),
        ("filterSql", "amount > 3", "expression_kind", "SQL92"),
        ("queueIds", "0, 2", "queue_ids", frozenset({0, 2})),
        ("groupId", "billing", "group", "billing"),
        ("groupIdPrefix", "mine", "group_prefix", "mine"),
        ("failOnDataLoss", "FALSE", "fail_on_data_loss", False),
        ("maxOffsetsPerTrigger", "10", "rows_per_trigger_max", 10),
        ("maxBytesPerTrigger", "10m", "bytes_per_trigger_max", 10 << 20),
        ("minOffsetsPerTrigger", "5", "rows_per_trigger_min", 5),
        ("maxTriggerDelay", "30s", "trigger_delay_ms_max", 30_000),
        ("maxTriggerDelay", "500ms", "trigger_delay_ms_max", 500),
        ("minPartitions", "7", "partitions_min", 7),
        ("maxRecordsPerPartition", "100", "rows_per_partition_max", 100),
        ("targetPartitionBytes", "1g", "partition_bytes", 1 << 30),
        ("verifyCrc", "true", "verify_crc", True),
        ("maxInflatedBytes", "64k", "inflated_bytes_max", 65_536),
        ("pullBatchSize", "8", "pull_messages_max", 8),
        ("pullTimeoutMs", "1000", "pull_timeout_ms", 1000),
        ("fetchOffset.numRetries", "5", "lookup_tries", 5),
        ("fetchOffset.retryIntervalMs", "20", "lookup_pause_ms", 20),
        ("startingOffsetsByTimestampStrategy", "error", "after_last_message", "error"),
        ("startingOffsets", "latest", "starting", Bound(where="latest")),
        ("startingOffsets", PLACES, "starting", Bound(offsets={"orders": {"b": {0: 23, 1: -1}}})),
        ("endingOffsets", "earliest", "ending", Bound(where="earliest")),
        ("startingTimestamp", "1700000000000", "starting", Bound(timestamp_ms=1_700_000_000_000)),
        ("startingTimestamp", "2023-11-14T22:13:20Z", "starting", Bound(timestamp_ms=1_700_000_000_000)),
        (
            "endingTimestamp",
            "2023-11-14T22:13:20",
            "ending",
            Bound(where="latest", timestamp_ms=1_700_000_000_000),
        ),
        ("startingOffsetsByTimestamp", QUEUES, "starting", Bound(timestamps_ms={"orders": {"b": {0: 5}}})),
        (
            "endingOffsetsByTimestamp",
            QUEUES,
            "ending",
            Bound(where="latest", timestamps_ms={"orders": {"b": {0: 5}}}),
        ),
    ],
)
def test_an_option_means_what_it_says(name: str, value: str, field: str, expected: Any) -> None:
    for given in (name, name.upper(), f"option.{name}"):
        assert getattr(source_options({**BASE, given: value}, streaming=False), field) == expected


def test_a_batch_begins_at_the_earliest_and_a_query_at_the_latest() -> None:
    assert parsed().starting.where == "earliest"
    assert parsed().ending.where == "latest"
    assert parsed(streaming=True).starting.where == "latest"


def test_only_places_of_the_moment_have_to_be_remembered() -> None:
    assert parsed(startingOffsets="latest").starting.is_of_the_moment
    assert parsed(startingTimestamp="5").starting.is_of_the_moment
    assert parsed(startingOffsets='{"orders":{"b":{"0":-1}}}').starting.is_of_the_moment
    assert not parsed(startingOffsets='{"orders":{"b":{"0":1}}}').starting.is_of_the_moment
    assert not parsed(startingOffsets="earliest").starting.is_of_the_moment


def test_queues_are_assigned_with_or_without_their_broker() -> None:
    base = {"namesrvAddr": "localhost:9876"}
    of_all = source_options({**base, "assign": '{"orders": [1, 0, 1]}'}, streaming=False)
    assert of_all.topics == ("orders",)
    assert of_all.assigned == {"orders": {"": (0, 1)}}
    of_one = source_options({**base, "assign": '{"orders": {"b": [2]}}'}, streaming=False)
    assert of_one.assigned == {"orders": {"b": (2,)}}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"maxOffsetPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger?"),
        ({"startingOffset": "latest"}, "did you mean startingOffsets?"),
        ({"zzz": "5"}, "there are: assign,"),
        ({"startingOffsets": "newest"}, "must be earliest, latest, group, or JSON"),
        ({"startingOffsets": "{not json"}, "is not JSON"),
        ({"startingOffsets": '{"orders": {"0": 5}}'}, 'must look like {"topic": {"broker": {"0": 23}}}'),
        ({"startingOffsets": '{"orders": {"b": {"0": -3}}}'}, "'0' is -3"),
        ({"startingOffsets": '{"orders": {"b": {"0": true}}}'}, "'0' is True"),
        ({"startingOffsets": "group"}, "name it by groupId"),
        (
            {"endingOffsets": "group"},
            "option endingOffsets='group' means where a group is: name it by groupId",
        ),
        ({"kafka.bootstrap.servers": "h:9092"}, "Kafka's kafka.bootstrap.servers is namesrvAddr here"),
        ({"kafka.group.id": "g"}, "is groupId here"),
        ({"kafkaConsumer.pollTimeoutMs": "5"}, "is pullTimeoutMs here"),
        ({"kafka.ssl.truststore.location": "x"}, "said by tls, tlsTrust, tlsCertificate and tlsKey here"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "said by credentialsFile here"),
        ({"kafka.auto.offset.reset": "latest"}, "means nothing here"),
        ({"includeHeaders": "true"}, "is not needed: the column properties is always there"),
        ({"startingTimestamp": "yesterday"}, "2026-01-31T12:00:00Z"),
        ({"maxBytesPerTrigger": "10 apples"}, "64m"),
        ({"maxTriggerDelay": "soon"}, "15m"),
        ({"maxOffsetsPerTrigger": "0"}, "whole number from 1 on"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "more than maxOffsetsPerTrigger"),
        ({"failOnDataLoss": "perhaps"}, "true or false"),
        ({"tags": "a", "filterSql": "b > 1"}, "cannot go with tags"),
        ({"queueIds": "one"}, "0,1,2"),
        ({"groupId": "no spaces"}, "illegal characters"),
        ({"subscribe": "a/b"}, "illegal characters"),
        ({"subscribe": ","}, "names no topic"),
        ({"subscribePattern": "a.*"}, "give one of them"),
        ({"includeRetry": "true"}, "needs groupId"),
        ({"includeDlq": "true"}, "needs groupId"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "must be one of: error, latest"),
        ({"namesrvAddr": "nonsense"}, "nonsense"),
        ({"accessKey": "secret"}, "credentialsFile"),
        ({"secretKey": "secret"}, "KOUROU_SECRET_KEY"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_way_out(options: dict[str, str], expected: str) -> None:
    message = refused({**BASE, **options})
    assert expected in message
    assert "'secret'" not in message


def test_a_pattern_must_be_one() -> None:
    base = {"namesrvAddr": "localhost:9876"}
    assert "not a regular expression" in refused({**base, "subscribePattern": "("})
    assert 'must look like {"topic": [0, 1]}' in refused({**base, "assign": "[]"})
    assert 'must look like {"topic": [0, 1]}' in refused({**base, "assign": '{"orders": [-1]}'})
    assert "which topics?" in refused(base)


def test_a_streaming_query_has_no_end() -> None:
    assert "is for a batch" in refused({**BASE, "endingOffsets": "latest"}, streaming=True)
    source_options({**BASE, "endingOffsets": "latest"}, streaming=None)


def test_the_cluster_may_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert "where is the cluster?" in refused({"subscribe": "orders"})
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b:2")
    assert source_options({"subscribe": "orders"}, streaming=False).access.name_server == "a:1;b:2"


def test_secrets_come_from_a_file_or_the_environment(tmp_path: Path) -> None:
    assert credentials(None, {}) is None
    said = credentials(None, {"KOUROU_ACCESS_KEY": "me", "KOUROU_SECRET_KEY": "x"})
    assert said is not None
    assert said.access_key == "me"
    path = tmp_path / "keys"
    path.write_text("accessKey=me\nsecretKey=12345678\n")
    said = credentials(str(path), {})
    assert said is not None
    assert said.secret_key == "12345678"
    path.write_text("accessKey=me\n")
    with pytest.raises(ConfigError, match="two lines"):
        credentials(str(path), {})
    with pytest.raises(ConfigError, match="cannot read"):
        credentials(str(tmp_path / "missing"), {})


def test_what_goes_to_executors_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOUROU_ACCESS_KEY", "me")
    monkeypatch.setenv("KOUROU_SECRET_KEY", "hidden-from-all")
    assert "hidden-from-all" not in repr(parsed())


def test_tls_is_wanted_when_something_is_said_about_it() -> None:
    assert parsed().access.tls is None
    assert parsed(tls="true").access.tls is not None
    tls = parsed(tlsTrust="/ca.pem").access.tls
    assert tls is not None
    assert tls.trust == "/ca.pem"
    assert parsed(namespace="shop").access.namespace == "shop"


def test_every_option_is_told_in_the_documentation() -> None:
    docs = Path(__file__).parents[3] / "docs"
    reading = (docs / "spark.md").read_text()
    assert [name for name in (*SOURCE_NAMES, *STORE_NAMES) if f"`{name}`" not in reading] == []
    writing = (docs / "how-to" / "write-from-spark.md").read_text()
    assert [name for name in SINK_NAMES if f"`{name}`" not in writing] == []


def test_every_option_of_kafka_s_connector_is_told_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
    assert [name for name in KAFKA_OPTIONS.split() if f"`{name}`" not in page] == []
