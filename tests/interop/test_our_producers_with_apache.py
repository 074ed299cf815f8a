"""Our producers against an all-Apache cluster: everything they can do."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kourou
from kourou.protocol.java_hash import java_hash
from tests.interop import apache
from tests.interop.round_trip import java_consume
from tests.system.client_forms import Form, forms

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(params=["blocking", "async"])
def form(request: pytest.FixtureRequest) -> Iterator[Form]:
    with forms() as both:
        yield both[request.param]


@contextmanager
def cluster(version: str, folder: Path, **settings: Any) -> Iterator[str]:
    """The address of a name server with one broker."""
    with (
        apache.name_server(version, folder) as names,
        apache.broker(version, folder, names.address, **settings),
    ):
        yield names.address


def received(name_server: str, topic: str, count: int, seconds: float = 30.0) -> list[kourou.ReceivedMessage]:
    """What is in a topic, read by a group of its own; for a count of 0, what came in 3 s."""
    found: list[kourou.ReceivedMessage] = []
    deadline = time.monotonic() + (seconds if count else 3.0)
    with kourou.PullConsumer(f"readers-{time.monotonic_ns()}", topic, name_server) as consumer:
        consumer.seek("earliest")
        while time.monotonic() < deadline and not (count and len(found) >= count):
            found += consumer.receive(timeout=0.5)
    return found


def bodies(name_server: str, topic: str, count: int) -> list[bytes]:
    return sorted(message.body for message in received(name_server, topic, count))


def test_transactions_are_committed_rolled_back_and_asked_about(
    form: Form, version: str, tmp_path: Path
) -> None:
    asked: list[str] = []

    def check(message: kourou.ReceivedMessage) -> kourou.TransactionState:
        asked.append(message.keys or "")
        return kourou.TransactionState.ROLLBACK if message.keys == "2" else kourou.TransactionState.COMMIT

    settings = {"transactionCheckInterval": 1000, "transactionTimeOut": 1000}
    with cluster(version, tmp_path, **settings) as name_server:
        with form.producer("g", name_server=name_server, send_timeout=10.0) as producer:
            producer.send(kourou.Message("Tx", b"plain"))
        with form.transactions("tx", check, name_server=name_server, send_timeout=10.0) as sender:
            with form.inside(sender.transaction(kourou.Message("Tx", b"committed", keys="1"))):
                pass
            rolled_back = sender.transaction(kourou.Message("Tx", b"rolled back", keys="2"))
            with pytest.raises(ValueError, match="no money"), form.inside(rolled_back):
                raise ValueError("no money")
            with form.inside(sender.transaction(kourou.Message("Tx", b"asked for", keys="3"))) as unknown:
                unknown.leave_unknown()
            form.until(lambda: "3" in asked, 60)
            form.until(lambda: b"asked for" in bodies(name_server, "Tx", 0), 60)
        found = received(name_server, "Tx", 0)
    # 5.x notes the end of a transaction some seconds later, and may ask about one that has ended meanwhile.
    assert {message.body for message in found} == {b"asked for", b"committed", b"plain"}
    assert {message.message_id for message in found if message.keys == "3"} == {unknown.message_id}


def test_delays_are_kept_and_what_4_9_cannot_do_is_said(form: Form, version: str, tmp_path: Path) -> None:
    with (
        cluster(version, tmp_path, recallMessageEnable="true") as name_server,
        form.producer("g", name_server=name_server, send_timeout=10.0) as producer,
    ):
        producer.send(kourou.Message("Later", b"now"))
        began = time.time()
        producer.send(kourou.Message("Later", b"level"), delay=kourou.DelayLevel(2))
        if version.startswith("4."):
            with pytest.raises(kourou.ConfigError, match="knows delay levels only"):
                producer.send(kourou.Message("Later", b"seconds"), delay=4)
            assert bodies(name_server, "Later", 2) == [b"level", b"now"]
        else:
            producer.send(kourou.Message("Later", b"seconds"), delay=4)
            regretted = producer.send(kourou.Message("Later", b"regretted"), delay=6)
            assert regretted.recall_handle
            assert producer.recall("Later", regretted) == regretted.message_id
            assert bodies(name_server, "Later", 3) == [b"level", b"now", b"seconds"]
            time.sleep(max(0.0, began + 9 - time.time()))
            assert bodies(name_server, "Later", 0) == [b"level", b"now", b"seconds"]
        assert time.time() - began >= 4


def test_keys_batches_and_sends_nobody_waits_for(form: Form, version: str, tmp_path: Path) -> None:
    told: list[Any] = []
    with (
        cluster(version, tmp_path) as name_server,
        form.producer("g", name_server=name_server, send_timeout=10.0, message_bytes_max=20_000) as producer,
    ):
        producer.send(kourou.Message("Many", b"first"))
        queues = len(producer.queues("Many"))
        for number in range(10):
            sent = producer.send(kourou.Message("Many", b"ordered %d" % number), key="customer-4711")
            assert sent.queue_id == abs(java_hash("customer-4711")) % queues
        results = producer.send_all(kourou.Message("Many", b"batch %03d" % n + bytes(900)) for n in range(50))
        assert len(results) == 3
        for number in range(20):
            producer.send_soon(kourou.Message("Many", b"soon %d" % number), told.append)
        form.until(lambda: len(told) == 20)
        assert all(isinstance(result, kourou.SendResult) for result in told)
        found = received(name_server, "Many", 81)
    assert len({message.message_id for message in found}) == 81
    ordered = [message for message in found if message.body.startswith(b"ordered")]
    assert [message.body for message in ordered] == [b"ordered %d" % number for number in range(10)]


def test_a_request_is_answered_through_apache(form: Form, version: str, tmp_path: Path) -> None:
    over = threading.Event()

    def serve(name_server: str) -> None:
        with (
            kourou.PullConsumer("server", "Questions", name_server) as consumer,
            kourou.Producer("server", name_server, send_timeout=10.0) as replier,
        ):
            while not over.is_set():
                for message in consumer.receive(timeout=0.5):
                    if message.body != b"first":
                        replier.send(kourou.reply_to(message, message.body.upper()))

    with (
        cluster(version, tmp_path) as name_server,
        form.producer("g", name_server=name_server, send_timeout=10.0) as producer,
    ):
        producer.send(kourou.Message("Questions", b"first"))
        server = threading.Thread(target=serve, args=(name_server,))
        server.start()
        try:
            assert producer.request(kourou.Message("Questions", b"one"), 20.0).body == b"ONE"
            assert producer.request(kourou.Message("Questions", b"x" * 10_000), 20.0).body == b"X" * 10_000
        finally:
            over.set()
            server.join()
        with pytest.raises(kourou.TimedOut, match="nobody replied"):
            producer.request(kourou.Message("Questions", b"anybody?"), 1.0)


def test_messages_are_found_at_apache_by_key_and_id(form: Form, version: str, tmp_path: Path) -> None:
    with (
        cluster(version, tmp_path) as name_server,
        form.producer("g", name_server=name_server, send_timeout=10.0) as producer,
    ):
        sent = producer.send(kourou.Message("Found", b"wanted", keys=["order-42", "table-7"]))
        deadline = time.monotonic() + 10
        while not (found := producer.query("Found", "table-7")) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert [message.body for message in found] == [b"wanted"]
        assert producer.view("Found", sent.message_id).offset_id == sent.offset_id
        assert producer.view("Found", sent.offset_id).message_id == sent.message_id
        with pytest.raises(kourou.NotFound):
            producer.view("Found", "7F000001" + "0" * 24)


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
def test_java_reads_what_we_compress(version: str, tmp_path: Path, compression: Any) -> None:
    body = "one espresso, please; " * 1000
    with cluster(version, tmp_path) as name_server:
        with kourou.Producer("g", name_server, send_timeout=10.0, compression=compression) as producer:
            producer.send(kourou.Message("Small", body.encode()))
        (line,) = java_consume(version, tmp_path, name_server, "Small", 1)
    assert line["body"] == body


PLAIN_ACL = """
accounts:
- accessKey: kourou-user
  secretKey: kourou-secret
  whiteRemoteAddress:
  admin: true
"""


def test_a_signed_request_is_accepted_where_others_are_refused(form: Form, tmp_path: Path) -> None:
    version = "4.9.7"
    (tmp_path / "apache-a-home" / "conf").mkdir(parents=True)
    (tmp_path / "apache-a-home" / "conf" / "plain_acl.yml").write_text(PLAIN_ACL)
    with cluster(version, tmp_path, aclEnable="true") as name_server:
        access = kourou.Credentials("kourou-user", "kourou-secret")
        with form.producer("g", name_server=name_server, send_timeout=10.0, access=access) as producer:
            sent = producer.send(kourou.Message("Signed", "één".encode(), properties={"colour": "röd"}))
            assert sent.status is kourou.SendStatus.SEND_OK
            producer.send_batch([kourou.Message("Signed", b"%d" % n) for n in range(3)])
        wrong = kourou.Credentials("kourou-user", "a guess")
        for refused in (wrong, None):
            with (
                form.producer("g", name_server=name_server, access=refused, retries=0) as producer,
                pytest.raises(kourou.Refused),
            ):
                producer.send(kourou.Message("Signed", b"x"))
