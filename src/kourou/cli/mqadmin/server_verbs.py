"""Brokers, name servers and the cluster, in the original's words."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from kourou.cli.mqadmin.verbs import Given, formatted, human, java_bool, printf, verb
from kourou.cli.output import as_json, note
from kourou.errors import ConfigError

if TYPE_CHECKING:
    from kourou.admin import Connection
    from kourou.admin.cluster import NodeState

CLUSTER = "%-22s  %-22s  %-4s  %-22s %-16s  %16s  %30s  %-22s  "
EXPORT_FOLDER = "rocketmq-export"


@verb("clusterList", "m/moreStats", "i:interval", "c:clusterName")
def cluster_list(connection: Connection, given: Given) -> None:
    """List cluster infos."""
    from kourou.admin import cluster as clusters

    seconds = given.number("interval", 0)
    while True:
        states = clusters.state(connection, given.get("clusterName"))
        (_totals if given.has("moreStats") else _rates)(states)
        for state in states:
            if state.error is not None:
                note(state.error)
        if not seconds:
            return
        time.sleep(seconds)


def _rates(states: list[NodeState]) -> None:
    headings = ("#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version", "#InTPS(LOAD)", "#OutTPS(LOAD)")
    rest = ("#Timer(Progress)", "#PCWait(ms)", "#Hour", "#SPACE", "#ACTIVATED")
    printf(CLUSTER + "%-11s  %-12s  %-8s  %-10s", *headings, *rest)
    now_ms = time.time() * 1000
    for state in states:
        runtime = state.runtime
        table = runtime.table if runtime is not None else {}
        earliest = runtime.earliest_message_ms if runtime is not None else 0
        timers = formatted(
            "%s-%s(%.1fw, %.1f, %.1f)",
            table.get("timerReadBehind", "0"),
            table.get("timerOffsetBehind", "0"),
            (runtime.timers_waiting if runtime is not None else 0) / 10_000,
            _number(table.get("timerEnqueueTps")),
            _number(table.get("timerDequeueTps")),
        )
        printf(
            CLUSTER + "%11s  %-12s  %-8s  %10s",
            state.node.cluster,
            state.node.broker,
            str(state.node.broker_id),
            state.node.address,
            runtime.version if runtime is not None else "",
            f"{runtime.in_tps if runtime is not None else 0:9.2f}({_pool(table, 'send')})",
            f"{runtime.out_tps if runtime is not None else 0:9.2f}"
            f"({_pool(table, 'pull')}|{_pool(table, 'ack')})",
            timers,
            table.get("pageCacheLockTimeMills", ""),
            f"{(now_ms - earliest) / 3_600_000 if earliest > 0 else 0:2.2f}",
            f"{runtime.disk_ratio if runtime is not None else 0:.4f}",
            java_bool(runtime is not None and runtime.is_active),
        )


def _pool(table: Mapping[str, str], name: str) -> str:
    """How many wait in one of the broker's queues, and how long the first of them has."""
    nothing = "N" if name == "ack" else ""
    size = table.get(f"{name}ThreadPoolQueueSize", nothing)
    return f"{size},{table.get(f'{name}ThreadPoolQueueHeadWaitTimeMills', nothing)}ms"


def _number(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


def _totals(states: list[NodeState]) -> None:
    form = "%-16s  %-32s %14s %14s %14s %14s"
    headings = (
        "#Cluster Name",
        "#Broker Name",
        "#InTotalYest",
        "#OutTotalYest",
        "#InTotalToday",
        "#OutTotalToday",
    )
    printf(form, *headings)
    for state in states:
        runtime = state.runtime
        if not state.node.is_master or runtime is None:
            continue
        figures = (runtime.put_yesterday, runtime.got_yesterday, runtime.put_today, runtime.got_today)
        printf(form, state.node.cluster, state.node.broker, *figures)


@verb("clusterRT", "a:amount", "s:size", "c:cluster", "p:print log", "m:machine room", "i:interval")
def cluster_rt(connection: Connection, given: Given) -> None:
    """List All clusters Message Send RT."""
    from kourou.admin import cluster as clusters
    from kourou.client import Producer
    from kourou.errors import MQError
    from kourou.message import Message

    form = "%-24s  %-24s  %-8s  %-16s  %-16s"
    printf(
        "%-24s  %-24s  %-4s  %-8s  %-8s",
        "#Cluster Name",
        "#Broker Name",
        "#RT",
        "#successCount",
        "#failCount",
    )
    amount, size = given.number("amount", 100), given.number("size", 128)
    with Producer(
        "kourou-cluster-rt", connection.name_server, access=connection.access, tls=connection.tls
    ) as producer:
        for cluster, names in clusters.clusters(connection).items():
            if given.get("cluster") not in (None, cluster):
                continue
            for name in names:
                sent, failed, spent = 0, 0, 0.0
                for _ in range(amount):
                    begun = time.perf_counter()
                    try:
                        producer.send(Message(name, bytes(size)))
                        sent += 1
                    except MQError:
                        failed += 1
                    spent += (time.perf_counter() - begun) * 1000
                printf(form, cluster, name, f"{spent / amount:.2f}", str(sent), str(failed))


# ------------------------------------------------------------------------------------------------ brokers


@verb("brokerStatus", "b:brokerAddr", "c:clusterName")
def broker_status(connection: Connection, given: Given) -> None:
    """Fetch broker runtime status data."""
    from kourou.admin import brokers

    for node in given.brokers(connection):
        for key, value in sorted(brokers.runtime(connection, node.address).table.items()):
            if given.has("brokerAddr"):
                printf("%-32s: %s", key, value)
            else:
                printf("%-24s %-32s: %s", node.address, key, value)


@verb("getBrokerConfig", "b:brokerAddr", "c:clusterName")
def get_broker_config(connection: Connection, given: Given) -> None:
    """Get broker config by cluster or special broker."""
    from kourou.admin import brokers

    for node in given.brokers(connection):
        role = "" if given.has("brokerAddr") else "Master: "
        printf("============%s%s============", role, node.address)
        for key, value in sorted(brokers.configuration(connection, node.address).items()):
            printf("%-50s=  %s", key, value)
        printf("")


@verb("updateBrokerConfig", "b:brokerAddr", "c:clusterName", "a:updateAllBroker", "k:key!", "v:value!")
def update_broker_config(connection: Connection, given: Given) -> None:
    """Update broker's config."""
    from kourou.admin import brokers

    for node in given.brokers(connection):
        brokers.configure(connection, node.address, {given("key"): given("value")})
        printf("update broker config success, %s", node.address)


def _cleaned(connection: Connection, given: Given, what: str) -> None:
    from kourou.admin import brokers
    from kourou.admin import cluster as clusters

    clean = getattr(brokers, what)
    if given.has("brokerAddr") or given.has("cluster"):
        nodes = given.brokers(connection)
    else:
        nodes = clusters.masters(connection)
    for node in nodes:
        clean(connection, node.address)
    printf("success")


@verb("cleanExpiredCQ", "b:brokerAddr", "c:cluster")
def clean_expired_cq(connection: Connection, given: Given) -> None:
    """Clean expired ConsumeQueue on broker."""
    _cleaned(connection, given, "clean_expired_queues")


@verb("cleanUnusedTopic", "b:brokerAddr", "c:cluster")
def clean_unused_topic(connection: Connection, given: Given) -> None:
    """Clean unused topic on broker."""
    _cleaned(connection, given, "clean_unused_topics")


@verb("deleteExpiredCommitLog", "b:brokerAddr", "c:cluster")
def delete_expired_commit_log(connection: Connection, given: Given) -> None:
    """Delete expired CommitLog files."""
    _cleaned(connection, given, "delete_expired_log")


@verb("haStatus", "c:clusterName", "b:brokerAddr", "i:interval")
def ha_status(connection: Connection, given: Given) -> None:
    """Fetch ha runtime status data."""
    from kourou.admin import brokers

    for node in given.brokers(connection):
        found = brokers.ha_status(connection, node.address)
        if found.master:
            replicas = found.ha_connection_info
            printf("\n#MasterAddr\t%s", node.address)
            printf("#MasterCommitLogMaxOffset\t%d", found.master_commit_log_max_offset)
            printf("#SlaveNum\t%d", len(replicas))
            printf("#InSyncSlaveNum\t%d", found.in_sync_slave_nums)
            headings = ("#SlaveAddr", "#SlaveAckOffset", "#Diff", "#TransferSpeed(KB/s)", "#Status")
            printf("%-32s  %-16s %16s %16s %16s %16s", *headings, "#TransferFromWhere")
            for each in replicas:
                printf(
                    "%-32s  %-16d %16d %16.2f %16s %16d",
                    each.addr,
                    each.slave_ack_offset,
                    each.diff,
                    each.transferred_byte_in_second / 1024,
                    "OK" if each.in_sync else "Fall Behind",
                    each.transfer_from_where,
                )
            continue
        client = found.ha_client_runtime_info
        printf("\n#MasterAddr\t%s", client.master_addr)
        printf("#CommitLogMaxOffset\t%d", client.max_offset)
        printf("#TransferSpeed(KB/s)\t%.2f", client.transferred_byte_in_second / 1024)
        printf("#LastReadTime\t%s", human(client.last_read_timestamp))
        printf("#LastWriteTime\t%s", human(client.last_write_timestamp))
        printf("#MasterFlushOffset\t%s", str(client.master_flush_offset))


@verb("resetMasterFlushOffset", "b:brokerAddr!", "o:offset!")
def reset_master_flush_offset(connection: Connection, given: Given) -> None:
    """Reset master flush offset in slave."""
    from kourou.protocol.codes import RequestCode
    from kourou.protocol.command import Command

    fields = {"masterFlushOffset": str(given.number("offset"))}
    connection.ask(
        given("brokerAddr"),
        Command(RequestCode.RESET_MASTER_FLUSH_OFFSET, fields),
        "asked to reset an offset",
    )
    printf("reset master flush offset to %d success", given.number("offset"))


# ------------------------------------------------------------------------------------------- name servers


@verb("updateKvConfig", "s:namespace!", "k:key!", "v:value!")
def update_kv_config(connection: Connection, given: Given) -> None:
    """Create or update KV config."""
    from kourou.admin import nameservers

    nameservers.kv_put(connection, given("namespace"), given("key"), given("value"))
    printf("create or update kv config to namespace success.")


@verb("deleteKvConfig", "s:namespace!", "k:key!")
def delete_kv_config(connection: Connection, given: Given) -> None:
    """Delete KV config."""
    from kourou.admin import nameservers

    nameservers.kv_delete(connection, given("namespace"), given("key"))
    printf("delete kv config from namespace success.")


@verb("wipeWritePerm", "b:brokerName!")
def wipe_write_perm(connection: Connection, given: Given) -> None:
    """Wipe write perm of broker in all name server you defined in the -n param."""
    from kourou.admin import nameservers

    for address, count in nameservers.wipe_write(connection, given("brokerName")).items():
        printf("wipe write perm of broker[%s] in name server[%s] OK, %d", given("brokerName"), address, count)


@verb("addWritePerm", "b:brokerName!")
def add_write_perm(connection: Connection, given: Given) -> None:
    """Add write perm of broker in all name server you defined in the -n param."""
    from kourou.admin import nameservers

    for address, count in nameservers.add_write(connection, given("brokerName")).items():
        printf("add write perm of broker[%s] in name server[%s] OK, %d", given("brokerName"), address, count)


@verb("getNamesrvConfig")
def get_namesrv_config(connection: Connection, given: Given) -> None:
    """Get configs of name server."""
    from kourou.admin import nameservers

    for address in nameservers.addresses(connection):
        printf("============%s============", address)
        for key, value in sorted(nameservers.configuration(connection, address).items()):
            printf("%-50s=  %s", key, value)


@verb("updateNamesrvConfig", "k:key!", "v:value!")
def update_namesrv_config(connection: Connection, given: Given) -> None:
    """Update configs of name server."""
    from kourou.admin import nameservers

    told = nameservers.configure(connection, {given("key"): given("value")})
    printf("update name server config success![%s]", ", ".join(told))
    printf("%s : %s", given("key"), given("value"))


# -------------------------------------------------------------------------------------------------- export


@verb(
    "exportMetadata",
    "c:clusterName",
    "b:brokerAddr",
    "f:filePath",
    "t/topic",
    "g/subscriptionGroup",
    "s/specialTopic",
)
def export_metadata(connection: Connection, given: Given) -> None:
    """Export metadata."""
    from kourou.admin import groups, topics
    from kourou.protocol.fastjson import dumps

    topic_table: dict[str, Any] = {}
    group_table: dict[str, Any] = {}
    for node in given.brokers(connection):
        for name, topic in topics.table(connection, node).items():
            kind = topics.kind_of(name, topic.attributes, {node.cluster, node.broker})
            if kind == "system" or (kind in ("retry", "dlq") and not given.has("specialTopic")):
                continue
            known = topic_table.get(name)
            if known is not None:
                topic.read_queue_nums += known.read_queue_nums
                topic.write_queue_nums += known.write_queue_nums
            topic_table[name] = topic
        for name, group in groups.table(connection, node).items():
            if groups.is_system_group(name):
                continue
            known = group_table.get(name)
            if known is not None:
                group.retry_queue_nums += known.retry_queue_nums
            group_table[name] = group
    result: dict[str, Any] = {"exportTime": connection.clock.now_ms()}
    file = "metadata.json"
    if not given.has("subscriptionGroup"):
        result["topicConfigTable"] = topic_table
    if not given.has("topic"):
        result["subscriptionGroupTable"] = group_table
    if given.has("topic"):
        file = "topic.json"
    elif given.has("subscriptionGroup"):
        file = "subscriptionGroup.json"
    _export(given, file, json.loads(dumps(result)))


@verb("exportConfigs", "c:clusterName!", "f:filePath")
def export_configs(connection: Connection, given: Given) -> None:
    """Export configs."""
    from kourou.admin import brokers, nameservers
    from kourou.admin import cluster as clusters

    nodes = clusters.nodes(connection, given("clusterName"))
    configs = {}
    for node in nodes:
        if node.is_master:
            found = brokers.configuration(connection, node.address)
            configs[node.broker] = {key: found[key] for key in EXPORTED_KEYS if key in found}
    scale = {
        "namesrvSize": len(nameservers.addresses(connection)),
        "masterBrokerSize": sum(node.is_master for node in nodes),
        "slaveBrokerSize": sum(not node.is_master for node in nodes),
    }
    _export(given, "configs.json", {"brokerConfigs": configs, "clusterScale": scale})


EXPORTED_KEYS = (
    *("brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime", "filterServerNums"),
    *(
        "flushDiskType",
        "maxMessageSize",
        "messageDelayLevel",
        "msgTraceTopicName",
        "slaveReadEnable",
        "traceOn",
    ),
    *("traceTopicEnable", "useTLS", "autoCreateTopicEnable", "autoCreateSubscriptionGroup"),
)


@verb("exportMetrics", "c:clusterName!", "f:filePath")
def export_metrics(connection: Connection, given: Given) -> None:
    """Export metrics."""
    from kourou.admin import brokers, groups, topics
    from kourou.admin import cluster as clusters

    report: dict[str, Any] = {}
    total_tps = {"totalNormalInTps": 0.0, "totalNormalOutTps": 0.0}
    total_day = {"normalOneDayInNum": 0, "normalOneDayOutNum": 0}
    for node in clusters.masters(connection, given("clusterName")):
        runtime = brokers.runtime(connection, node.address)
        table = runtime.table
        total_tps["totalNormalInTps"] += runtime.in_tps
        total_tps["totalNormalOutTps"] += runtime.out_tps
        total_day["normalOneDayInNum"] += runtime.put_today
        total_day["normalOneDayOutNum"] += runtime.got_today
        own = {node.cluster, node.broker}
        kinds = [
            topics.kind_of(name, each.attributes, own)
            for name, each in topics.table(connection, node).items()
        ]
        report[node.broker] = {
            "runtimeEnv": {"cpuNum": None, "totalMemKBytes": table.get("totalMemKBytes")},
            "runtimeQuota": {
                "diskRatio": {
                    "commitLogDiskRatio": table.get("commitLogDiskRatio"),
                    "consumeQueueDiskRatio": table.get("consumeQueueDiskRatio"),
                },
                "tps": {"normalInTps": runtime.in_tps, "normalOutTps": runtime.out_tps},
                "oneDayNum": {
                    "normalOneDayInNum": runtime.put_today,
                    "normalOneDayOutNum": runtime.got_today,
                },
                "messageAverageSize": table.get("putMessageAverageSize"),
                "topicSize": sum(kind not in ("system", "retry", "dlq") for kind in kinds),
                "groupSize": sum(not groups.is_system_group(name) for name in groups.table(connection, node)),
            },
            "runtimeVersion": {"rocketmqVersion": runtime.version, "clientInfo": []},
        }
    total = {"totalTps": total_tps, "totalOneDayNum": total_day}
    _export(given, "metrics.json", {"evaluateReport": report, "totalData": total})


def _export(given: Given, file: str, content: object) -> None:
    """Into the folder behind -f; without it, into one below the current folder."""
    folder = given.get("filePath") or EXPORT_FOLDER
    if not folder:
        raise ConfigError("-f is empty")
    os.makedirs(folder, exist_ok=True)
    path = f"{folder}/{file}"
    with open(path, "w", encoding="utf-8") as out:
        out.write(as_json(content, indent=2) + "\n")
    click.echo(f"export {path} success")
