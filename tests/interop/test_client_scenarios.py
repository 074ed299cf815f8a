"""What our client can do, as a list of named scenarios: against a cluster of ours, Apache's 4.9 and its 5.x.

The official Java client's list, against the same clusters, is in test_scenarios_*.py: so all four ways are
run, {our client, the Java client} x {our cluster, Apache's}. A scenario has a topic of its own. The blocking
form stands for both, which have the same tests in tests/system, unless it is the async one that is at issue.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import kourou
from kourou.protocol.java_hash import java_hash
from tests.interop import apache, ours
from tests.interop.ours import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

SECONDS = 40.0
SETTINGS: dict[str, Any] = {
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "transactionCheckInterval": 1000,
    "transactionTimeOut": 1000,
    "messageDelayLevel": "1s 2s 3s 4s 5s",
}


@dataclass
class Cluster:
    """A running one; `kind` is "ours" or a release of Apache's."""

    kind: str
    name_server: str

    @property
    def knows_any_delay(self) -> bool:
        return not self.kind.startswith("4.")

    def producer(self, **options: Any) -> kourou.Producer:
        return kourou.Producer("scenario", self.name_server, send_timeout=10.0, **options)

    def read(
        self, topic: str, count: int, *, different: bool = False, **options: Any
    ) -> list[kourou.ReceivedMessage]:
        """At least `count` messages of a topic, on demand of `different` bodies, by a group of its own."""
        found: list[kourou.ReceivedMessage] = []
        deadline = time.monotonic() + SECONDS
        group = f"read-{time.monotonic_ns()}"
        with kourou.PullConsumer(group, topic, self.name_server, **options) as consumer:
            consumer.seek("earliest")
            while time.monotonic() < deadline:
                if (len({each.body for each in found}) if different else len(found)) >= count:
                    break
                found += consumer.receive(timeout=0.5)
        assert len(found) >= count, f"{len(found)} of {count} messages came in {SECONDS} s"
        return found


@pytest.fixture(scope="module", params=["ours", *apache.VERSIONS])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack:
        if request.param == "ours":
            names: Any = stack.enter_context(ours.name_server(folder))
            stack.enter_context(ours.broker(folder, names.address, **SETTINGS))
        else:
            if reason := apache.missing_tools():
                pytest.fail(f"CANNOT TEST AGAINST APACHE: {reason}", pytrace=False)
            names = stack.enter_context(apache.name_server(request.param, folder))
            stack.enter_context(apache.broker(request.param, folder, names.address, **SETTINGS))
        yield Cluster(request.param, names.address)


Scenario = Callable[[Cluster, str], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def test_there_is_a_scenario_for_every_kind_of_message_and_client() -> None:
    assert len(SCENARIOS) >= 20


@pytest.fixture
def topic(request: pytest.FixtureRequest, cluster: Cluster) -> str:
    """Made by sending to it, as a program would that knows nothing of administration."""
    name = f"{request.node.callspec.params['name']}-topic"
    with cluster.producer() as producer:
        producer.send(kourou.Message(name, b"first"))
    return name


# ------------------------------------------------------------------------------------------------- sending


@scenario
def sync_send(cluster: Cluster, topic: str) -> None:
    with cluster.producer() as producer:
        sent = producer.send(kourou.Message(topic, b"body", tags="a", keys="k", properties={"p": "v"}))
    assert sent.status is kourou.SendStatus.SEND_OK
    (found,) = [each for each in cluster.read(topic, 2) if each.body == b"body"]
    assert (found.tags, found.keys, found.properties["p"], found.message_id) == (
        "a",
        "k",
        "v",
        sent.message_id,
    )


@scenario
def async_send(cluster: Cluster, topic: str) -> None:
    async def main() -> set[str]:
        async with kourou.AsyncProducer("scenario", cluster.name_server, send_timeout=10.0) as producer:
            sends = (producer.send(kourou.Message(topic, b"%d" % number)) for number in range(100))
            return {sent.message_id for sent in await asyncio.gather(*sends)}

    ids = asyncio.run(main())
    assert len(ids) == 100
    assert ids <= {each.message_id for each in cluster.read(topic, 101)}


@scenario
def send_soon_with_callback(cluster: Cluster, topic: str) -> None:
    told: list[Any] = []
    with cluster.producer() as producer:
        for number in range(20):
            producer.send_soon(kourou.Message(topic, b"%d" % number), told.append)
    assert [each.status for each in told] == [kourou.SendStatus.SEND_OK] * 20


@scenario
def one_way_send(cluster: Cluster, topic: str) -> None:
    with cluster.producer() as producer:
        producer.send_one_way(kourou.Message(topic, b"one way"))
        assert b"one way" in {each.body for each in cluster.read(topic, 2)}


@scenario
def batch(cluster: Cluster, topic: str) -> None:
    with cluster.producer() as producer:
        sent = producer.send_batch([kourou.Message(topic, b"%d" % number) for number in range(10)])
    found = [each for each in cluster.read(topic, 11) if each.body != b"first"]
    assert {each.message_id for each in found} == set(sent.message_id.split(","))
    assert len({each.queue_id for each in found}) == 1


@scenario
def batches_split_by_size(cluster: Cluster, topic: str) -> None:
    with cluster.producer(message_bytes_max=20_000) as producer:
        results = producer.send_all(kourou.Message(topic, bytes(900)) for _ in range(50))
    assert len(results) == 3
    assert len(cluster.read(topic, 51)) == 51


@scenario
def linger_batching(cluster: Cluster, topic: str) -> None:
    with cluster.producer(linger=0.05) as producer:
        futures = [producer.send_soon(kourou.Message(topic, b"%d" % number)) for number in range(30)]
        places = {(each.result(10).queue_id, each.result().queue_offset) for each in futures}
    assert len(places) == 30


@scenario
def order_by_key(cluster: Cluster, topic: str) -> None:
    with cluster.producer() as producer:
        queues = len(producer.queues(topic))
        sent = [producer.send(kourou.Message(topic, b"%d" % n), key="customer-1") for n in range(10)]
    assert {each.queue_id for each in sent} == {abs(java_hash("customer-1")) % queues}
    offsets = [each.queue_offset for each in sent]
    assert offsets == sorted(offsets)


@scenario
def chosen_queue_and_selector(cluster: Cluster, topic: str) -> None:
    with cluster.producer() as producer:
        wanted = producer.queues(topic)[-1]
        assert producer.send(kourou.Message(topic, b"x"), queue=wanted).queue_id == wanted.queue_id
        chosen = producer.send(kourou.Message(topic, b"x"), select=lambda queues, message: queues[-1])
        assert chosen.queue_id == wanted.queue_id


@scenario
def compressed(cluster: Cluster, topic: str) -> None:
    with cluster.producer() as producer:
        producer.send(kourou.Message(topic, b"long " * 2000))
    assert b"long " * 2000 in {each.body for each in cluster.read(topic, 2)}


@scenario
def delay_level(cluster: Cluster, topic: str) -> None:
    with cluster.producer() as producer:
        began = time.time()
        producer.send(kourou.Message(topic, b"later"), delay=kourou.DelayLevel(2))
        assert b"later" in {each.body for each in cluster.read(topic, 2)}
        assert time.time() - began >= 1.5


@scenario
def delay_in_seconds_and_recall(cluster: Cluster, topic: str) -> None:
    with cluster.producer() as producer:
        message = kourou.Message(topic, b"later")
        if not cluster.knows_any_delay:
            with pytest.raises(kourou.ConfigError, match="knows delay levels only"):
                producer.send(message, delay=2)
            return
        began = time.time()
        assert producer.send(message, delay=2).recall_handle
        assert b"later" in {each.body for each in cluster.read(topic, 2)}
        assert time.time() - began >= 1.5


@scenario
def transaction(cluster: Cluster, topic: str) -> None:
    asked: list[str] = []

    def check(message: kourou.ReceivedMessage) -> kourou.TransactionState:
        asked.append(message.keys or "")
        # 5.x notes the end of a transaction some seconds later, and may ask about one that has ended.
        keep = message.keys != "rolled-back"
        return kourou.TransactionState.COMMIT if keep else kourou.TransactionState.ROLLBACK

    group = "scenario-transactions"
    with kourou.TransactionProducer(group, check, cluster.name_server, send_timeout=10.0) as producer:
        with producer.transaction(kourou.Message(topic, b"committed")):
            pass
        with (
            pytest.raises(ValueError, match="no"),
            producer.transaction(kourou.Message(topic, b"rolled back", keys="rolled-back")),
        ):
            raise ValueError("no")
        with producer.transaction(kourou.Message(topic, b"asked", keys="42")) as left:
            left.leave_unknown()
        wait_until(lambda: "42" in asked, SECONDS, "the broker asked")
        found = {
            each.body for each in cluster.read(topic, 3, different=True)
        }  # an end may be carried out twice
    assert found == {b"first", b"committed", b"asked"}


@scenario
def request_and_reply(cluster: Cluster, topic: str) -> None:
    with (
        kourou.PushConsumer("scenario-answers", cluster.name_server, start="earliest") as consumer,
        cluster.producer() as producer,
    ):

        @consumer.on(topic)
        def answer(message: kourou.ReceivedMessage) -> None:
            if message.body == b"ping":
                producer.send(kourou.reply_to(message, b"pong"))

        consumer.start()
        assert producer.request(kourou.Message(topic, b"ping"), timeout=20.0).body == b"pong"


@scenario
def found_by_key_and_id(cluster: Cluster, topic: str) -> None:
    with cluster.producer() as producer:
        sent = producer.send(kourou.Message(topic, b"wanted", keys="needle"))
        wait_until(lambda: bool(producer.query(topic, "needle")), SECONDS, "it was found")
        assert producer.view(topic, sent.message_id).body == b"wanted"
        assert producer.view(topic, sent.offset_id).body == b"wanted"


@scenario
def message_trace(cluster: Cluster, topic: str) -> None:
    with cluster.producer(trace=True) as producer:
        sent = producer.send(kourou.Message(topic, b"traced", keys="k"))

    def told() -> list[str]:
        every = cluster.read("RMQ_SYS_TRACE_TOPIC", 1)
        return [each.keys or "" for each in every if sent.message_id in (each.keys or "")]

    wait_until(lambda: told() == [f"{sent.message_id} k"], SECONDS, "the trace told of it")


# ----------------------------------------------------------------------------------------------- consuming


def pushed(cluster: Cluster, topic: str, count: int, **options: Any) -> list[kourou.ReceivedMessage]:
    """What a push consumer is given, once that is `count`."""
    on = {name: options.pop(name) for name in ("tags", "sql", "ordered") if name in options}
    found: list[kourou.ReceivedMessage] = []
    group = f"push-{time.monotonic_ns()}"
    with kourou.PushConsumer(group, cluster.name_server, start="earliest", **options) as consumer:

        @consumer.on(topic, **on)
        def take(message: kourou.ReceivedMessage) -> None:
            found.append(message)

        consumer.start()
        wait_until(lambda: len(found) >= count, SECONDS, f"{count} messages came")
    return found


def send_some(cluster: Cluster, topic: str, count: int = 20) -> None:
    with cluster.producer() as producer:
        for number in range(count):
            tags = "even" if number % 2 == 0 else "odd"
            message = kourou.Message(topic, b"%d" % number, tags=tags, properties={"number": str(number)})
            producer.send(message, key="one queue")


@scenario
def push_concurrent(cluster: Cluster, topic: str) -> None:
    send_some(cluster, topic)
    found = pushed(cluster, topic, 21)
    assert {each.body for each in found} == {b"first", *(b"%d" % number for number in range(20))}


@scenario
def push_ordered(cluster: Cluster, topic: str) -> None:
    send_some(cluster, topic)
    numbers = [each.body for each in pushed(cluster, topic, 21, ordered=True) if each.body != b"first"]
    assert numbers == [b"%d" % number for number in range(20)]


@scenario
def push_by_tag(cluster: Cluster, topic: str) -> None:
    send_some(cluster, topic)
    assert {each.tags for each in pushed(cluster, topic, 10, tags="odd")} == {"odd"}


@scenario
def push_by_sql(cluster: Cluster, topic: str) -> None:
    send_some(cluster, topic)
    found = pushed(cluster, topic, 5, sql="number >= 15")
    assert sorted(each.body for each in found) == [b"15", b"16", b"17", b"18", b"19"]


@scenario
def push_broadcast(cluster: Cluster, topic: str) -> None:
    send_some(cluster, topic, 5)
    assert len(pushed(cluster, topic, 6, broadcast=True)) == 6
    assert len(pushed(cluster, topic, 6, broadcast=True)) == 6


@scenario
def retry_then_dead_letter(cluster: Cluster, topic: str) -> None:
    group = f"failing-{time.monotonic_ns()}"
    times: list[int] = []
    with kourou.PushConsumer(group, cluster.name_server, start="earliest", retries=1) as consumer:

        @consumer.on(topic)
        def fail(message: kourou.ReceivedMessage) -> None:
            times.append(message.reconsume_times)
            raise kourou.RetryLater(kourou.DelayLevel(1))

        consumer.start()
        wait_until(lambda: times == [0, 1], SECONDS, "it came again")
        time.sleep(1.0)
    (dead,) = cluster.read(f"%DLQ%{group}", 1)
    assert dead.body == b"first"


@scenario
def two_members_share(cluster: Cluster, topic: str) -> None:
    seen: list[tuple[str, bytes]] = []
    lock = threading.Lock()

    def member(name: str) -> kourou.PushConsumer:
        consumer = kourou.PushConsumer("scenario-members", cluster.name_server, start="earliest")

        @consumer.on(topic)
        def take(message: kourou.ReceivedMessage) -> None:
            with lock:
                seen.append((name, message.body))

        consumer.start()
        return consumer

    with member("one") as one, member("two") as two:
        wait_until(
            lambda: bool(set(one.positions())) and bool(set(two.positions())), SECONDS, "both have queues"
        )
        wait_until(lambda: not set(one.positions()) & set(two.positions()), SECONDS, "none is shared")
        with cluster.producer() as producer:
            for number in range(40):
                producer.send(kourou.Message(topic, b"%d" % number))
        wait_until(lambda: len({body for _, body in seen}) == 41, SECONDS, "all came")
    assert {name for name, _ in seen} == {"one", "two"}


@scenario
def consumer_loop(cluster: Cluster, topic: str) -> None:
    async def main() -> list[bytes]:
        group = f"loop-{time.monotonic_ns()}"
        found: list[bytes] = []
        async with kourou.AsyncConsumer(group, topic, cluster.name_server, start="earliest") as messages:
            async with asyncio.timeout(SECONDS):
                async for message in messages:
                    async with message.process():
                        found.append(message.body)
                    if len(found) == 6:
                        break
        return found

    send_some(cluster, topic, 5)
    assert len(asyncio.run(main())) == 6


@scenario
def lite_pull(cluster: Cluster, topic: str) -> None:
    send_some(cluster, topic, 5)
    found: list[bytes] = []
    group = f"lite-{time.monotonic_ns()}"
    with kourou.LitePullConsumer(group, cluster.name_server, start="earliest") as consumer:
        consumer.subscribe(topic)
        deadline = time.monotonic() + SECONDS
        while len(found) < 6 and time.monotonic() < deadline:
            found += [each.body for each in consumer.poll()]
        consumer.commit()
    assert len(found) == 6


@scenario
def pull_and_commit(cluster: Cluster, topic: str) -> None:
    send_some(cluster, topic, 5)
    group = f"pull-{time.monotonic_ns()}"
    with kourou.PullConsumer(group, topic, cluster.name_server) as consumer:
        consumer.seek("earliest")
        found: list[bytes] = []
        while got := consumer.receive(timeout=1.0):
            found += [each.body for each in got]
        consumer.commit()
        ends = {queue: consumer.offset_of(queue, "latest") for queue in consumer.queues()}
    assert len(found) == 6
    with kourou.PullConsumer(group, topic, cluster.name_server) as again:
        wait_until(
            lambda: {queue: again.committed(queue) or 0 for queue in ends} == ends, SECONDS, "it is kept"
        )


@pytest.mark.parametrize("name", SCENARIOS)
def test_our_client_does_it(name: str, cluster: Cluster, topic: str) -> None:
    SCENARIOS[name](cluster, topic)
