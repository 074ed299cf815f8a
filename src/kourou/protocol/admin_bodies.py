"""The JSON bodies that only operators exchange with brokers; see `bodies.py` for how they are written."""

from __future__ import annotations

from typing import Any, Self, TypeVar

from msgspec import UNSET, UnsetType, field

from kourou.errors import ProtocolError
from kourou.protocol import fastjson
from kourou.protocol.bodies import (
    Body,
    ConsumeStats,
    MessageQueue,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
)
from kourou.protocol.numbers import Int32, Int64

Part = TypeVar("Part", list[Any], dict[Any, Any])


class TopicConfigList(Body, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC_LIST (18)."""

    topic_config_list: list[TopicConfig] = field(default_factory=list)


class GroupConfigList(Body, kw_only=True):
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225)."""

    group_config_list: list[SubscriptionGroupConfig] = field(default_factory=list)


class StatsSnapshot(Body, kw_only=True):
    """One figure over a span of time."""

    avgpt: float = 0.0
    sum: Int64 = 0
    tps: float = 0.0


class BrokerStatsData(Body, kw_only=True):
    """Reply of VIEW_BROKER_STATS_DATA (315)."""

    stats_day: StatsSnapshot = field(default_factory=StatsSnapshot)
    stats_hour: StatsSnapshot = field(default_factory=StatsSnapshot)
    stats_minute: StatsSnapshot = field(default_factory=StatsSnapshot)


class ConsumeStatsList(Body, kw_only=True):
    """Reply of GET_BROKER_CONSUME_STATS (317). Keyed by objects: only `encode_fastjson` writes it."""

    broker_addr: str = ""
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    total_diff: Int64 = 0
    total_inflight_diff: Int64 = 0

    @classmethod
    def _read(cls, data: bytes, values_max: int) -> Self:
        document = fastjson.loads(data, values_max)
        entries = document.pop("consumeStatsList", None) or [] if isinstance(document, dict) else []
        found = fastjson.convert(document, cls)
        found.consume_stats_list = [
            {
                group: [ConsumeStats.convert(each) for each in _need(list, stats)]
                for group, stats in _need(dict, entry).items()
            }
            for entry in _need(list, entries)
        ]
        return found


def _need(kind: type[Part], part: Any) -> Part:
    """A part of a document, when it is of this kind. Raises ProtocolError."""
    if not isinstance(part, kind):
        raise ProtocolError(f"a {kind.__name__} was expected, not {type(part).__name__}")
    return part


class QueueTimeSpan(Body, kw_only=True):
    """From when to when a queue has messages, and how far behind a group is there; times in ms."""

    consume_time_stamp: Int64 = -1
    delay_time: Int64 = -1
    max_time_stamp: Int64 = -1
    message_queue: MessageQueue
    min_time_stamp: Int64 = -1


class ConsumeTimeSpans(Body, kw_only=True):
    """Reply of QUERY_CONSUME_TIME_SPAN (303)."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


class CorrectionOffsets(Body, kw_only=True):
    """Reply of QUERY_CORRECTION_OFFSET (308), by queue."""

    correction_offsets: dict[Int32, Int64] = field(default_factory=dict)


class GroupSubscription(Body, kw_only=True):
    """Reply of QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    group: str = ""
    subscription_data: SubscriptionData | UnsetType = UNSET
    topic: str = ""


class GroupForbiddenReply(Body, kw_only=True):
    """Reply of UPDATE_AND_GET_GROUP_FORBIDDEN (353)."""

    group: str = ""
    readable: bool = True
    topic: str = ""


class ProducerInfo(Body, kw_only=True):
    """One producer that is connected."""

    client_id: str = ""
    language: str = "OTHER"
    last_update_timestamp: Int64 = 0
    remote_ip: str = field(name="remoteIP", default="")
    version: Int32 = 0


class ProducerTable(Body, kw_only=True):
    """Reply of GET_ALL_PRODUCER_INFO (328): by producer group."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


class ConsumerStatus(Body, kw_only=True):
    """Reply of INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223): how far each member is, by client id.

    Keyed by objects: only `encode_fastjson` writes it.
    """

    consumer_table: dict[str, dict[MessageQueue, Int64]] = field(default_factory=dict)

    @classmethod
    def _read(cls, data: bytes, values_max: int) -> Self:
        document = fastjson.loads(data, values_max)
        table = document.get("consumerTable") or {} if isinstance(document, dict) else {}
        return cls(
            consumer_table={
                str(client): {
                    fastjson.convert(queue, MessageQueue): fastjson.convert(offset, Int64)
                    for queue, offset in fastjson.pairs(places)
                }
                for client, places in _need(dict, table).items()
            }
        )


class HaConnection(Body, kw_only=True):
    """One replica that copies from a master."""

    addr: str = ""
    diff: Int64 = 0
    in_sync: bool = False
    slave_ack_offset: Int64 = 0
    transfer_from_where: Int64 = 0
    transferred_byte_in_second: Int64 = 0


class HaClient(Body, kw_only=True):
    """A replica that copies, as it sees itself."""

    activated: bool = False
    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_addr: str = ""
    max_offset: Int64 = 0
    transferred_byte_in_second: Int64 = 0
    master_flush_offset: Int64 = 0


class HaStatus(Body, kw_only=True):
    """Reply of GET_BROKER_HA_STATUS (907)."""

    ha_client_runtime_info: HaClient = field(default_factory=HaClient)
    ha_connection_info: list[HaConnection] = field(default_factory=list)
    in_sync_slave_nums: Int32 = 0
    master: bool = True
    master_commit_log_max_offset: Int64 = 0


class RequestModes(Body, kw_only=True):
    """Reply of GET_ALL_MESSAGE_REQUEST_MODE (402): topic -> group -> what was set."""

    message_request_mode_map: dict[str, dict[str, Any]] = field(default_factory=dict)


class RequestModeWanted(Body, kw_only=True):
    """SET_MESSAGE_REQUEST_MODE (401)."""

    consumer_group: str = ""
    mode: str = "PULL"
    pop_share_queue_num: Int32 = 0
    topic: str = ""
