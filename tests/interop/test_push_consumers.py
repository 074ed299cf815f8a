"""Our push consumers beside Java ones in one group, and against Apache's brokers."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

import kourou
from kourou.client.assignment import (
    Assign,
    assign_by_hash,
    assign_by_room,
    assign_evenly,
    assign_in_turn,
    assign_near,
    in_order,
)
from kourou.protocol.bodies import MessageQueue
from tests.interop import apache, ours
from tests.interop.groups_of_both import make_topic, warm_up
from tests.interop.java_member import java_member
from tests.interop.ours import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@contextmanager
def cluster(kind: str, version: str, folder: Path) -> Iterator[str]:
    """The address of a name server of a cluster of one broker, ours or Apache's."""
    if kind == "ours":
        with ours.node(folder) as node:
            yield node.address
    else:
        with (
            apache.name_server(version, folder) as names,
            apache.broker(version, folder, names.address),
        ):
            yield names.address


STRATEGIES = {"average": assign_evenly, "circle": assign_in_turn, "hash": assign_by_hash}


@pytest.mark.parametrize("kind", ["ours", "apache"])
def test_a_java_and_a_kourou_consumer_share_the_queues_of_one_group(
    kind: str, version: str, tmp_path: Path
) -> None:
    with cluster(kind, version, tmp_path) as address:
        make_topic(address, "shared", 8)
        received: list[str] = []
        with (
            java_member(version, tmp_path, address, "both", "shared") as java,
            kourou.PushConsumer("both", address, start="earliest") as consumer,
            kourou.Producer("senders", address, send_timeout=10.0) as producer,
        ):

            @consumer.on("shared")
            def note(message: kourou.ReceivedMessage) -> None:
                received.append(message.body.decode())

            consumer.start()
            wait_until(lambda: len(mine(consumer)) == 4, 30, "the queues were shared out")
            warm_up(producer, "shared", 8, lambda: (len(java.bodies()), len(received)))
            before = len(java.bodies()), len(received)
            for n in range(200):
                producer.send(kourou.Message("shared", b"first-%d" % n))
            wait_until(lambda: sum((len(java.bodies()), len(received))) >= sum(before) + 200, 30, "all came")
            assert (len(java.bodies()) - before[0], len(received) - before[1]) == (100, 100)

            java.leave()
            wait_until(lambda: len(mine(consumer)) == 8, 10, "the queues of the Java member were taken over")
            for n in range(100):
                producer.send(kourou.Message("shared", b"second-%d" % n))
            wait_until(lambda: len(received) >= before[1] + 200, 30, "everything came")
        expected = {*(f"first-{n}" for n in range(200)), *(f"second-{n}" for n in range(100))}
        counted = Counter(body for body in java.bodies() + received if body != "warm up")
        assert counted.keys() == expected
        # What the Java member had handled and not committed when it left comes again, and nothing else.
        again = {body for body, count in counted.items() if count > 1}
        assert again <= set(java.bodies()) & set(received)
        assert len(again) < 32
        assert max(counted.values()) <= 2


@pytest.mark.parametrize("strategy", ["circle", "hash"])
def test_the_other_strategies_agree_as_well(strategy: str, version: str, tmp_path: Path) -> None:
    with cluster("ours", version, tmp_path) as address:
        make_topic(address, "shared", 16)
        received: list[str] = []
        with (
            java_member(version, tmp_path, address, "both", "shared", strategy=strategy) as java,
            kourou.PushConsumer("both", address, start="earliest", assign=STRATEGIES[strategy]) as consumer,
            kourou.Producer("senders", address) as producer,
        ):

            @consumer.on("shared")
            def note(message: kourou.ReceivedMessage) -> None:
                received.append(message.body.decode())

            consumer.start()
            wait_until(lambda: 0 < len(mine(consumer)) < 16, 30, "the queues were shared out")
            warm_up(producer, "shared", 16, lambda: (len(java.bodies()), len(received)))
            before = len(java.bodies()), len(received)
            for n in range(320):
                producer.send(kourou.Message("shared", b"%d" % n))
            wait_until(lambda: sum((len(java.bodies()), len(received))) >= sum(before) + 320, 30, "all came")
            our_queues = mine(consumer)
        everything = java.bodies()[before[0] :] + received[before[1] :]
        assert Counter(everything) == Counter(str(n) for n in range(320))
        assert len(received) - before[1] == 20 * len(our_queues)


def mine(consumer: kourou.PushConsumer, topic: str = "shared") -> list[int]:
    return sorted(queue.queue_id for queue in consumer.positions() if queue.topic == topic)


@pytest.mark.parametrize("kind", ["ours", "apache"])
def test_orderly_members_of_both_kinds_never_handle_one_queue_at_a_time(
    kind: str, version: str, tmp_path: Path
) -> None:
    with cluster(kind, version, tmp_path) as address:
        make_topic(address, "ordered", 4)
        spans: list[tuple[int, int, int, str]] = []
        with (
            kourou.Producer("senders", address, send_timeout=10.0) as producer,
            kourou.PushConsumer("both", address, start="earliest") as consumer,
        ):
            queues = producer.queues("ordered")
            results: list[kourou.SendResult] = []

            def sent() -> int:
                return len(results)

            def send_some() -> None:
                for n in range(sent(), sent() + 40):
                    message = kourou.Message("ordered", b"%d" % n)
                    results.append(producer.send(message, queue=queues[n % 4]))

            send_some()

            @consumer.on("ordered", ordered=True)
            def note(message: kourou.ReceivedMessage) -> None:
                began = time.time_ns() // 1_000_000
                time.sleep(0.02)
                ended = time.time_ns() // 1_000_000
                spans.append((message.queue_id, began, ended, message.body.decode()))

            consumer.start()
            wait_until(lambda: len(spans) > 20, 30, "ours was at work")
            with java_member(version, tmp_path, address, "both", "ordered", orderly=True, millis=20) as java:
                deadline = time.monotonic() + 60
                while (
                    len(java.bodies()) < 40 and time.monotonic() < deadline
                ):  # queues change hands meanwhile
                    send_some()
                    time.sleep(0.3)
                wait_until(lambda: len(spans) + len(java.bodies()) >= sent(), 60, "everything came")
                java.leave()  # when idle: a Java member at work gives its locks back before it has ended
                send_some()
                wait_until(lambda: len(spans) + len(java.bodies()) >= sent(), 60, "the rest came")
                begins, ends = java.events("begin"), java.events("end")
        theirs = [
            (begin["queueId"], begin["ms"], end["ms"], end["body"])
            for begin, end in zip(
                sorted(begins, key=lambda line: (line["queueId"], line["ms"])),
                sorted(ends, key=lambda line: (line["queueId"], line["ms"])),
                strict=True,
            )
        ]
        assert theirs, "the Java member never had a queue"
        assert Counter(span[3] for span in spans + theirs) == Counter(str(n) for n in range(sent()))
        for queue_id in range(4):
            of_queue = sorted((span for span in spans + theirs if span[0] == queue_id), key=lambda s: s[1])
            assert [int(span[3]) for span in of_queue] == list(range(queue_id, sent(), 4))
            for one, next_one in pairwise(of_queue):
                assert one[2] <= next_one[1] + 1  # clocks are read in milliseconds


def test_what_fails_at_apache_comes_again_and_ends_among_the_dead_letters(
    version: str, tmp_path: Path
) -> None:
    with cluster("apache", version, tmp_path) as address:
        make_topic(address, "orders", 2)
        attempts: list[tuple[str, int]] = []
        dead = threading.Event()
        with (
            kourou.Producer("senders", address, send_timeout=10.0) as producer,
            kourou.PushConsumer("billing", address, start="earliest", retries=2) as consumer,
        ):

            @consumer.on("orders", tags="new")
            def fail(message: kourou.ReceivedMessage) -> None:
                attempts.append((message.topic, message.reconsume_times))
                if message.reconsume_times == 2:
                    dead.set()
                raise kourou.RetryLater(1)

            consumer.start()
            producer.send(kourou.Message("orders", b"hopeless", tags="new", keys="42"))
            producer.send(kourou.Message("orders", b"unwanted", tags="old"))
            assert dead.wait(90), attempts
            wait_until(
                lambda: any(queue.topic == "%RETRY%billing" for queue in consumer.positions()),
                30,
                "retry queue",
            )
            found = dead_letters(address, "billing")
        assert attempts == [("orders", 0), ("orders", 1), ("orders", 2)]
        (letter,) = found
        assert (letter.body, letter.keys, letter.tags) == (b"hopeless", "42", "new")
        assert letter.properties["RETRY_TOPIC"] == "orders"


def dead_letters(address: str, group: str) -> list[kourou.ReceivedMessage]:
    """Those of a group, as soon as there are any; the topic itself appears with the first."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with kourou.PullConsumer("undertaker", f"%DLQ%{group}", address) as letters:
                if found := letters.receive(timeout=1.0):
                    return found
        except kourou.NotFound:
            time.sleep(0.5)
    return []


def test_ordered_at_apache_a_bad_message_becomes_a_dead_letter(version: str, tmp_path: Path) -> None:
    with cluster("apache", version, tmp_path) as address:
        make_topic(address, "orders", 1)
        seen: list[bytes] = []
        with (
            kourou.Producer("senders", address, send_timeout=10.0) as producer,
            kourou.PushConsumer(
                "billing", address, start="earliest", retries=2, ordered_pause=0.2
            ) as consumer,
        ):

            @consumer.on("orders", ordered=True)
            def handle(message: kourou.ReceivedMessage) -> None:
                seen.append(message.body)
                if message.body == b"bad":
                    raise ValueError("no")

            for body in (b"first", b"bad", b"last"):
                producer.send(kourou.Message("orders", body))
            consumer.start()
            wait_until(lambda: b"last" in seen, 30, "the queue went on")
            assert seen == [b"first", b"bad", b"bad", b"bad", b"last"]


def test_the_tools_of_apache_ask_our_consumer_how_it_is(version: str, tmp_path: Path) -> None:
    with cluster("apache", version, tmp_path) as address:
        make_topic(address, "orders", 2)
        seen: list[bytes] = []
        with (
            kourou.Producer("senders", address, send_timeout=10.0) as producer,
            kourou.PushConsumer("billing", address, start="earliest") as consumer,
        ):
            consumer.on("orders", tags="new")(lambda message: seen.append(message.body))
            consumer.start()
            sent = producer.send(kourou.Message("orders", b"once", tags="new"))
            wait_until(lambda: seen == [b"once"], 30, "it came")
            (client_id,) = [line.split()[0] for line in connections(version, tmp_path, address)]
            status, directly = apache.mqadmin(
                version,
                tmp_path,
                f"consumerStatus -n {address} -g billing -i {client_id} -s",
                f"queryMsgById -n {address} -i {sent.offset_id} -g billing -d {client_id}"
                + (" -t orders" if version.startswith("5") else ""),
            )
            assert "CONSUME_PASSIVELY" in status
            assert "orders" in status
            assert "kourou-billing" in status, "the stacks of its threads"
            assert "CR_SUCCESS" in directly
            assert seen == [b"once", b"once"]


def connections(version: str, folder: Path, address: str) -> list[str]:
    """The lines `mqadmin consumerConnection` prints for our members of group billing."""
    (said,) = apache.mqadmin(version, folder, f"consumerConnection -n {address} -g billing")
    return [line for line in said.splitlines() if "PYTHON" in line]


@pytest.mark.parametrize(
    ("name", "assign"),
    [
        ("AVG", assign_evenly),
        ("AVG_BY_CIRCLE", assign_in_turn),
        ("CONSISTENT_HASH", assign_by_hash),
        ("ROOM", assign_by_room({"r0", "r2"})),
        ("NEAR", assign_near(lambda broker: broker.split("@")[0], lambda member: member.split("-")[0])),
    ],
)
def test_every_strategy_gives_everybody_what_java_does(
    name: str, assign: Assign, java_shares: list[list[str]]
) -> None:
    lines = [line for line in java_shares if line[0] == name]
    assert len(lines) == 3 * 9 * 28
    for _, brokers, queues, members, member, *expected in lines:
        every = in_order(
            MessageQueue(topic="orders", broker_name=f"r{broker}@b{broker}", queue_id=number)
            for broker in range(int(brokers))
            for number in range(int(queues))
        )
        ids = sorted(f"r{number % 2}-c{number}" for number in range(int(members)))
        found = assign(every, ids, ids[int(member)])
        assert [f"{queue.broker_name}:{queue.queue_id}" for queue in found] == expected


@pytest.fixture(scope="module")
def java_shares(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """What Java's strategies say, line by line."""
    reason = apache.missing_tools()
    if reason:
        pytest.fail(f"CANNOT TEST AGAINST APACHE: {reason}", pytrace=False)
    said = apache.run(apache.VERSIONS[1], tmp_path_factory.mktemp("shares"), "Shares")
    return [line.split(" ") for line in said.splitlines() if line.split(" ")[0].isupper() or "_" in line[:16]]
