"""Every verb of the original's admin tool that applies, in an order that makes sense, and a cluster to ask.

    with cast(name_server, broker_address, folder) as names:
        for verb in VERBS:
            run(verb.format(**names))

The cluster has one broker, a topic of two queues with ten messages, a producer and a group with one member
that has read them all and goes on. `tests/interop/record_mqadmin.py` tells the story to the real tool and an
Apache cluster and keeps what was printed; the tests tell it to `kourou mqadmin`, and the real tool tells it
to our broker.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import kourou

TOPIC, GROUP, PRODUCERS = "StoryTopic", "StoryGroup", "StoryProducers"
MESSAGES = 10

VERBS = (
    "updateTopic -b {address} -t StoryOther -r 2 -w 2",
    "updateTopic -c {cluster} -t StoryOther -r 4 -w 4 -p 6",
    "updateTopicPerm -c {cluster} -t StoryOther -p 4",
    "updateTopicPerm -b {address} -t StoryOther -p 6",
    "updateTopicList -b {address} -f {topics_file}",
    "topicList",
    "topicList -c",
    "topicRoute -t StoryTopic",
    "topicRoute -t StoryTopic -l",
    "topicRoute -t NoSuchTopic",
    "topicStatus -t StoryTopic",
    "topicClusterList -t StoryTopic",
    "clusterList",
    "clusterList -m",
    "brokerStatus -b {address}",
    "brokerStatus -c {cluster}",
    "getBrokerConfig -b {address}",
    "getBrokerConfig -c {cluster}",
    "updateBrokerConfig -b {address} -k longPollingEnable -v true",
    "updateBrokerConfig -c {cluster} -k longPollingEnable -v true",
    "updateSubGroup -c {cluster} -g StoryOtherGroup",
    "updateSubGroup -b {address} -g StoryOtherGroup -r 7",
    "updateSubGroupList -b {address} -f {groups_file}",
    "getConsumerConfig -g StoryOtherGroup",
    "setConsumeMode -b {address} -t StoryTopic -g StoryGroup -m PULL",
    "consumerProgress -g StoryGroup",
    "consumerProgress -g StoryGroup -s true",
    "consumerProgress -g NoSuchGroup",
    "consumerProgress",
    "consumerConnection -g StoryGroup",
    "consumerStatus -g StoryGroup",
    "consumerStatus -g StoryGroup -i {client}",
    "producerConnection -g StoryProducers -t StoryTopic",
    "producer -b {address}",
    "brokerConsumeStats -b {address}",
    "statsAll -t StoryTopic",
    "queryMsgById -t StoryTopic -i {offset_id}",
    "queryMsgByKey -t StoryTopic -k story-key-3",
    "queryMsgByUniqueKey -t StoryTopic -i {unique_id}",
    "queryMsgByOffset -t StoryTopic -b {broker} -i 0 -o 0",
    "queryMsgTraceById -i {unique_id}",
    "printMsg -t StoryTopic",
    "printMsgByQueue -t StoryTopic -a {broker} -i 0 -p true -d true",
    "queryCq -t StoryTopic -q 0 -i 0 -c 2 -b {address}",
    "sendMessage -t StoryOther -p hello -k a-key -c a-tag",
    "consumeMessage -t StoryTopic -b {broker} -i 1 -o 0 -c 1",
    "sendMsgStatus -b {broker} -s 8 -c 2",
    "checkMsgSendRT -t StoryOther -a 2 -s 16",
    "allocateMQ -t StoryTopic -i 10.0.0.1,10.0.0.2",
    "updateKvConfig -s story -k key -v value",
    "deleteKvConfig -s story -k key",
    "updateOrderConf -t StoryOther -v {broker}:4 -m put",
    "updateOrderConf -t StoryOther -m get",
    "updateOrderConf -t StoryOther -m delete",
    "wipeWritePerm -b {broker}",
    "addWritePerm -b {broker}",
    "getNamesrvConfig",
    "updateNamesrvConfig -k orderMessageEnable -v false",
    "updateSubGroup -c {cluster} -g StoryClone",
    "cloneGroupOffset -s StoryGroup -d StoryClone -t StoryTopic -o true",
    "resetOffsetByTime -g StoryClone -t StoryTopic -s -1",
    "resetOffsetByTime -g StoryClone -t StoryTopic -s 0 -b {address} -q 0 -o 1",
    "skipAccumulatedMessage -g StoryClone -t StoryTopic",
    "cleanExpiredCQ -b {address}",
    "cleanUnusedTopic -b {address}",
    "deleteExpiredCommitLog -b {address}",
    "haStatus -b {address}",
    "exportMetadata -c {cluster} -f {folder}",
    "exportMetadata -b {address} -t -f {folder}",
    "exportMetadata -b {address} -g -f {folder}",
    "exportConfigs -c {cluster} -f {folder}",
    "exportMetrics -c {cluster} -f {folder}",
    "deleteSubGroup -b {address} -g StoryOtherGroup",
    "deleteTopic -c {cluster} -t StoryOther",
)


@contextlib.contextmanager
def cast(name_server: str, address: str, broker: str, folder: Path) -> Iterator[dict[str, str]]:
    """Those the story is about: what stands for each name in a verb."""
    from kourou.admin import Connection, topics
    from kourou.admin.cluster import node

    with Connection(name_server) as connection:
        topics.save(connection, topics.Wanted(TOPIC, 2, 2), [node(connection, address)])
        cluster = node(connection, address).cluster
    handled: list[kourou.ReceivedMessage] = []
    with (
        kourou.Producer(PRODUCERS, name_server, trace=True) as producer,
        kourou.PushConsumer(GROUP, name_server, start="earliest") as consumer,
    ):

        @consumer.on(TOPIC, tags="new || paid")
        def handle(message: kourou.ReceivedMessage) -> None:
            handled.append(message)

        consumer.start()
        sent = [
            producer.send(
                kourou.Message(TOPIC, f"body {number}".encode(), tags="new", keys=f"story-key-{number}")
            )
            for number in range(MESSAGES)
        ]
        _wait_for(lambda: len(handled) >= MESSAGES)
        consumer_id = _settled(name_server)
        _wait_for(lambda: _is_traced(producer, sent[3].message_id))
        yield {
            "names": name_server,
            "address": address,
            "broker": broker,
            "cluster": cluster,
            "client": consumer_id,
            "offset_id": sent[3].offset_id,
            "unique_id": sent[3].message_id,
            "folder": str(folder),
            "topics_file": str(_file(folder / "topics.json", _topics())),
            "groups_file": str(_file(folder / "groups.json", _groups())),
        }


def _settled(name_server: str) -> str:
    """The member's id, once its place is committed."""
    from kourou.admin import Connection, groups

    with Connection(name_server) as connection:

        def is_committed() -> bool:
            lag = groups.lag(connection, GROUP, TOPIC)
            return bool(lag.queues) and lag.total == 0

        _wait_for(is_committed)
        return groups.members(connection, GROUP).members[0].client_id


def _is_traced(producer: kourou.Producer, message_id: str) -> bool:
    try:
        return bool(producer.query("RMQ_SYS_TRACE_TOPIC", message_id))
    except kourou.MQError:
        return False


def _wait_for(happened) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline, "the story's cast did not come together"
        time.sleep(0.1)


def _topics() -> list[dict[str, object]]:
    return [{"topicName": "StoryListed", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6}]


def _groups() -> list[dict[str, object]]:
    return [{"groupName": "StoryListedGroup", "retryMaxTimes": 5}]


def _file(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path
