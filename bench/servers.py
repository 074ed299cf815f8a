"""The systems under test: ours and, where Java and Maven are, Apache's, both running all the time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kourou.protocol.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicTable
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import request
from kourou.protocol.headers import RegisterBroker
from tests.interop import apache, ours

APACHE_VERSION, NEWER_VERSION = "4.9.7", "5.3.3"
OURS, APACHE, NEWER = "kourou", f"Apache {APACHE_VERSION}", f"Apache {NEWER_VERSION}"

HEAP = "1g"
"""Of an Apache broker; all it keeps beside that is the page cache, and buffers outside the heap."""
# A broker refuses what waited longer than these in its queue; under full load that is no error of the server.
PATIENT = {"waitTimeMillsInSendQueue": 30_000, "osPageCacheBusyTimeOutMills": 30_000}
SEGMENT_BYTES = 1024 * 1024 * 1024
OUR_SETTINGS = "".join(
    f"{key}={value}\n" for key, value in {"mappedFileSizeCommitLog": SEGMENT_BYTES, **PATIENT}.items()
)


@dataclass(frozen=True)
class Server:
    """One running process."""

    system: str
    address: str
    pid: int
    name_server: str = ""
    """Of a broker: where its clients find it."""


@contextmanager
def brokers(folder: Path, with_apache: bool, **settings: object) -> Iterator[list[Server]]:
    """Ours first. Each has a name server of its own kind; `settings` are for both."""
    with ExitStack() as stack:
        running = [stack.enter_context(our_broker(folder / "ours", **settings))]
        if with_apache:
            theirs = apache_broker(APACHE_VERSION, folder / "theirs", **settings)
            running.append(stack.enter_context(theirs))
        yield running


@contextmanager
def our_broker(folder: Path, **settings: object) -> Iterator[Server]:
    values: dict[str, Any] = {
        "mappedFileSizeCommitLog": SEGMENT_BYTES,
        **PATIENT,
        "enablePropertyFilter": "true",
        **settings,
    }
    with ours.name_server(folder) as names, ours.broker(folder, names.address, **values) as part:
        yield Server(OURS, part.address, part.process.pid, names.address)


@contextmanager
def apache_broker(version: str, folder: Path, **settings: object) -> Iterator[Server]:
    values: dict[str, Any] = {
        "quick": False,
        "heap": HEAP,
        "mappedFileSizeCommitLog": SEGMENT_BYTES,
        **PATIENT,
        "enablePropertyFilter": "true",
        **settings,
    }
    with (
        apache.name_server(version, folder) as names,
        apache.broker(version, folder, names.address, **values) as part,
    ):
        yield Server(f"Apache {version}", part.address, part.process.pid, names.address)


@contextmanager
def name_servers(folder: Path, with_apache: bool) -> Iterator[list[Server]]:
    """Ours first."""
    with ExitStack() as stack:
        mine = stack.enter_context(ours.name_server(folder / "ours"))
        running = [Server(OURS, mine.address, mine.process.pid)]
        if with_apache:
            theirs = stack.enter_context(apache.name_server(APACHE_VERSION, folder / "theirs", quick=False))
            running.append(Server(APACHE, theirs.address, theirs.process.pid))
        yield running


def make_topic(broker: Server, topic: str, queues: int) -> None:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    answer = apache.ask(broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields=fields)
    assert b'"code":0' in answer, f"{broker.system} did not make topic {topic}: {answer!r}"


def registration(prefix: str, topics: int, queues: int, counter: int) -> bytes:
    """The frame with which a broker that has that many topics registers; `counter` makes it news."""
    table = {
        f"{prefix}{n}": TopicConfig(
            topic_name=f"{prefix}{n}", read_queue_nums=queues, write_queue_nums=queues
        )
        for n in range(topics)
    }
    version = DataVersion(timestamp=1_700_000_000_000, counter=counter)
    body = RegisterBrokerBody(topic_table=TopicTable(data_version=version, topic_config_table=table))
    header = RegisterBroker(
        broker_name=f"bench-{prefix}",
        broker_address="127.0.0.1:10911",
        cluster_name="DefaultCluster",
        broker_id=0,
        ha_server_address="127.0.0.1:10912",
    )
    return request(RequestCode.REGISTER_BROKER, header, body.encode()).encode()
