"""One struct per request and reply header. Wire names appear here and nowhere else.

Our names are snake_case; the wire's are camelCase of the same words unless a struct says otherwise (the
one-letter names of SEND_MESSAGE_V2, say). An attribute without a default is required: a request that
lacks it is refused by `Command.parse`. Values travel as strings, so every number here is text out there; it
has the range it has in Java, because what is taken in will be written down, and must be readable again.
"""

from __future__ import annotations

import msgspec

from kourou.protocol.numbers import Int32, Int64


class WireHeader(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What all headers have in common: immutable, camelCase outside."""


# ------------------------------------------------------------------------------------------ name server


class KvKey(WireHeader, frozen=True):
    """GET_KV_CONFIG (101), DELETE_KV_CONFIG (102)."""

    namespace: str
    key: str


class PutKv(WireHeader, frozen=True):
    """PUT_KV_CONFIG (100)."""

    namespace: str
    key: str
    value: str


class KvValue(WireHeader, frozen=True):
    """Reply of GET_KV_CONFIG."""

    value: str | None = None


class KvNamespace(WireHeader, frozen=True):
    """GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str


class RegisterBroker(
    WireHeader,
    frozen=True,
    rename={
        "broker_name": "brokerName",
        "broker_address": "brokerAddr",
        "cluster_name": "clusterName",
        "ha_server_address": "haServerAddr",
        "broker_id": "brokerId",
        "body_crc32": "bodyCrc32",
        "heartbeat_timeout_ms": "heartbeatTimeoutMillis",
        "enable_acting_master": "enableActingMaster",
        "zone_name": "__ZONE_NAME",
    },
):
    """REGISTER_BROKER (103)."""

    broker_name: str
    broker_address: str
    cluster_name: str
    broker_id: Int64
    ha_server_address: str | None = None
    body_crc32: Int32 = 0
    compressed: bool = False
    heartbeat_timeout_ms: Int64 | None = None
    enable_acting_master: bool | None = None
    zone_name: str | None = None


class RegisterBrokerReply(
    WireHeader, frozen=True, rename={"ha_server_address": "haServerAddr", "master_address": "masterAddr"}
):
    """Reply of REGISTER_BROKER: what a slave needs to know of its master."""

    ha_server_address: str | None = None
    master_address: str | None = None


class BrokerIdentity(
    WireHeader,
    frozen=True,
    rename={
        "broker_name": "brokerName",
        "broker_address": "brokerAddr",
        "cluster_name": "clusterName",
        "broker_id": "brokerId",
    },
):
    """UNREGISTER_BROKER (104), QUERY_DATA_VERSION (322)."""

    broker_name: str
    broker_address: str
    cluster_name: str
    broker_id: Int64 = 0


class DataVersionReply(WireHeader, frozen=True):
    """Reply of QUERY_DATA_VERSION."""

    changed: bool


class BrokerHeartbeat(
    WireHeader,
    frozen=True,
    rename={
        "cluster_name": "clusterName",
        "broker_address": "brokerAddr",
        "broker_name": "brokerName",
        "broker_id": "brokerId",
        "max_offset": "maxOffset",
        "confirm_offset": "confirmOffset",
        "heartbeat_timeout_ms": "heartbeatTimeoutMills",
        "election_priority": "electionPriority",
    },
):
    """BROKER_HEARTBEAT (904)."""

    cluster_name: str
    broker_address: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_ms: Int64 | None = None
    election_priority: Int32 | None = None


class BrokerGroup(WireHeader, frozen=True):
    """GET_BROKER_MEMBER_GROUP (901)."""

    cluster_name: str
    broker_name: str


class MinBrokerIdChanged(
    WireHeader,
    frozen=True,
    rename={
        "min_broker_id": "minBrokerId",
        "broker_name": "brokerName",
        "min_broker_address": "minBrokerAddr",
        "offline_broker_address": "offlineBrokerAddr",
        "ha_broker_address": "haBrokerAddr",
    },
):
    """NOTIFY_MIN_BROKER_ID_CHANGE (905), from name server to broker."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_address: str | None = None
    offline_broker_address: str | None = None
    ha_broker_address: str | None = None


class GetRoute(WireHeader, frozen=True):
    """GET_ROUTEINFO_BY_TOPIC (105)."""

    topic: str
    accept_standard_json_only: bool | None = None
    zone_mode: bool | None = msgspec.field(default=None, name="__ZONE_MODE")
    zone_name: str | None = msgspec.field(default=None, name="__ZONE_NAME")
    kourou_watch: bool | None = None
    """Of our own: say when this route changes (KOUROU_ROUTE_CHANGED). Other name servers pass over it."""


class BrokerNamed(WireHeader, frozen=True):
    """WIPE_WRITE_PERM_OF_BROKER (205), ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str


class WipedReply(WireHeader, frozen=True):
    """Reply of WIPE_WRITE_PERM_OF_BROKER."""

    wipe_topic_count: Int32


class AddedReply(WireHeader, frozen=True):
    """Reply of ADD_WRITE_PERM_OF_BROKER."""

    add_topic_count: Int32


class DeleteTopicFromNameServer(WireHeader, frozen=True):
    """DELETE_TOPIC_IN_NAMESRV (216)."""

    topic: str
    cluster_name: str | None = None


class TopicNamed(WireHeader, frozen=True):
    """REGISTER_TOPIC_IN_NAMESRV (217), and the many requests that name a topic and nothing else."""

    topic: str


class ClusterNamed(WireHeader, frozen=True):
    """GET_TOPICS_BY_CLUSTER (224)."""

    cluster: str


# ----------------------------------------------------------------------------------------------- sending


class SendMessage(WireHeader, frozen=True):
    """SEND_MESSAGE (10)."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    batch: bool | None = None
    broker_name: str | None = msgspec.field(default=None, name="bname")


class SendMessageV2(
    WireHeader,
    frozen=True,
    rename=dict(zip(SendMessage.__struct_fields__, "abcdefghijklmn", strict=True)),
):
    """SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320): the same thing under one-letter names."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    batch: bool | None = None
    broker_name: str | None = None


class SendReply(
    WireHeader,
    frozen=True,
    rename={
        "message_id": "msgId",
        "queue_id": "queueId",
        "queue_offset": "queueOffset",
        "transaction_id": "transactionId",
        "region": "MSG_REGION",
        "trace_on": "TRACE_ON",
        "batch_unique_id": "batchUniqId",
        "recall_handle": "recallHandle",
    },
):
    """Reply of every send."""

    message_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    region: str | None = "DefaultRegion"
    trace_on: bool | None = True
    batch_unique_id: str | None = None
    recall_handle: str | None = None


class EndTransaction(
    WireHeader,
    frozen=True,
    rename={
        "producer_group": "producerGroup",
        "half_queue_offset": "tranStateTableOffset",
        "physical_offset": "commitLogOffset",
        "outcome": "commitOrRollback",
        "from_check": "fromTransactionCheck",
        "unique_id": "msgId",
        "transaction_id": "transactionId",
    },
):
    """END_TRANSACTION (37). The outcome is 8 to commit, 12 to roll back, 0 when it is not known yet."""

    producer_group: str
    half_queue_offset: int
    physical_offset: int
    outcome: int
    from_check: bool = False
    unique_id: str | None = None
    transaction_id: str | None = None
    topic: str | None = None


class ResumeCheck(WireHeader, frozen=True, rename={"offset_id": "msgId"}):
    """RESUME_CHECK_HALF_MESSAGE (323): the offset id of a message that was discarded."""

    offset_id: str | None = None
    topic: str | None = None


class CheckTransaction(
    WireHeader,
    frozen=True,
    rename={
        "half_queue_offset": "tranStateTableOffset",
        "physical_offset": "commitLogOffset",
        "unique_id": "msgId",
        "transaction_id": "transactionId",
        "offset_id": "offsetMsgId",
        "broker_name": "bname",
    },
):
    """CHECK_TRANSACTION_STATE (39), from broker to producer."""

    half_queue_offset: int
    physical_offset: int
    unique_id: str | None = None
    transaction_id: str | None = None
    offset_id: str | None = None
    topic: str | None = None
    broker_name: str | None = None


class PushReply(WireHeader, frozen=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326), from broker to the client that asked."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    born_host: str
    store_host: str
    store_timestamp: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool | None = None


class SendBack(
    WireHeader,
    frozen=True,
    rename={
        "physical_offset": "offset",
        "delay_level": "delayLevel",
        "origin_message_id": "originMsgId",
        "origin_topic": "originTopic",
        "unit_mode": "unitMode",
        "max_reconsume_times": "maxReconsumeTimes",
    },
):
    """CONSUMER_SEND_MSG_BACK (36)."""

    physical_offset: int
    group: str
    delay_level: int
    origin_message_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: int | None = None


class RecallMessage(WireHeader, frozen=True):
    """RECALL_MESSAGE (370)."""

    topic: str
    recall_handle: str = ""
    producer_group: str | None = None


class RecallReply(WireHeader, frozen=True, rename={"message_id": "msgId", "region": "MSG_REGION"}):
    """Reply of RECALL_MESSAGE: the unique id of the message that was taken back."""

    message_id: str
    region: str | None = None


class RecallRefused(WireHeader, frozen=True, rename={"region": "MSG_REGION"}):
    """Reply of RECALL_MESSAGE when nothing was taken back."""

    region: str


# ------------------------------------------------------------------------------------ pulling and offsets


class PullMessage(
    WireHeader,
    frozen=True,
    rename={
        "consumer_group": "consumerGroup",
        "queue_id": "queueId",
        "queue_offset": "queueOffset",
        "message_count_max": "maxMsgNums",
        "sys_flag": "sysFlag",
        "commit_offset": "commitOffset",
        "suspend_timeout_ms": "suspendTimeoutMillis",
        "subscription_version": "subVersion",
        "expression_type": "expressionType",
        "message_bytes_max": "maxMsgBytes",
        "request_source": "requestSource",
    },
):
    """PULL_MESSAGE (11), LITE_PULL_MESSAGE (361)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    message_count_max: Int32
    sys_flag: Int32
    commit_offset: Int64 = 0
    suspend_timeout_ms: Int64 = 0
    subscription: str | None = None
    subscription_version: Int64 = 0
    expression_type: str | None = None
    message_bytes_max: Int32 | None = None
    request_source: Int32 | None = None


class PullReply(WireHeader, frozen=True):
    """Reply of a pull; all four offsets are always there, whatever the code."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64


class QueryOffset(WireHeader, frozen=True):
    """QUERY_CONSUMER_OFFSET (14)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


class UpdateOffset(WireHeader, frozen=True):
    """UPDATE_CONSUMER_OFFSET (15)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


class TimersDoneReply(WireHeader, frozen=True):
    """Reply of GET_TIMER_CHECK_POINT (60), what our own slaves read of it: messages of the timer topic before
    `kourou_queue_offset` that were due before that time and place are delivered."""

    kourou_queue_offset: Int64
    kourou_before_ms: Int64
    kourou_before_place: Int64


class QueueNamed(WireHeader, frozen=True):
    """GET_MAX_OFFSET (30), GET_MIN_OFFSET (31), GET_EARLIEST_MSG_STORETIME (32)."""

    topic: str
    queue_id: Int32
    committed: bool | None = None


class SearchOffset(WireHeader, frozen=True):
    """SEARCH_OFFSET_BY_TIMESTAMP (29)."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None


class TimestampReply(WireHeader, frozen=True):
    """Reply of GET_EARLIEST_MSG_STORETIME."""

    timestamp: Int64


class OffsetReply(WireHeader, frozen=True):
    """Reply of 14, 29, 30 and 31."""

    offset: Int64


class QueryMessage(
    WireHeader,
    frozen=True,
    rename={
        "max_num": "maxNum",
        "begin_timestamp": "beginTimestamp",
        "end_timestamp": "endTimestamp",
        "is_unique_key": "_UNIQUE_KEY_QUERY",
    },
):
    """QUERY_MESSAGE (12). Times are when messages were stored, in ms."""

    topic: str
    key: str
    max_num: int
    begin_timestamp: int
    end_timestamp: int
    is_unique_key: bool = False


class QueryMessageReply(WireHeader, frozen=True):
    """Reply of QUERY_MESSAGE: how far the index is."""

    index_last_update_timestamp: int
    index_last_update_phyoffset: int


class ViewMessage(WireHeader, frozen=True):
    """VIEW_MESSAGE_BY_ID (33)."""

    offset: int
    topic: str | None = None


class QueryConsumeQueue(WireHeader, frozen=True):
    """QUERY_CONSUME_QUEUE (321)."""

    topic: str
    queue_id: int
    index: int
    count: int
    consumer_group: str | None = None


# -------------------------------------------------------------------------------------- clients and groups


class HeartbeatReply(
    WireHeader,
    frozen=True,
    rename={"supports_v2": "IS_SUPPORT_HEART_BEAT_V2", "subscription_changed": "IS_SUB_CHANGE"},
):
    """Reply of HEART_BEAT (34). Without `supports_v2` a client keeps sending whole heartbeats."""

    supports_v2: bool | None = None
    subscription_changed: bool | None = None


class UnregisterClient(
    WireHeader,
    frozen=True,
    rename={"client_id": "clientID", "producer_group": "producerGroup", "consumer_group": "consumerGroup"},
):
    """UNREGISTER_CLIENT (35)."""

    client_id: str
    producer_group: str | None = None
    consumer_group: str | None = None


class GroupNamed(WireHeader, frozen=True):
    """GET_CONSUMER_LIST_BY_GROUP (38), NOTIFY_CONSUMER_IDS_CHANGED (40)."""

    consumer_group: str


class GroupNews(WireHeader, frozen=True):
    """NOTIFY_CONSUMER_IDS_CHANGED (40), when it is not the members but the queues of a topic that changed.

    Stock clients read the group alone, and look for their queues, too.
    """

    consumer_group: str
    topic: str | None = msgspec.field(default=None, name="kourouTopic")


class ProducerGroupNamed(WireHeader, frozen=True):
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    producer_group: str


class GroupAsked(WireHeader, frozen=True):
    """GET_SUBSCRIPTIONGROUP_CONFIG (352)."""

    group: str


class DeleteGroup(WireHeader, frozen=True):
    """DELETE_SUBSCRIPTIONGROUP (207). 4.9 and 5.x have a name each for the same wish."""

    group_name: str
    clean_offset: bool | None = None
    remove_offset: bool | None = None


class GetConsumeStats(WireHeader, frozen=True):
    """GET_CONSUME_STATS (208); several topics are parted by ';'."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class ResetOffset(WireHeader, frozen=True):
    """INVOKE_BROKER_TO_RESET_OFFSET (222), and RESET_CONSUMER_CLIENT_OFFSET (220) from broker to client."""

    topic: str
    group: str
    timestamp: int = -1
    is_force: bool | None = None
    queue_id: int | None = None
    offset: int | None = None


class GetConsumerStatus(WireHeader, frozen=True):
    """GET_CONSUMER_STATUS_FROM_CLIENT (221), from broker to client."""

    topic: str
    group: str
    client_addr: str | None = None


class GetRunningInfo(WireHeader, frozen=True):
    """GET_CONSUMER_RUNNING_INFO (307); `jstack_enable` asks for the stacks of all threads."""

    consumer_group: str
    client_id: str | None = None
    jstack_enable: bool = False


class ConsumeDirectly(
    WireHeader,
    frozen=True,
    rename={
        "consumer_group": "consumerGroup",
        "client_id": "clientId",
        "message_id": "msgId",
        "broker_name": "brokerName",
    },
):
    """CONSUME_MESSAGE_DIRECTLY (309): the message itself is the body."""

    consumer_group: str
    client_id: str | None = None
    message_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None


# ------------------------------------------------------------------------------------------------- topics


class CreateTopic(WireHeader, frozen=True):
    """UPDATE_AND_CREATE_TOPIC (17)."""

    topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    default_topic: str | None = None
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 | None = None
    order: bool | None = None
    attributes: str | None = None
    force: bool | None = None
