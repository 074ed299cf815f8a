"""What each request needs: from its code, its fields and, where nothing else tells, its body.

One table for broker and name server. The rights are those of 5.x; where it forgot a request, or lets one pass
that names no topic, the table is stricter, and a code that is not in it is for administrators. An account of
a `plain_acl.yml` may look at everything (GET, LIST), as in 4.x, but changes need `admin`, also those that 4.x
took from anybody with a valid signature (cleaning, resetting, everything at a name server).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kourou.access.rules import (
    ADMIN,
    CREATE,
    DELETE,
    EVERY,
    GET,
    LOOK,
    PUB,
    SUB,
    UPDATE,
    Kind,
    Need,
    topic_need,
)
from kourou.protocol.bodies import HeartbeatData, LockQueues, SubscriptionGroupConfig
from kourou.protocol.codes import RequestCode as Code
from kourou.protocol.command import Command

Fields = Mapping[str, str]
Needs = Sequence[Need]
_Build = Callable[[Command, Fields], Needs]


def needs_of(request: Command) -> Needs:
    """Everything this request needs; nothing when a valid signature is enough."""
    build = _TABLE.get(request.code)
    return _ADMINISTRATOR if build is None else build(request, request.fields)


def is_mapped(code: int) -> bool:
    return code in _TABLE


def send_needs(topic: str, group: str) -> Needs:
    """What a send needs, for whoever has its fields at hand already."""
    return (topic_need(topic, PUB, group),)


def pull_needs(topic: str, group: str) -> Needs:
    return (topic_need(topic, SUB, group), Need("Group", group, SUB))


_ADMINISTRATOR: Final = (Need("Cluster", EVERY, ADMIN),)


# ------------------------------------------------------------------------------------- ways to find out


def _nothing(request: Command, fields: Fields) -> Needs:
    return ()


def _administrator(request: Command, fields: Fields) -> Needs:
    return _ADMINISTRATOR


def _cluster(actions: int) -> _Build:
    def build(request: Command, fields: Fields) -> Needs:
        return (Need("Cluster", fields.get("clusterName") or EVERY, actions),)

    return build


def _every(kind: Kind, actions: int) -> _Build:
    needs = (Need(kind, EVERY, actions),)
    return lambda request, fields: needs


def _named(actions: int, *, topic: str = "", group: str = "") -> _Build:
    """What is to be done with the topic and the group in these fields.

    A request that names none of them is for administrators: the handler would refuse it anyway.
    """

    def build(request: Command, fields: Fields) -> Needs:
        by = fields.get(group, "") if group else None
        needs = []
        if topic and fields.get(topic):
            needs.append(topic_need(fields[topic], actions, by))
        if by:
            needs.append(Need("Group", by, actions))
        return needs or _ADMINISTRATOR

    return build


def _send(topic: str, group: str) -> _Build:
    return lambda request, fields: send_needs(fields.get(topic, ""), fields.get(group, ""))


def _pull(request: Command, fields: Fields) -> Needs:
    return pull_needs(fields.get("topic", ""), fields.get("consumerGroup", ""))


def _query(request: Command, fields: Fields) -> Needs:
    """Reading without a group: a rule that names groups does not let it in."""
    return (topic_need(fields.get("topic", ""), SUB, ""),)


def _end_transaction(request: Command, fields: Fields) -> Needs:
    """4.9 does not say which topic: the producer group, which the half message holds, has to do."""
    topic = fields.get("topic")
    return send_needs(topic, fields.get("producerGroup", "")) if topic else ()


def _heartbeat(request: Command, fields: Fields) -> Needs:
    needs = []
    for consumer in HeartbeatData.decode_request(request.body).consumer_data_set:
        group = consumer.group_name
        needs.append(Need("Group", group, SUB))
        needs += [topic_need(each.topic, SUB, group) for each in consumer.subscription_data_set]
    return needs


def _unregister(request: Command, fields: Fields) -> Needs:
    group = fields.get("consumerGroup")
    return (Need("Group", group, SUB),) if group else ()


def _locks(request: Command, fields: Fields) -> Needs:
    asked = LockQueues.decode_request(request.body)
    group = asked.consumer_group
    topics = {queue.topic for queue in asked.mq_set}
    return [Need("Group", group, SUB), *(topic_need(topic, SUB, group) for topic in sorted(topics))]


def _save_group(request: Command, fields: Fields) -> Needs:
    return (Need("Group", SubscriptionGroupConfig.decode_request(request.body).group_name, CREATE | UPDATE),)


def _consume_stats(request: Command, fields: Fields) -> Needs:
    group = fields.get("consumerGroup", "")
    topics = [fields.get("topic", ""), *fields.get("topicList", "").split(";")]
    return [Need("Group", group, GET), *(topic_need(topic, GET, group) for topic in topics if topic)]


def _clone_offsets(request: Command, fields: Fields) -> Needs:
    target, source = fields.get("destGroup", ""), fields.get("srcGroup", "")
    topic = fields.get("topic")
    about_topic = [topic_need(topic, UPDATE, target)] if topic else []
    return [Need("Group", target, UPDATE), Need("Group", source, GET), *about_topic]


def _corrections(request: Command, fields: Fields) -> Needs:
    groups = [fields.get("compareGroup", ""), *fields.get("filterGroups", "").split(",")]
    needs = [Need("Group", group, GET) for group in groups if group]
    topic = fields.get("topic")
    return [*needs, topic_need(topic, GET)] if topic else needs or _ADMINISTRATOR


# ------------------------------------------------------------------------------------------- the table

_LOOK_AT_CLUSTER: Final = _cluster(GET)
_CHANGE_CLUSTER: Final = _cluster(UPDATE)
_LIST_TOPICS: Final = _every("Topic", LOOK)
_LOOK_AT_TOPIC: Final = _named(GET, topic="topic")
_READ_PLACE: Final = _named(GET | SUB | PUB, topic="topic")
_POP: Final = _named(SUB, topic="topic", group="consumerGroup")

_TABLE: Final[Mapping[int, _Build]] = {
    # clients
    Code.SEND_MESSAGE: _send("topic", "producerGroup"),
    Code.SEND_MESSAGE_V2: _send("b", "a"),
    Code.SEND_BATCH_MESSAGE: _send("b", "a"),
    Code.SEND_REPLY_MESSAGE: _nothing,  # it can reach nobody but who asked
    Code.SEND_REPLY_MESSAGE_V2: _nothing,
    Code.RECALL_MESSAGE: _send("topic", "producerGroup"),
    Code.END_TRANSACTION: _end_transaction,
    Code.CHECK_TRANSACTION_STATE: _nothing,
    Code.PULL_MESSAGE: _pull,
    Code.LITE_PULL_MESSAGE: _pull,
    Code.POP_MESSAGE: _POP,
    Code.PEEK_MESSAGE: _POP,
    Code.ACK_MESSAGE: _POP,
    Code.CHANGE_MESSAGE_INVISIBLETIME: _POP,
    Code.NOTIFICATION: _POP,
    Code.POLLING_INFO: _named(GET, topic="topic", group="consumerGroup"),
    Code.CONSUMER_SEND_MSG_BACK: _named(SUB, group="group"),  # the handler looks at the message's topic
    Code.HEART_BEAT: _heartbeat,
    Code.UNREGISTER_CLIENT: _unregister,
    Code.CHECK_CLIENT_CONFIG: _nothing,
    Code.GET_CONSUMER_LIST_BY_GROUP: _named(SUB | GET, group="consumerGroup"),
    Code.QUERY_CONSUMER_OFFSET: _named(SUB | GET, topic="topic", group="consumerGroup"),
    Code.UPDATE_CONSUMER_OFFSET: _named(SUB | UPDATE, topic="topic", group="consumerGroup"),
    Code.LOCK_BATCH_MQ: _locks,
    Code.UNLOCK_BATCH_MQ: _locks,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _READ_PLACE,
    Code.GET_MAX_OFFSET: _READ_PLACE,
    Code.GET_MIN_OFFSET: _READ_PLACE,
    Code.GET_EARLIEST_MSG_STORETIME: _READ_PLACE,
    Code.QUERY_MESSAGE: _query,
    Code.VIEW_MESSAGE_BY_ID: _nothing,  # the handler looks at the message's topic
    Code.QUERY_CONSUME_QUEUE: _named(GET, topic="topic", group="consumerGroup"),
    Code.QUERY_ASSIGNMENT: _nothing,
    Code.KOUROU_CAPABILITIES: _nothing,
    Code.KOUROU_BULK_PULL: _pull,
    Code.KOUROU_STAGE: _send("topic", "producer"),
    Code.KOUROU_COMMIT_STAGED: _nothing,  # messages that were taken from whoever may send them
    Code.KOUROU_ABORT_STAGED: _nothing,
    Code.KOUROU_STAGED_STATE: _nothing,
    Code.KOUROU_REPLICA_SET: _CHANGE_CLUSTER,
    Code.KOUROU_REPLICA_SET_STATE: _LOOK_AT_CLUSTER,
    Code.KOUROU_SWITCH: _administrator,
    Code.KOUROU_STOP: _administrator,
    # topics
    Code.GET_ROUTEINFO_BY_TOPIC: _READ_PLACE,
    Code.UPDATE_AND_CREATE_TOPIC: _named(CREATE | UPDATE, topic="topic"),
    Code.UPDATE_AND_CREATE_STATIC_TOPIC: _named(CREATE | UPDATE, topic="topic"),
    Code.DELETE_TOPIC_IN_BROKER: _named(DELETE, topic="topic"),
    Code.GET_TOPIC_CONFIG: _READ_PLACE,
    Code.GET_ALL_TOPIC_CONFIG: _LIST_TOPICS,
    Code.GET_TOPIC_CONFIG_LIST: _LIST_TOPICS,
    Code.GET_TOPIC_NAME_LIST: _LIST_TOPICS,
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _LIST_TOPICS,
    Code.GET_TOPICS_BY_CLUSTER: _LIST_TOPICS,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: _LIST_TOPICS,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _LIST_TOPICS,
    Code.GET_UNIT_TOPIC_LIST: _LIST_TOPICS,
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: _LIST_TOPICS,
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _LIST_TOPICS,
    Code.GET_TOPIC_STATS_INFO: _LOOK_AT_TOPIC,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: _LOOK_AT_TOPIC,
    Code.RESUME_CHECK_HALF_MESSAGE: _CHANGE_CLUSTER,
    Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: _LOOK_AT_CLUSTER,
    # groups
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _save_group,
    Code.DELETE_SUBSCRIPTIONGROUP: _named(DELETE, group="groupName"),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: _named(GET | SUB, group="group"),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _every("Group", LOOK),
    Code.GET_CONSUMER_CONNECTION_LIST: _named(GET, group="consumerGroup"),
    Code.GET_PRODUCER_CONNECTION_LIST: _LOOK_AT_CLUSTER,
    Code.GET_ALL_PRODUCER_INFO: _LOOK_AT_CLUSTER,
    Code.GET_CONSUME_STATS: _consume_stats,
    Code.GET_BROKER_CONSUME_STATS: _LOOK_AT_CLUSTER,
    Code.QUERY_CONSUME_TIME_SPAN: _named(GET, topic="topic", group="group"),
    Code.QUERY_TOPICS_BY_CONSUMER: _named(GET, group="group"),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: _named(GET, topic="topic", group="group"),
    Code.QUERY_CORRECTION_OFFSET: _corrections,
    Code.GET_CONSUMER_RUNNING_INFO: _named(GET, group="consumerGroup"),
    Code.CONSUME_MESSAGE_DIRECTLY: _named(SUB, topic="topic", group="consumerGroup"),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: _named(UPDATE, topic="topic", group="group"),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _named(GET, topic="topic", group="group"),
    Code.CLONE_GROUP_OFFSET: _clone_offsets,
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: _named(UPDATE, topic="topic", group="group"),
    Code.GET_ALL_CONSUMER_OFFSET: _LOOK_AT_CLUSTER,
    Code.GET_ALL_DELAY_OFFSET: _LOOK_AT_CLUSTER,
    Code.GET_ALL_MESSAGE_REQUEST_MODE: _LOOK_AT_CLUSTER,
    Code.SET_MESSAGE_REQUEST_MODE: _CHANGE_CLUSTER,
    # brokers and the cluster
    Code.GET_BROKER_CONFIG: _LOOK_AT_CLUSTER,
    Code.GET_BROKER_RUNTIME_INFO: _LOOK_AT_CLUSTER,
    Code.GET_BROKER_HA_STATUS: _LOOK_AT_CLUSTER,
    Code.GET_BROKER_EPOCH_CACHE: _LOOK_AT_CLUSTER,
    Code.VIEW_BROKER_STATS_DATA: _LOOK_AT_CLUSTER,
    Code.GET_TIMER_CHECK_POINT: _LOOK_AT_CLUSTER,
    Code.GET_TIMER_METRICS: _LOOK_AT_CLUSTER,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: _CHANGE_CLUSTER,
    Code.CLEAN_UNUSED_TOPIC: _CHANGE_CLUSTER,
    Code.DELETE_EXPIRED_COMMITLOG: _CHANGE_CLUSTER,
    Code.GET_COLD_DATA_FLOW_CTR_INFO: _LOOK_AT_CLUSTER,
    Code.GET_BROKER_CLUSTER_INFO: _LOOK_AT_CLUSTER,
    Code.GET_BROKER_MEMBER_GROUP: _LOOK_AT_CLUSTER,
    Code.REGISTER_BROKER: _CHANGE_CLUSTER,
    Code.UNREGISTER_BROKER: _CHANGE_CLUSTER,
    Code.BROKER_HEARTBEAT: _CHANGE_CLUSTER,
    Code.QUERY_DATA_VERSION: _CHANGE_CLUSTER,  # it keeps a broker alive
    Code.NOTIFY_MIN_BROKER_ID_CHANGE: _CHANGE_CLUSTER,
    Code.NOTIFY_BROKER_ROLE_CHANGED: _CHANGE_CLUSTER,
    Code.EXCHANGE_BROKER_HA_INFO: _CHANGE_CLUSTER,
    Code.RESET_MASTER_FLUSH_OFFSET: _CHANGE_CLUSTER,
    Code.WIPE_WRITE_PERM_OF_BROKER: _CHANGE_CLUSTER,
    Code.ADD_WRITE_PERM_OF_BROKER: _CHANGE_CLUSTER,
    Code.DELETE_TOPIC_IN_NAMESRV: _CHANGE_CLUSTER,
    Code.REGISTER_TOPIC_IN_NAMESRV: _CHANGE_CLUSTER,
    Code.PUT_KV_CONFIG: _CHANGE_CLUSTER,
    Code.DELETE_KV_CONFIG: _CHANGE_CLUSTER,
    Code.GET_KV_CONFIG: _LOOK_AT_CLUSTER,
    Code.GET_KVLIST_BY_NAMESPACE: _LOOK_AT_CLUSTER,
    Code.GET_NAMESRV_CONFIG: _LOOK_AT_CLUSTER,
    # settings and accounts
    Code.UPDATE_BROKER_CONFIG: _administrator,
    Code.UPDATE_NAMESRV_CONFIG: _administrator,
    Code.UPDATE_AND_CREATE_ACL_CONFIG: _administrator,
    Code.DELETE_ACL_CONFIG: _administrator,
    Code.GET_BROKER_CLUSTER_ACL_INFO: _administrator,
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: _administrator,
    Code.GET_BROKER_CLUSTER_ACL_CONFIG: _administrator,
    Code.AUTH_CREATE_USER: _administrator,
    Code.AUTH_UPDATE_USER: _administrator,
    Code.AUTH_DELETE_USER: _administrator,
    Code.AUTH_GET_USER: _administrator,
    Code.AUTH_LIST_USER: _administrator,
    Code.AUTH_CREATE_ACL: _administrator,
    Code.AUTH_UPDATE_ACL: _administrator,
    Code.AUTH_DELETE_ACL: _administrator,
    Code.AUTH_GET_ACL: _administrator,
    Code.AUTH_LIST_ACL: _administrator,
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _cluster(CREATE | UPDATE),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _cluster(CREATE | UPDATE),
}
