"""Groups, consumers and producers, in the original's words."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import click

from kourou.cli.mqadmin.topic_verbs import read_file
from kourou.cli.mqadmin.verbs import Given, formatted, front, human_seconds, java_bool, java_map, printf, verb
from kourou.cli.output import as_text
from kourou.errors import MQError, NotFound

if TYPE_CHECKING:
    from kourou.admin import Connection
    from kourou.admin.offsets import Where
    from kourou.protocol.bodies import ConsumerRunningInfo, HeldQueueInfo, SubscriptionGroupConfig

PROGRESS = "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s"
PLACES = "%-40s  %-40s  %-40s"


@verb(
    "updateSubGroup",
    "b:brokerAddr",
    "c:clusterName",
    "g:groupName!",
    "s:consumeEnable",
    "m:consumeFromMinEnable",
    "d:consumeBroadcastEnable",
    "o:consumeMessageOrderly",
    "q:retryQueueNums",
    "r:retryMaxTimes",
    "p:groupRetryPolicy",
    "i:brokerId",
    "w:whichBrokerWhenConsumeSlowly",
    "a:notifyConsumerIdsChanged",
    ":attributes",
)
def update_sub_group(connection: Connection, given: Given) -> None:
    """Update or create subscription group."""
    from kourou.admin import groups
    from kourou.cli.mqadmin.topic_verbs import parsed_attributes
    from kourou.protocol.bodies import SubscriptionGroupConfig

    config = SubscriptionGroupConfig(  # the tool's own defaults, which are not the broker's
        group_name=given("groupName"),
        consume_enable=given.flag("consumeEnable", True),
        consume_from_min_enable=given.flag("consumeFromMinEnable"),
        consume_broadcast_enable=given.flag("consumeBroadcastEnable"),
        consume_message_orderly=given.flag("consumeMessageOrderly"),
        retry_queue_nums=given.number("retryQueueNums", 1),
        retry_max_times=given.number("retryMaxTimes", 16),
        broker_id=given.number("brokerId", 0),
        which_broker_when_consume_slowly=given.number("whichBrokerWhenConsumeSlowly", 1),
        notify_consumer_ids_changed_enable=given.flag("notifyConsumerIdsChanged", True),
        attributes={
            (f"+{name}" if value else f"-{name}"): value
            for name, value in parsed_attributes(given.get("attributes") or "").items()
        },
    )
    for outcome in groups.save(connection, config, given.brokers(connection)):
        if outcome.error is not None:
            raise outcome.error
        printf("create subscription group to %s success.", outcome.of.address)
    printf("%s", _group_text(config))


def _group_text(config: SubscriptionGroupConfig) -> str:
    return (
        "SubscriptionGroupConfig{"
        + ", ".join(f"{name}={value}" for name, value in _group_fields(config))
        + "}"
    )


def _group_fields(config: SubscriptionGroupConfig, nothing: str = "null") -> list[tuple[str, str]]:
    return [
        ("groupName", config.group_name),
        ("consumeEnable", java_bool(config.consume_enable)),
        ("consumeFromMinEnable", java_bool(config.consume_from_min_enable)),
        ("consumeBroadcastEnable", java_bool(config.consume_broadcast_enable)),
        ("consumeMessageOrderly", java_bool(config.consume_message_orderly)),
        ("retryQueueNums", str(config.retry_queue_nums)),
        ("retryMaxTimes", str(config.retry_max_times)),
        (
            "groupRetryPolicy",
            f"GroupRetryPolicy{{type={config.group_retry_policy.get('type', 'CUSTOMIZED')}, "
            "exponentialRetryPolicy=null, customizedRetryPolicy=null}",
        ),
        ("brokerId", str(config.broker_id)),
        ("whichBrokerWhenConsumeSlowly", str(config.which_broker_when_consume_slowly)),
        ("notifyConsumerIdsChangedEnable", java_bool(config.notify_consumer_ids_changed_enable)),
        ("groupSysFlag", str(config.group_sys_flag)),
        ("consumeTimeoutMinute", str(config.consume_timeout_minute)),
        (
            "subscriptionDataSet",
            str(config.subscription_data_set) if config.subscription_data_set else nothing,
        ),
        ("attributes", java_map(dict(config.attributes))),
    ]


@verb("updateSubGroupList", "b:brokerAddr", "c:clusterName", "f:filename!")
def update_sub_group_list(connection: Connection, given: Given) -> None:
    """Update or create subscription group in batch."""
    from kourou.protocol.admin_bodies import GroupConfigList
    from kourou.protocol.bodies import SubscriptionGroupConfig
    from kourou.protocol.codes import RequestCode
    from kourou.protocol.command import request
    from kourou.protocol.fastjson import decode

    data = read_file(given("filename"))
    if data is None:
        printf("the file path %s does not exists", given("filename"))
        return
    wanted = GroupConfigList(group_config_list=decode(data, list[SubscriptionGroupConfig]))
    for node in given.brokers(connection):
        command = request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=wanted.encode())
        connection.ask(node.address, command, "asked to save groups")
        what = "group config" if given.has("brokerAddr") else "subscription group config"
        printf("submit batch of %s to %s success, please check the result later.", what, node.address)


@verb("deleteSubGroup", "b:brokerAddr", "c:clusterName", "g:groupName!", "r:removeOffset")
def delete_sub_group(connection: Connection, given: Given) -> None:
    """Delete subscription group from broker."""
    from kourou.admin import groups

    name, nodes = given("groupName"), given.brokers(connection)
    groups.delete(connection, name, nodes, keep_offsets=not given.flag("removeOffset"))
    for node in nodes:
        if given.has("brokerAddr"):
            printf("delete subscription group [%s] from broker [%s] success.", name, node.address)
        else:
            printf(
                "delete subscription group [%s] from broker [%s] in cluster [%s] success.",
                name,
                node.address,
                given("clusterName"),
            )


@verb("getConsumerConfig", "g:groupName!")
def get_consumer_config(connection: Connection, given: Given) -> None:
    """Get consumer config by subscription group name."""
    from kourou.admin import groups

    for node, config in groups.show(connection, given("groupName")):
        line = "=" * 29
        printf("%s%s:%s%s", line, node.cluster, node.broker, line)
        for name, value in _group_fields(config, ""):
            printf("%-40s=  %s", name, value)


@verb(
    "setConsumeMode",
    "b:brokerAddr",
    "c:clusterName",
    "t:topicName!",
    "g:groupName!",
    "m:mode!",
    "q:popShareQueueNum",
)
def set_consume_mode(connection: Connection, given: Given) -> None:
    """Set consume message mode. pull/pop etc."""
    from kourou.protocol.admin_bodies import RequestModeWanted
    from kourou.protocol.codes import RequestCode
    from kourou.protocol.command import request

    wanted = RequestModeWanted(
        consumer_group=given("groupName"),
        topic=given("topicName"),
        mode=given("mode"),
        pop_share_queue_num=given.number("popShareQueueNum", 0),
    )
    for node in given.brokers(connection):
        command = request(RequestCode.SET_MESSAGE_REQUEST_MODE, body=wanted.encode())
        connection.ask(node.address, command, "asked to set how a group reads")
        printf("set consume mode to %s success.", node.address)
    printf(
        "topic[%s] group[%s] consume mode[%s] popShareQueueNum[%d]",
        wanted.topic,
        wanted.consumer_group,
        wanted.mode,
        wanted.pop_share_queue_num,
    )


# ---------------------------------------------------------------------------------------------- progress


@verb("consumerProgress", "g:groupName", "t:topicName", "s:showClientIP", "c:cluster")
def consumer_progress(connection: Connection, given: Given) -> None:
    """Query consumer's progress, speed."""
    group = given.get("groupName")
    if group is None:
        _progress_of_all(connection)
    else:
        _progress_of(connection, group, given.get("topicName"), given.flag("showClientIP"))


def _progress_of(connection: Connection, group: str, topic: str | None, shows_clients: bool) -> None:
    from kourou.admin import groups

    lag = groups.lag(connection, group, topic, owners=shows_clients)
    client = ("#Client IP",) if shows_clients else ()
    form = PROGRESS + (" %-20s" if shows_clients else "")
    headings = ("#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", *client)
    printf(f"{form}%s", *headings, "#Diff", "#Inflight", "#LastTime")
    for queue in lag.queues:
        owner = ((queue.client_id or "N/A").split("@")[0],) if shows_clients else ()
        printf(
            f"{form} %s",
            front(queue.topic, 64),
            front(queue.broker, 32),
            queue.queue_id,
            queue.broker_offset,
            queue.consumer_offset,
            *owner,
            queue.lag,
            queue.pull_offset - queue.consumer_offset,
            human_seconds(queue.last_consumed_ms),
        )
    printf("")
    printf("Consume TPS: %.2f", lag.tps)
    printf("Consume Diff Total: %d", lag.total)
    printf("Consume Inflight Total: %d", sum(each.pull_offset - each.consumer_offset for each in lag.queues))


def _progress_of_all(connection: Connection) -> None:
    """Of every group that has a retry topic, which is how the original finds them."""
    from kourou.admin import groups, topics
    from kourou.protocol.names import RETRY_PREFIX

    known = topics.names(connection, everything=True)
    names = [name.removeprefix(RETRY_PREFIX) for name in known if name.startswith(RETRY_PREFIX)]
    headings = ("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total")
    printf("%-64s  %-6s  %-24s %-5s  %-14s  %-7s  %s", *headings)
    for state in sorted(groups.states(connection, names), key=lambda each: (-each.members, -each.lag)):
        kind = {"CONSUME_ACTIVELY": "PULL", "CONSUME_PASSIVELY": "PUSH"}.get(state.consume_type, "")
        printf(
            "%-64s  %-6d  %-24s %-5s  %-14s  %-7d  %d",
            front(state.group, 64),
            state.members,
            state.version if state.members else "OFFLINE",
            kind,
            state.message_model,
            int(state.tps),
            state.lag,
        )


@verb("consumerConnection", "g:consumerGroup!", "b:brokerAddr")
def consumer_connection(connection: Connection, given: Given) -> None:
    """Query consumer's socket connection, client version and subscription."""
    from kourou.admin import groups

    members = groups.members(connection, given("consumerGroup"))
    printf("%-36s %-22s %-10s %s", "#ClientId", "#ClientAddr", "#Language", "#Version")
    for member in members.members:
        printf("%-36s %-22s %-10s %s", member.client_id, member.address, member.language, member.version)
    printf("")
    printf("Below is subscription:")
    printf("%-20s %s", "#Topic", "#SubExpression")
    for each in members.subscriptions:
        printf("%-20s %s", each.topic, each.expression)
    printf("")
    printf("ConsumeType: %s", members.consume_type)
    printf("MessageModel: %s", members.message_model)
    printf("ConsumeFromWhere: %s", members.consume_from)


@verb("consumerStatus", "g:consumerGroup!", "i:clientId", "b:brokerAddr", "s/jstack")
def consumer_status(connection: Connection, given: Given) -> None:
    """Query consumer's internal data structure."""
    from kourou.admin import groups

    group, client = given("consumerGroup"), given.get("clientId")
    if client is not None:
        info = groups.running_info(connection, group, client, stacks=given.has("jstack"))
        for line in running_info_lines(info):
            click.echo(as_text(line))
        return
    members = groups.members(connection, group)
    printf("%-10s %-40s %-20s %s", "#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile")
    folder = str(round(time.time() * 1000))
    wanted = set()
    for index, member in enumerate(members.members, 1):
        info = groups.running_info(connection, group, member.client_id, stacks=given.has("jstack"))
        wanted.add(frozenset((each.topic, each.sub_string) for each in info.subscription_set))
        path = _kept(folder, member.client_id, info)
        printf("%-10d %-40s %-20s %s", index, member.client_id, member.version, path)
    if len(wanted) <= 1:
        printf("\n\nSame subscription in the same group of consumer")
        printf("\nRebalance OK")
    else:
        printf("\n\nWARN: Different subscription in the same group of consumer!!!")


def _kept(folder: str, client_id: str, info: ConsumerRunningInfo) -> str:
    """What a member told, in a file below the current folder: as the original does."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, client_id.replace("/", "_"))
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(map(as_text, running_info_lines(info))) + "\n")
    return path


def running_info_lines(info: ConsumerRunningInfo) -> list[str]:
    """What a member tells of itself, as the original sets it."""
    queues = sorted(info.mq_table.items())
    lines = ["#Consumer Properties#"]
    lines += [formatted("%-40s: %s", name, value) for name, value in info.properties.items()]
    lines += ["", "", "#Consumer Subscription#"]
    lines += [
        formatted(
            "%03d Topic: %-40s ClassFilter: %-8s SubExpression: %s",
            *(number, each.topic, java_bool(each.class_filter_mode), each.sub_string),
        )
        for number, each in enumerate(info.subscription_set, 1)
    ]
    wide = "%-64s  %-32s  %-4s  %-20s"
    lines += [
        "",
        "",
        "#Consumer Offset#",
        formatted(wide, "#Topic", "#Broker Name", "#QID", "#Consumer Offset"),
    ]
    lines += [
        formatted(
            "%-32s  %-32s  %-4d  %-20d", queue.topic, queue.broker_name, queue.queue_id, held.commit_offset
        )
        for queue, held in queues
    ]
    lines += [
        "",
        "",
        "#Consumer MQ Detail#",
        formatted(wide, "#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo"),
    ]
    lines += [
        formatted("%-64s  %-32s  %-4d  %s", queue.topic, queue.broker_name, queue.queue_id, _held(held))
        for queue, held in queues
    ]
    narrow = "%-32s  %-32s  %-4s  %-20s"
    lines += [
        "",
        "",
        "#Consumer Pop Detail#",
        formatted(narrow, "#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo"),
    ]
    headings = ("#Topic", "#Pull RT", "#Pull TPS", "#Consume RT", "#ConsumeOK TPS", "#ConsumeFailed TPS")
    lines += ["", "", "#Consumer RT&TPS#"]
    lines.append(formatted("%-64s  %14s %14s %14s %14s %18s %25s", *headings, "#ConsumeFailedMsgsInHour"))
    lines += [
        formatted(
            "%-32s  %14.2f %14.2f %14.2f %14.2f %18.2f %25d",
            topic,
            each.pull_rt,
            each.pull_tps,
            each.consume_rt,
            each.consume_ok_tps,
            each.consume_failed_tps,
            each.consume_failed_msgs,
        )
        for topic, each in info.status_table.items()
    ]
    lines += ["", "", "#User Consume Info#"]
    if info.jstack:
        lines += ["", "", "#Consumer jstack#", *info.jstack.splitlines()]
    return lines


def _held(held: HeldQueueInfo) -> str:
    return (
        f"ProcessQueueInfo [commitOffset={held.commit_offset}, "
        f"cachedMsgMinOffset={held.cached_msg_min_offset}, "
        f"cachedMsgMaxOffset={held.cached_msg_max_offset}, cachedMsgCount={held.cached_msg_count}, "
        f"cachedMsgSizeInMiB={held.cached_msg_size_in_mib}, "
        f"transactionMsgMinOffset={held.transaction_msg_min_offset}, "
        f"transactionMsgMaxOffset={held.transaction_msg_max_offset}, "
        f"transactionMsgCount={held.transaction_msg_count}, locked={java_bool(held.locked)}, "
        f"tryUnlockTimes={held.try_unlock_times}, lastLockTimestamp={_digits(held.last_lock_timestamp)}, "
        f"droped={java_bool(held.droped)}, lastPullTimestamp={_digits(held.last_pull_timestamp)}, "
        f"lastConsumeTimestamp={_digits(held.last_consume_timestamp)}]"
    )


def _digits(ms: int) -> str:
    """20261116082236954"""
    from datetime import datetime

    return f"{datetime.fromtimestamp(ms / 1000):%Y%m%d%H%M%S}{ms % 1000:03d}"


@verb("producerConnection", "g:producerGroup!", "t:topic!")
def producer_connection(connection: Connection, given: Given) -> None:
    """Query producer's socket connection and client version."""
    from kourou.admin import producers

    seen: dict[str, object] = {}
    found = [
        each
        for each in producers.connected(connection, given("producerGroup"))
        if seen.setdefault(each.client_id, each) is each
    ]
    for number, each in enumerate(found, 1):
        printf("%04d  %-32s %-22s %-8s %s", number, each.client_id, each.address, each.language, each.version)


@verb("producer", "b:broker!")
def producer(connection: Connection, given: Given) -> None:
    """Query producer's instances, connection, status, etc."""
    from kourou.protocol.admin_bodies import ProducerTable
    from kourou.protocol.codes import RequestCode
    from kourou.protocol.command import request

    reply = connection.ask(
        given("broker"), request(RequestCode.GET_ALL_PRODUCER_INFO), "asked for its producers"
    )
    for group, found in ProducerTable.decode(reply.body).data.items():
        if not found:
            printf("producer group (%s) instances are empty", group)
        for each in found:
            printf(
                "producer group (%s) instance : clientId=%s,remoteIP=/%s, language=%s, version=%d, "
                "lastUpdateTimestamp=%d",
                group,
                each.client_id,
                each.remote_ip.lstrip("/"),
                each.language,
                each.version,
                each.last_update_timestamp,
            )


# ----------------------------------------------------------------------------------------------- offsets


@verb("cloneGroupOffset", "s:srcGroup!", "d:destGroup!", "t:topic!", "o:offline")
def clone_group_offset(connection: Connection, given: Given) -> None:
    """Clone offset from other group."""
    from kourou.admin import offsets

    source, target, topic = given("srcGroup"), given("destGroup"), given("topic")
    offsets.apply(connection, offsets.clone(connection, source, target, topic))
    printf("clone group offset success. srcGroup[%s], destGroup=[%s], topic[%s]", source, target, topic)


@verb(
    "resetOffsetByTime",
    "g:group!",
    "t:topic!",
    "s:timestamp!",
    "f:force",
    "c:cluster",
    "b:broker",
    "q:queue",
    "o:offset",
)
def reset_offset_by_time(connection: Connection, given: Given) -> None:
    """Reset consumer offset by timestamp(without client restart)."""
    from kourou.admin import offsets

    group, topic, text = given("group"), given("topic"), given("timestamp")
    ms = given.moment_ms("timestamp", 0)
    broker, queue = given.get("broker"), given.number("queue", -1)
    if broker is not None and queue >= 0:
        printf(
            "start reset consumer offset by specified, group[%s], topic[%s], queueId[%s], broker[%s], "
            "timestamp(string)[%s], timestamp(long)[%s]",
            *(group, topic, str(queue), broker, text, str(ms)),
        )
        where: Where = given.number("offset") if given.has("offset") else _where(ms)
        (move,) = offsets.plan(connection, group, topic, where, queues=[queue], broker=broker)
        printf("reset consumer offset to %d", move.after)
        offsets.apply(connection, [move])
        return
    moves = offsets.plan(connection, group, topic, _where(ms))
    if not given.flag("force", True):
        moves = [move for move in moves if move.before is None or move.after < move.before]
    offsets.apply(connection, moves)
    printf(
        "start reset consumer offset by specified, group[%s], topic[%s], force[%s], timestamp(string)[%s], "
        "timestamp(long)[%s]",
        *(group, topic, java_bool(given.flag("force", True)), text, str(ms)),
    )
    printf(PLACES, "#brokerName", "#queueId", "#offset")
    for move in moves:
        printf(PLACES, front(move.broker, 32), move.queue_id, move.after)


def _where(ms: int) -> Where:
    from datetime import UTC, datetime

    return "latest" if ms < 0 else datetime.fromtimestamp(ms / 1000, UTC)


@verb("skipAccumulatedMessage", "g:group!", "t:topic!", "f:force", "c:cluster")
def skip_accumulated_message(connection: Connection, given: Given) -> None:
    """Skip all messages that are accumulated (not consumed) currently."""
    from kourou.admin import offsets

    moves = offsets.apply(connection, offsets.skip(connection, given("group"), given("topic")))
    printf(PLACES, "#brokerName", "#queueId", "#offset")
    for move in moves:
        printf(PLACES, front(move.broker, 32), move.queue_id, move.after)


@verb("getConsumerStatus", "g:group!", "t:topic!", "i:originClientId")
def get_consumer_status(connection: Connection, given: Given) -> None:
    """Get consumer status from client."""
    from kourou.admin import topics
    from kourou.protocol.admin_bodies import ConsumerStatus
    from kourou.protocol.admin_headers import ConsumerStatusAsked
    from kourou.protocol.codes import RequestCode
    from kourou.protocol.command import request

    group, topic, client = given("group"), given("topic"), given.get("originClientId")
    part = topics.at_brokers(connection, topic)[0]
    header = ConsumerStatusAsked(topic, group, client)
    reply = connection.ask(
        part.address,
        request(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header),
        f"asked how far the members of group '{group}' are",
        timeout=15,
    )
    printf(
        "get consumer status from client. group=%s, topic=%s, originClientId=%s", group, topic, client or ""
    )
    printf("%-50s  %-15s  %-15s  %-20s", "#clientId", "#brokerName", "#queueId", "#offset")
    for client_id, places in ConsumerStatus.decode(reply.body).consumer_table.items():
        for queue, offset in sorted(places.items()):
            printf(
                "%-50s  %-15s  %-15d  %-20d", front(client_id, 50), queue.broker_name, queue.queue_id, offset
            )


# ------------------------------------------------------------------------------------------------ figures


@verb("brokerConsumeStats", "b:brokerAddr!", "t:timeoutMillis", "l:level", "o:order")
def broker_consume_stats(connection: Connection, given: Given) -> None:
    """Fetch broker consume stats data."""
    from kourou.admin import brokers

    found = brokers.consume_stats(connection, given("brokerAddr"), is_order=given.flag("order"))
    least = given.number("level", 0)
    headings = ("#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff")
    printf("%-64s  %-64s  %-32s  %-4s  %-20s  %-20s  %-20s  %s", *headings, "#LastTime")
    for entry in found.consume_stats_list:
        for group, stats in entry.items():
            for queue, progress in sorted(pair for each in stats for pair in each.offset_table.items()):
                diff = progress.broker_offset - progress.consumer_offset
                if diff < least or progress.last_timestamp <= 0:
                    continue
                printf(
                    "%-64s  %-64s  %-32s  %-4d  %-20d  %-20d  %-20d  %s",
                    front(queue.topic, 64),
                    group,
                    front(queue.broker_name, 32),
                    queue.queue_id,
                    progress.broker_offset,
                    progress.consumer_offset,
                    diff,
                    human_seconds(progress.last_timestamp),
                )
    printf("")
    printf("Diff Total: %d", found.total_diff)


@verb("statsAll", "a/activeTopic", "t:topic")
def stats_all(connection: Connection, given: Given) -> None:
    """Topic and Consumer tps stats."""
    from kourou.admin import topics

    headings = (
        "#Topic",
        "#Consumer Group",
        "#Accumulation",
        "#InTPS",
        "#OutTPS",
        "#InMsg24Hour",
        "#OutMsg24Hour",
    )
    printf("%-64s  %-64s %12s %11s %11s %14s %14s", *headings)
    for topic in topics.names(connection, everything=True):
        if topic.startswith(("%RETRY%", "%DLQ%")) or given.get("topic") not in (None, topic):
            continue
        try:
            _stats_of(connection, topic, given.has("activeTopic"))
        except MQError:  # it went while we looked, or its broker did
            continue


def _stats_of(connection: Connection, topic: str, only_active: bool) -> None:
    from kourou.admin import groups, topics

    addresses = [part.address for part in topics.at_brokers(connection, topic)]
    in_tps, in_day = _put_or_got(connection, addresses, "TOPIC_PUT_NUMS", topic)
    consumers = topics.groups_of(connection, topic)
    for group in consumers:
        out_tps, out_day = _put_or_got(connection, addresses, "GROUP_GET_NUMS", f"{topic}@{group}")
        try:
            behind = max(0, groups.lag(connection, group, topic).total)
        except MQError:
            behind = 0
        if not only_active or in_day or out_day:
            printf(
                "%-64s  %-64s %12d %11.2f %11.2f %14d %14d",
                *(front(topic, 64), front(group, 64), behind, in_tps, out_tps, in_day, out_day),
            )
    if not consumers and (not only_active or in_day):
        printf(
            "%-64s  %-64s %12d %11.2f %11s %14d %14s",
            front(topic, 64),
            "",
            0,
            in_tps,
            "",
            in_day,
            "NO_CONSUMER",
        )


def _put_or_got(connection: Connection, addresses: list[str], name: str, key: str) -> tuple[float, int]:
    """Messages a second over the last minute, and messages in the last day."""
    from kourou.admin import brokers
    from kourou.errors import Refused

    tps, day = 0.0, 0
    for address in addresses:
        try:
            found = brokers.stats_item(connection, address, name, key)
        except (NotFound, Refused):
            continue
        tps += found.stats_minute.tps
        day += found.stats_day.sum or found.stats_hour.sum or found.stats_minute.sum
    return tps, day
