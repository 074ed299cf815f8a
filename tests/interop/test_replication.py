"""Pairs of a Kourou and an Apache broker, either way round: one log, byte for byte, and what happens then."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

import kourou
from tests.interop import apache, ours
from tests.interop.round_trip import java_consume

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

SEGMENT_BYTES = 1024 * 1024
NAME = "pair"


def our_broker(
    folder: Path, name_server: str, port: int, **settings: object
) -> AbstractContextManager[ours.Part]:
    """A broker of ours called `pair`."""
    folder.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {"haListenPort": port + 1, "mappedFileSizeCommitLog": SEGMENT_BYTES, **settings}
    return ours.broker(folder, name_server, name=NAME, port=port, **values)


def send(name_server: str, topic: str, count: int, size: int = 1000) -> set[bytes]:
    """Send so many; returns the bodies, all acknowledged as stored everywhere they should be."""
    bodies = {
        f"{topic} {time.monotonic_ns()} {number} ".encode().ljust(size, b".") for number in range(count)
    }
    with kourou.Producer("senders", name_server=name_server, send_timeout=10.0) as producer:
        for body in bodies:
            status = producer.send(kourou.Message(topic, body, tags="T", keys="k")).status
            assert status is kourou.SendStatus.SEND_OK
    return bodies


def files_of(store: Path) -> dict[str, bytes]:
    """The log files, without the zeros behind the end; the original makes the next one ahead of time."""
    files = {path.name: path.read_bytes().rstrip(b"\0") for path in sorted((store / "commitlog").iterdir())}
    return {name: data for name, data in files.items() if data}


def until_same(one: Path, other: Path, seconds: float = 60.0) -> dict[str, bytes]:
    """Wait until both have the same log files; returns them."""
    deadline = time.monotonic() + seconds
    while True:
        files, others = files_of(one), files_of(other)
        if files == others and files:
            return files
        if time.monotonic() > deadline:
            sizes = [{name: len(data) for name, data in each.items()} for each in (files, others)]
            raise AssertionError(f"the logs never became the same: {sizes[0]} and {sizes[1]}")
        time.sleep(0.1)


def consumed(name_server: str, topic: str, wanted: set[bytes]) -> set[bytes]:
    """What is in a topic, read by a group of its own until all that is wanted is there."""
    found: set[bytes] = set()
    deadline = time.monotonic() + 60
    with kourou.PullConsumer(f"readers-{time.monotonic_ns()}", topic, name_server) as consumer:
        consumer.seek("earliest")
        while not found >= wanted and time.monotonic() < deadline:
            found |= {message.body for message in consumer.receive(timeout=0.5)}
    return found


def test_an_apache_slave_of_our_master_has_the_same_bytes_and_takes_over(
    version: str, tmp_path: Path
) -> None:
    """The log of the master is begun before there is a slave, and grows over several files while there is."""
    with ExitStack() as stack:
        names = stack.enter_context(ours.name_server(tmp_path)).address
        port = apache.free_ports_in_a_row()
        master = stack.enter_context(
            our_broker(tmp_path / "ours", names, port, brokerRole="SYNC_MASTER", slaveTimeout=10_000)
        )
        slave = stack.enter_context(
            apache.broker(
                version,
                tmp_path,
                names,
                name=NAME,
                brokerRole="SLAVE",
                brokerId=1,
                mappedFileSizeCommitLog=SEGMENT_BYTES,
                slaveReadEnable="true",
            )
        )
        until_following(names, "Pair")
        sent = send(names, "Pair", 3000)
        files = until_same(master.folder, slave.store)
        assert len(files) >= 3
        # The slave serves consumers when the master is gone.
        wait_for_topic(slave.address, "Pair")
        assert not refused_syncs(slave)
        master.stop()
        assert consumed(names, "Pair", sent) >= sent
        # Promoted as its operators do, it goes on with the log that ours began.
        slave.stop()
        stack.enter_context(
            apache.broker(
                version,
                tmp_path,
                names,
                name=NAME,
                store=slave.store,
                brokerRole="ASYNC_MASTER",
                mappedFileSizeCommitLog=SEGMENT_BYTES,
            )
        )
        more = send(names, "Pair", 50)
        assert consumed(names, "Pair", sent | more) >= sent | more


def refused_syncs(slave: apache.BrokerPart) -> list[str]:
    """What a slave could not copy of its master's tables, as its log says; 4.9 is not asked to keep one."""
    log = slave.output.parent / "logs" / "rocketmqlogs" / "broker.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    if slave.version.startswith("5."):
        assert any("Update slave Message Request Mode from master" in line for line in lines)
    return [line for line in lines if "Sync" in line and "Exception" in line]


def until_following(names: str, topic: str) -> None:
    """Send until a slave acknowledges: until then each answer says that there is none."""
    deadline = time.monotonic() + 60
    with kourou.Producer("first", name_server=names, send_timeout=15.0) as producer:
        while time.monotonic() < deadline:
            sent = producer.send(kourou.Message(topic, b"are you there?"))
            if sent.status is kourou.SendStatus.SEND_OK:
                return
            assert sent.status in (
                kourou.SendStatus.SLAVE_NOT_AVAILABLE,
                kourou.SendStatus.FLUSH_SLAVE_TIMEOUT,
            ), sent
            time.sleep(0.2)
    raise AssertionError("no slave came")


GET_ALL_TOPIC_CONFIG = 21


def wait_for_topic(address: str, topic: str, seconds: float = 90.0) -> None:
    """A slave of the original's asks for topics now and then only."""
    deadline = time.monotonic() + seconds
    while f'"{topic}"'.encode() not in apache.ask(address, GET_ALL_TOPIC_CONFIG):
        assert time.monotonic() < deadline, f"{address} never learnt of {topic}"
        time.sleep(0.5)


def test_our_slave_of_an_apache_master_has_the_same_bytes_and_takes_over(
    version: str, tmp_path: Path
) -> None:
    """The master dies; ours is started again as the master, and stock consumers go on."""
    with ExitStack() as stack:
        names = stack.enter_context(ours.name_server(tmp_path)).address
        port = apache.free_ports_in_a_row()
        master = stack.enter_context(
            apache.broker(
                version,
                tmp_path,
                names,
                name=NAME,
                brokerRole="SYNC_MASTER",
                inSyncReplicas=2,  # 4.9 does not know it, and waits for one slave anyway
                slaveTimeout=10_000,
                mappedFileSizeCommitLog=SEGMENT_BYTES,
            )
        )
        slave = stack.enter_context(
            our_broker(tmp_path / "ours", names, port, brokerRole="SLAVE", brokerId=1)
        )
        until_following(names, "Pair")
        sent = send(names, "Pair", 3000)
        files = until_same(master.store, slave.folder)
        assert len(files) >= 3
        wait_for_topic(slave.address, "Pair")
        received = java_consume(version, tmp_path, names, "Pair", 1000, group="going-on")
        with kourou.Producer("senders", name_server=names, send_timeout=10.0) as producer:
            producer.send(kourou.Message("Pair", b"later"), delay=kourou.DelayLevel(3))
        until_same(master.store, slave.folder)
        time.sleep(4.0)  # the offsets are copied now and then
        master.kill()
        slave.stop()
        promoted = stack.enter_context(our_broker(tmp_path / "ours", names, port, brokerRole="ASYNC_MASTER"))
        more = send(names, "Pair", 100)
        expected = {body.decode().strip(".") for body in sent | more} | {"later"}
        received += java_consume(version, tmp_path, names, "Pair", 2101, group="going-on")
        assert {line["body"].strip(".") for line in received} >= expected
        assert len(received) < 2 * len(expected), "offsets were lost with the master"
        promoted.stop()
