"""Exactly once over two brokers: whichever of the drivers comes to the end, all brokers decide the same."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kourou.errors import ConfigError, MQError, Refused
from kourou.local.published import Published, make_topic
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.spark.access import ClusterAccess
from kourou.spark.cluster import Cluster
from kourou.spark.outgoing import Rows
from kourou.spark.sending import Sender
from kourou.spark.staging import Committer, StagedPart, Stager, Transaction, decision_of
from kourou.spark.writer import sink_options
from tests.kourou_process import Serving, free_pair, serving_broker, serving_name_server

TOPIC = "both"


class Pair:
    """A name server and two brokers that have a topic in common."""

    def __init__(self, folder: Path, name_server: str, brokers: contextlib.ExitStack) -> None:
        self._folder = folder
        self._brokers = brokers
        self.name_server = name_server
        self._ports = {"broker-a": free_pair(), "broker-b": free_pair()}
        self.running = {name: self._start(name) for name in self._ports}
        for port in self._ports.values():
            make_topic(f"127.0.0.1:{port}", TOPIC, 2)
        self.cluster = Cluster(ClusterAccess(name_server=name_server))

    def _start(self, name: str) -> Serving:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        settings = f"brokerName={name}\nnamesrvAddr={self.name_server}\nlistenPort={self._ports[name]}\n"
        return self._brokers.enter_context(serving_broker(folder, settings=settings))

    def kill(self, name: str) -> None:
        with self.away(name):
            pass

    @contextlib.contextmanager
    def away(self, name: str) -> Iterator[None]:
        """Killed, and started again in the end."""
        self.running[name].kill()
        try:
            yield
        finally:
            self.running[name] = self._start(name)

    def staged(self, rows: int, transaction: Transaction, stage: str) -> StagedPart:
        """An attempt to write the numbers up to `rows`."""
        bodies = pa.array([b"%d" % number for number in range(rows)], pa.binary())
        stager = Stager(self.cluster, transaction, stage, patience_seconds=20)
        outgoing = Rows(topic=TOPIC, identity=stage, now_ms=1)
        for start in range(0, rows, 100):
            stager.send(outgoing.take_in(pa.RecordBatch.from_pydict({"body": bodies.slice(start, 100)})))
        return stager.finish()

    def committer(self, transaction: Transaction) -> Committer:
        return Committer(self.cluster, transaction, 20)

    def written(self) -> Counter[bytes]:
        return Counter(message.body for message in Published(self.name_server).messages(TOPIC))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    with serving_name_server(folder) as name_server, contextlib.ExitStack() as brokers:
        pair = Pair(folder, name_server.address("listens on"), brokers)
        yield pair
        pair.cluster.close()


def test_all_brokers_commit_and_a_second_time_nothing_happens(pair: Pair) -> None:
    before = pair.written()
    transaction = Transaction("all", 0)
    part = pair.staged(1_000, transaction, "0.0")
    assert set(part.brokers) == {"broker-a", "broker-b"}
    assert pair.written() == before
    assert pair.committer(transaction).commit([part]) == 1_000
    pair.committer(transaction).commit([part])
    assert pair.written() - before == Counter(b"%d" % number for number in range(1_000))


def test_a_driver_that_died_between_two_brokers_is_brought_to_its_end(pair: Pair) -> None:
    before = pair.written()
    transaction = Transaction("between", 3)
    first = pair.staged(700, transaction, "0.0")
    pair.committer(transaction)._commit_at("broker-a", decision_of([first]))  # and then it died
    assert 0 < (pair.written() - before).total() < 700
    again = pair.staged(700, transaction, "0.1")  # the next driver runs the batch once more
    assert again.is_over
    assert pair.committer(transaction).commit([again]) == 700
    assert pair.written() - before == Counter(b"%d" % number for number in range(700))


def test_a_driver_that_does_not_know_yet_carries_out_what_was_decided(pair: Pair) -> None:
    before = pair.written()
    transaction = Transaction("unaware", 1)
    first = pair.staged(300, transaction, "0.0")
    second = pair.staged(400, transaction, "0.1")
    pair.committer(transaction)._commit_at("broker-b", decision_of([first]))
    assert pair.committer(transaction).commit([second]) == 300
    assert pair.written() - before == Counter(b"%d" % number for number in range(300))


def test_nothing_is_decided_when_one_broker_lacks_a_part(pair: Pair) -> None:
    before = pair.written()
    transaction = Transaction("lacking", 0)
    part = pair.staged(200, transaction, "0.0")
    chunks, messages = part.brokers["broker-b"]
    lying = StagedPart("0.0", part.brokers | {"broker-b": (chunks + 1, messages + 5)})
    with pytest.raises(Refused, match="is not committed"):
        pair.committer(transaction).commit([lying])
    assert pair.written() == before
    assert pair.committer(transaction).commit([part]) == 200


def test_a_broker_that_is_killed_and_comes_back_still_has_its_part(pair: Pair) -> None:
    before = pair.written()
    transaction = Transaction("killed", 0)
    part = pair.staged(500, transaction, "0.0")
    pair.kill("broker-a")
    assert pair.committer(transaction).commit([part]) == 500
    pair.kill("broker-b")
    pair.committer(transaction).commit([part])
    assert pair.written() - before == Counter(b"%d" % number for number in range(500))


def test_a_broker_killed_while_rows_are_staged_takes_each_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.spark.staging.CHUNK_BYTES", 4_096)
    before = pair.written()
    transaction = Transaction("in-the-middle", 0)
    with shooting(pair, "broker-b"):
        part = pair.staged(20_000, transaction, "0.0")
    assert part.brokers["broker-b"][0] > 50, "many chunks, so that some were on their way"
    assert pair.committer(transaction).commit([part]) == 20_000
    assert pair.written() - before == Counter(b"%d" % number for number in range(20_000))


def test_rows_sent_at_least_once_survive_a_kill_and_repeat_under_the_same_id(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.spark.sending.REQUEST_BYTES", 4_096)
    bodies = pa.array([b"at least %d" % number for number in range(20_000)], pa.binary())
    sender = Sender(pair.cluster, group="tests", patience_seconds=20)
    rows = Rows(topic=TOPIC, identity="at-least", now_ms=1)
    with shooting(pair, "broker-a"):
        for start in range(0, 20_000, 100):
            sender.send(rows.take_in(pa.RecordBatch.from_pydict({"body": bodies.slice(start, 100)})))
        sender.finish()
    assert sender.acknowledged == 20_000
    found = [
        each for each in Published(pair.name_server).messages(TOPIC) if each.body.startswith(b"at least")
    ]
    assert {message.body for message in found} == set(bodies.to_pylist())
    assert len({message.message_id for message in found}) == 20_000
    for queue in {(message.broker_name, message.queue_id) for message in found}:
        firsts = dict.fromkeys(
            int(each.body[9:]) for each in found if (each.broker_name, each.queue_id) == queue
        )
        assert list(firsts) == sorted(firsts), "a queue keeps the order of the rows"


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_broker_that_stays_away_is_waited_for_as_long_as_was_said(pair: Pair, delivery: str) -> None:
    options = {"namesrvAddr": pair.name_server, "topic": TOPIC, "sendTimeoutMs": "700"}
    patience = sink_options(options).patience_seconds
    to: Sender | Stager
    if delivery == "exactly-once":
        to = Stager(pair.cluster, Transaction("away", 0), "0.0", patience_seconds=patience)
    else:
        to = Sender(pair.cluster, group="tests", patience_seconds=patience)
    row = pa.RecordBatch.from_pydict(
        {
            "body": pa.array([b"never"], pa.binary()),
            "brokerName": pa.array(["broker-a"]),
            "queueId": pa.array([0], pa.int32()),
        }
    )
    pair.cluster.queues(TOPIC, fresh=True)

    def write() -> None:
        to.send(Rows(topic=TOPIC, identity="away", now_ms=1).take_in(row))
        to.finish()

    with pair.away("broker-a"), pytest.raises(MQError, match=r"0\.7 s: option sendTimeoutMs") as caught:
        write()
    assert f"topic '{TOPIC}'" in str(caught.value)
    assert "broker-a" in str(caught.value)


@contextlib.contextmanager
def shooting(pair: Pair, name: str) -> Iterator[None]:
    """Kills a broker a moment after the beginning, and starts it again."""

    def shoot() -> None:
        time.sleep(0.15)
        pair.kill(name)

    shooter = threading.Thread(target=shoot)
    shooter.start()
    try:
        yield
    finally:
        shooter.join()


def test_what_is_aborted_is_gone_everywhere(pair: Pair) -> None:
    transaction = Transaction("aborted", 0)
    part = pair.staged(100, transaction, "0.0")
    pair.committer(transaction).abort()
    with pytest.raises(MQError):
        pair.committer(transaction).commit([part])


def test_a_broker_of_another_kind_cannot_write_exactly_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = pair.cluster.client.call

    def as_apache_answers(address: str, command: Command, timeout: float = 3.0) -> Command:
        if command.code > RequestCode.KOUROU_CAPABILITIES - 1:
            return command.reply(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        return call(address, command, timeout)

    monkeypatch.setattr(pair.cluster.client, "call", as_apache_answers)
    transaction = Transaction("foreign", 0)
    with pytest.raises(ConfigError, match="is not a Kourou broker"):
        pair.committer(transaction).check_capable()
    with pytest.raises(ConfigError, match="delivery=at-least-once"):
        pair.staged(10, transaction, "0.0")
