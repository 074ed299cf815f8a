"""Topics, in the original's words."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click
from msgspec import UNSET

from kourou.cli.mqadmin.verbs import Given, front, human, java_bool, java_map, printf, verb
from kourou.cli.output import as_text
from kourou.errors import ConfigError, NotFound, Refused

if TYPE_CHECKING:
    from kourou.admin import Connection
    from kourou.protocol.bodies import TopicConfig, TopicRouteData

ROUTE = "%-45s %-32s %-50s %-10s %-11s %-5s"


@verb(
    "updateTopic",
    "b:brokerAddr",
    "c:clusterName",
    "a:attributes",
    "t:topic!",
    "r:readQueueNums",
    "w:writeQueueNums",
    "p:perm",
    "o:order",
    "u:unit",
    "s:hasUnitSub",
)
def update_topic(connection: Connection, given: Given) -> None:
    """Update or create topic."""
    from kourou.admin import nameservers, topics
    from kourou.protocol.bodies import TopicConfig

    unit, has_unit_sub = given.flag("unit"), given.flag("hasUnitSub")
    wanted = topics.Wanted(
        given("topic"),
        given.number("readQueueNums", 8),
        given.number("writeQueueNums", 8),
        given.number("perm", 6),
        given.flag("order"),
        (1 if unit else 0) | (2 if has_unit_sub else 0),
        parsed_attributes(given.get("attributes") or ""),
    )
    nodes = given.brokers(connection)
    for outcome in topics.save(connection, wanted, nodes):
        if outcome.error is not None:
            raise outcome.error
        printf("create topic to %s success.", outcome.of.address)
    if wanted.order:
        conf = ";".join(f"{node.broker}:{wanted.write_queues}" for node in nodes)
        nameservers.kv_put(connection, topics.ORDER_NAMESPACE, wanted.name, conf)
        printf("set cluster orderConf. isOrder=true, orderConf=[%s]", conf)
    config = TopicConfig(
        topic_name=wanted.name,
        read_queue_nums=wanted.read_queues,
        write_queue_nums=wanted.write_queues,
        perm=wanted.perm,
        topic_sys_flag=wanted.sys_flag,
        order=wanted.order,
        attributes={f"+{name}": value for name, value in wanted.attributes.items()},
    )
    printf("%s", topic_config(config))


def parsed_attributes(text: str) -> dict[str, str]:
    """+a=b,+c=d,-e"""
    changes = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        changes[name.lstrip("+-")] = value if part.startswith("+") else ""
    return changes


def topic_config(config: TopicConfig) -> str:
    perm = (
        ("R" if config.perm & 4 else "-")
        + ("W" if config.perm & 2 else "-")
        + ("X" if config.perm & 1 else "-")
    )
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm}, topicFilterType={config.topic_filter_type}, "
        f"topicSysFlag={config.topic_sys_flag}, order={java_bool(config.order)}, "
        f"attributes={java_map(dict(config.attributes))}]"
    )


@verb("updateTopicList", "b:brokerAddr", "c:clusterName", "f:filename!")
def update_topic_list(connection: Connection, given: Given) -> None:
    """Create or update topic in batch."""
    from kourou.protocol.admin_bodies import TopicConfigList
    from kourou.protocol.bodies import TopicConfig
    from kourou.protocol.codes import RequestCode
    from kourou.protocol.command import request
    from kourou.protocol.fastjson import decode

    data = read_file(given("filename"))
    if data is None:
        printf("the file path %s does not exists", given("filename"))
        return
    wanted = TopicConfigList(topic_config_list=decode(data, list[TopicConfig]))
    for node in given.brokers(connection):
        command = request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=wanted.encode())
        connection.ask(node.address, command, "asked to save topics")
        printf("submit batch of topic config to %s success, please check the result later.", node.address)


def read_file(path: str) -> bytes | None:
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        return file.read()


@verb("updateTopicPerm", "b:brokerAddr", "c:clusterName", "t:topic!", "p:perm!")
def update_topic_perm(connection: Connection, given: Given) -> None:
    """Update topic perm."""
    from kourou.admin import topics

    topic, perm = given("topic"), given.number("perm")
    addresses = {node.address for node in given.brokers(connection)}
    parts = [part for part in topics.show(connection, topic) if part.address in addresses]
    if not parts:
        raise NotFound(1, "updateTopicPerm error broker not exit or broker is not master!.")
    for part in parts:
        if given.has("brokerAddr") and part.perm == perm:
            printf("new perm equals to the old one!")
            return
        topics.set_permission(connection, topic, perm, part.address)
        printf("update topic perm from %s to %s in %s success.", part.perm, perm, part.address)
        if given.has("brokerAddr"):
            printf("%s.", topic_config(topics.config_at(connection, part.address, topic)))


@verb("deleteTopic", "t:topic!", "c:clusterName!")
def delete_topic(connection: Connection, given: Given) -> None:
    """Delete topic from broker and NameServer."""
    from kourou.admin import topics

    topics.delete(connection, given("topic"), given("clusterName"))
    printf("delete topic [%s] from cluster [%s] success.", given("topic"), given("clusterName"))
    printf("delete topic [%s] from NameServer success.", given("topic"))


@verb("topicList", "c/clusterModel")
def topic_list(connection: Connection, given: Given) -> None:
    """Fetch all topic list from name server."""
    from kourou.admin import topics

    names = topics.names(connection, everything=True)
    if not given.has("clusterModel"):
        for name in names:
            printf("%s", name)
        return
    printf("%-20s  %-48s  %-48s", "#Cluster Name", "#Topic", "#Consumer Group")
    for name in names:
        if name.startswith(("%RETRY%", "%DLQ%")):
            continue
        try:
            parts, groups = topics.at_brokers(connection, name), topics.groups_of(connection, name)
        except (NotFound, Refused):
            continue
        for cluster in sorted({part.cluster for part in parts}) or [""]:
            for group in groups or [""]:
                printf("%-20s  %-64s  %-64s", front(cluster, 20), front(name, 64), front(group, 64))


@verb("topicRoute", "t:topic!", "l/list")
def topic_route(connection: Connection, given: Given) -> None:
    """Examine topic route info."""
    from kourou.admin import topics

    route = topics.route(connection, given("topic"))
    if not given.has("list"):
        _print_json(route)
        return
    brokers = {broker.broker_name: broker for broker in route.broker_datas}
    printf(ROUTE, "#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm")
    for part in sorted(route.queue_datas, key=lambda each: each.broker_name):
        broker = brokers.get(part.broker_name)
        printf(
            ROUTE,
            broker.cluster if broker else "",
            part.broker_name,
            java_map(dict(broker.broker_addrs)) if broker else "",
            part.read_queue_nums,
            part.write_queue_nums,
            part.perm,
        )
    printf("%s", "-" * 158)
    read = sum(part.read_queue_nums for part in route.queue_datas)
    write = sum(part.write_queue_nums for part in route.queue_datas)
    printf(ROUTE, "Total:", len({part.broker_name for part in route.queue_datas}), "", read, write, "")


def _print_json(route: TopicRouteData) -> None:
    """As the original's JSON library sets it: tabs, and integer keys bare on the line of their brace."""
    brokers = []
    for broker in route.broker_datas:
        addresses = ",".join(
            f'{number}:"{address}"' for number, address in sorted(broker.broker_addrs.items())
        )
        brokers.append(
            "\t\t{\n"
            f'\t\t\t"brokerAddrs":{{{addresses}\n\t\t\t}},\n'
            f'\t\t\t"brokerName":"{broker.broker_name}",\n'
            f'\t\t\t"cluster":"{broker.cluster}",\n'
            f'\t\t\t"enableActingMaster":{java_bool(broker.enable_acting_master)}\n'
            "\t\t}"
        )
    queues = [
        "\t\t{\n"
        f'\t\t\t"brokerName":"{part.broker_name}",\n'
        f'\t\t\t"perm":{part.perm},\n'
        f'\t\t\t"readQueueNums":{part.read_queue_nums},\n'
        f'\t\t\t"topicSysFlag":{part.topic_sys_flag},\n'
        f'\t\t\t"writeQueueNums":{part.write_queue_nums}\n'
        "\t\t}"
        for part in route.queue_datas
    ]
    order = "" if route.order_topic_conf is UNSET else f'\t"orderTopicConf":"{route.order_topic_conf}",\n'
    text = (
        '{\n\t"brokerDatas":[\n' + ",\n".join(brokers) + "\n\t],\n"
        '\t"filterServerTable":{},\n' + order + '\t"queueDatas":[\n' + ",\n".join(queues) + "\n\t]\n}"
    )
    for line in text.split("\n"):
        indented = line.lstrip("\t")
        click.echo("\t" * (len(line) - len(indented)) + as_text(indented))


@verb("topicStatus", "t:topic!", "c:cluster")
def topic_status(connection: Connection, given: Given) -> None:
    """Examine topic Status info."""
    from kourou.admin import topics

    stats = topics.stats(connection, given("topic"))
    printf(
        "%-32s  %-4s  %-20s  %-20s    %s",
        "#Broker Name",
        "#QID",
        "#Min Offset",
        "#Max Offset",
        "#Last Updated",
    )
    for queue in stats.queues:
        printf(
            "%-32s  %-4d  %-20d  %-20d    %s",
            front(queue.broker, 32),
            queue.queue_id,
            queue.min_offset,
            queue.max_offset,
            human(queue.last_updated_ms) if queue.last_updated_ms > 0 else "",
        )
    printf("")
    printf("Topic Put TPS: %s", stats.put_tps)


@verb("topicClusterList", "t:topic!")
def topic_cluster_list(connection: Connection, given: Given) -> None:
    """Get cluster info for topic."""
    from kourou.admin import topics

    for cluster in sorted({part.cluster for part in topics.at_brokers(connection, given("topic"))}):
        printf("%s", cluster)


@verb("updateOrderConf", "t:topic!", "v:orderConf", "m:method!")
def update_order_conf(connection: Connection, given: Given) -> None:
    """Create or update or delete order conf."""
    from kourou.admin import nameservers, topics

    topic, method = given("topic"), given("method")
    if method == "get":
        conf = topics.order_configuration(connection, topic)
        if conf is None:
            raise NotFound(22, f"No config item, Namespace: {topics.ORDER_NAMESPACE} Key: {topic}")
        printf("get orderConf success. topic=[%s], orderConf=[%s] ", topic, conf)
    elif method == "put":
        conf = given.get("orderConf")
        if not conf:
            raise ConfigError("please set orderConf with option -v.")
        nameservers.kv_put(connection, topics.ORDER_NAMESPACE, topic, conf)
        printf("update orderConf success. topic=[%s], orderConf=[%s]", topic, conf)
    elif method == "delete":
        nameservers.kv_delete(connection, topics.ORDER_NAMESPACE, topic)
        printf("delete orderConf success. topic=[%s]", topic)
    else:
        raise ConfigError(f"-m {method!r} is no method: put, get or delete")


@verb("allocateMQ", "t:topic!", "i:ipList!")
def allocate_mq(connection: Connection, given: Given) -> None:
    """Allocate MQ."""
    from kourou.admin import topics
    from kourou.protocol.bodies import MessageQueue
    from kourou.protocol.fastjson import dumps

    topic = given("topic")
    queues = [
        MessageQueue(broker_name=part.broker, queue_id=queue_id, topic=topic)
        for part in topics.at_brokers(connection, topic)
        for queue_id in range(part.read_queues)
    ]
    addresses = [each.strip() for each in given("ipList").split(",") if each.strip()]
    share, more = divmod(len(queues), len(addresses))
    result, at = {}, 0
    for index, address in enumerate(addresses):
        count = share + (1 if index < more else 0)
        result[address] = queues[at : at + count]
        at += count
    printf("%s", dumps({"result": result}).decode())
