"""`redrive`, against a real broker: chosen dead letters go back once, also when a run dies in the middle."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kourou
import kourou.spark.pipelines.redrive as redriving
from kourou.errors import ConfigError
from kourou.local.published import make_topic
from kourou.spark.pipelines.reach import Reach
from kourou.spark.pipelines.redrive import MARK, AuditTable, redrive

pytestmark = pytest.mark.timeout(600)

LETTERS = 30


@pytest.fixture(scope="module")
def dead(broker: kourou.LocalBroker) -> tuple[str, str]:
    """A group with dead letters, and the topic they came from."""
    topic, group = "billed", "biller"
    make_topic(broker.address, topic, 2)
    make_topic(broker.address, f"%DLQ%{group}", 1)
    with kourou.Producer("dead", broker.name_server) as producer:
        for number in range(LETTERS):
            properties = {"RETRY_TOPIC": topic, "own": f"{number}", "RECONSUME_TIME": "3", "DELAY": "5"}
            producer.send(
                kourou.Message(
                    f"%DLQ%{group}",
                    b"%d" % number,
                    tags="late" if number % 3 == 0 else "wrong",
                    keys=f"k{number}",
                    properties={name: value for name, value in properties.items() if name != "DELAY"},
                )
            )
    return topic, group


def redriven(name_server: str, topic: str) -> list[kourou.ReceivedMessage]:
    with kourou.PullConsumer("look-at-redriven", topic, name_server) as consumer:
        found = []
        while received := consumer.receive(100, timeout=1):
            found += received
        return [each for each in found if MARK in each.properties]


def test_a_dry_run_counts_and_sends_nothing(
    spark: SparkSession, broker: kourou.LocalBroker, dead: tuple[str, str], tmp_path: Path
) -> None:
    topic, group = dead
    planned = redrive(
        spark, broker.name_server, group, str(tmp_path / "audit"), where="tags = 'late'", dry_run=True
    )
    assert (planned.candidates, planned.sent, planned.by_topic) == (10, 10, {topic: 10})
    assert planned.report().facts["would_be_sent"] == 10
    assert redriven(broker.name_server, topic) == []
    with pytest.raises(ConfigError, match="cannot be used"):
        redrive(
            spark,
            broker.name_server,
            group,
            str(tmp_path / "audit"),
            where="no_such_column = 1",
            dry_run=True,
        )


def test_each_chosen_letter_goes_back_once_however_often_and_however_it_is_asked(
    spark: SparkSession,
    broker: kourou.LocalBroker,
    dead: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, group = dead
    audit = str(tmp_path / "audit")
    first = redrive(spark, broker.name_server, group, audit, where="tags = 'late'", rate=200)
    assert (first.candidates, first.sent, first.before) == (10, 10, 0)
    assert redrive(spark, broker.name_server, group, audit, where="tags = 'late'").sent == 0

    # Now a run whose task dies after some messages: what it has sent is found and written down first.
    die_after = tmp_path / "die-after"
    die_after.write_text("8")
    monkeypatch.setattr(redriving, "sender", _dying_sender(str(die_after)))
    second = redrive(spark, broker.name_server, group, audit, rate=200)
    assert second.before == 10
    assert second.sent == LETTERS - 10
    assert not die_after.exists(), "the task was killed"

    messages = redriven(broker.name_server, topic)
    assert sorted(int(message.body) for message in messages) == list(range(LETTERS))
    assert {message.properties["own"] for message in messages} == {str(number) for number in range(LETTERS)}
    assert all("RETRY_TOPIC" not in message.properties for message in messages)
    assert {message.keys for message in messages} == {f"k{number}" for number in range(LETTERS)}
    rows = AuditTable(audit).frame(spark).collect()
    assert len({row.place for row in rows}) == len(rows) == LETTERS
    assert {row.how for row in rows} == {"sent", "found after a crash"}


def test_a_run_whose_driver_died_is_settled_by_the_next(
    spark: SparkSession, broker: kourou.LocalBroker, dead: tuple[str, str], tmp_path: Path
) -> None:
    _, group = dead
    make_topic(broker.address, "other-billed", 1)
    table = AuditTable(str(tmp_path / "audit"))
    with table.writing():
        ends = redriving._ends(Reach(broker.name_server), ["other-billed"])
        table.begin(group, "true", ends)
        with kourou.Producer("died", broker.name_server) as producer:
            place = f"%DLQ%{group}/kourou/0/4"
            producer.send(kourou.Message("other-billed", b"4", properties={MARK: place}))
    done = redrive(spark, broker.name_server, group, table.folder, into="other-billed", limit=7)
    assert (done.found, done.sent) == (1, 7)
    messages = redriven(broker.name_server, "other-billed")
    assert len({message.properties[MARK] for message in messages}) == len(messages) == 8


def test_the_rate_is_kept(
    spark: SparkSession, broker: kourou.LocalBroker, dead: tuple[str, str], tmp_path: Path
) -> None:
    _, group = dead
    make_topic(broker.address, "slowly-billed", 1)
    done = redrive(
        spark, broker.name_server, group, str(tmp_path / "audit"), into="slowly-billed", rate=20, limit=10
    )
    assert done.sent == 10
    times = [message.stored_at_ms for message in redriven(broker.name_server, "slowly-billed")]
    assert max(times) - min(times) >= 9 * 1000 / 20 - 100
    with pytest.raises(ConfigError, match="sends nothing"):
        redrive(spark, broker.name_server, group, str(tmp_path / "audit"), rate=0)


def _dying_sender(path: str):  # type: ignore[no-untyped-def]
    """As the real one, but the first task that has sent as many messages as the file says is killed."""
    real = redriving.sender

    def sender(reach, rate, run):  # type: ignore[no-untyped-def]
        send = real(reach, rate, run)

        def dying(batches):  # type: ignore[no-untyped-def]
            import pyarrow as pa

            def split():  # type: ignore[no-untyped-def]
                for batch in batches:
                    for at in range(batch.num_rows):
                        yield pa.RecordBatch.from_arrays(batch.slice(at, 1).columns, schema=batch.schema)

            for number, sent in enumerate(send(split()), 1):  # type: ignore[no-untyped-call]
                if os.path.exists(path) and number >= int(Path(path).read_text()):
                    os.remove(path)
                    os.kill(os.getpid(), signal.SIGKILL)
                yield sent

        return dying

    return sender
