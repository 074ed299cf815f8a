"""The headers of requests that only operators send; as `headers.py`, which has all the others."""

from __future__ import annotations

from kourou.protocol.headers import WireHeader
from kourou.protocol.numbers import Int32


class BrokerStatsAsked(WireHeader, frozen=True):
    """VIEW_BROKER_STATS_DATA (315)."""

    stats_name: str
    stats_key: str


class ConsumeStatsAsked(WireHeader, frozen=True):
    """GET_BROKER_CONSUME_STATS (317)."""

    is_order: bool = False


class ConfigVersion(WireHeader, frozen=True):
    """Reply of GET_BROKER_CONFIG (26): a data version as JSON."""

    version: str


class TopicAndGroup(WireHeader, frozen=True):
    """QUERY_CONSUME_TIME_SPAN (303), QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    group: str
    topic: str = ""


class CloneOffsets(WireHeader, frozen=True):
    """CLONE_GROUP_OFFSET (314). Without a topic, of all the group ever committed for."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool | None = None


class CorrectionAsked(WireHeader, frozen=True):
    """QUERY_CORRECTION_OFFSET (308)."""

    topic: str
    compare_group: str
    filter_groups: str | None = None


class ConsumerStatusAsked(WireHeader, frozen=True):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223)."""

    topic: str
    group: str
    client_addr: str | None = None


class GroupForbidden(WireHeader, frozen=True):
    """UPDATE_AND_GET_GROUP_FORBIDDEN (353)."""

    group: str
    topic: str
    readable: bool | None = None


class PageOfTopics(WireHeader, frozen=True):
    """GET_ALL_TOPIC_CONFIG (21) of 5.x: what is left out means everything."""

    topic_seq: Int32 | None = None
    max_topic_num: Int32 | None = None


class DirectConsumption(
    WireHeader,
    frozen=True,
    rename={
        "consumer_group": "consumerGroup",
        "client_id": "clientId",
        "offset_id": "msgId",
        "broker_name": "brokerName",
        "topic": "topic",
        "topic_sys_flag": "topicSysFlag",
        "group_sys_flag": "groupSysFlag",
    },
):
    """CONSUME_MESSAGE_DIRECTLY (309), to a broker: it finds the message and passes the request on."""

    consumer_group: str
    client_id: str | None = None
    offset_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
