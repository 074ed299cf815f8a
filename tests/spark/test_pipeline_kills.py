"""An archive under fire: driver, executors, Python workers and broker are killed at random, and every message
is there once.

`KILLS=100 make chaos` kills more often. `SEED=…` repeats an order of kills.
"""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kourou
from kourou.local.published import make_topic
from kourou.spark.pipelines.archive import archive
from kourou.spark.pipelines.audit import audit_lake
from kourou.spark.pipelines.lake_frames import read_lake
from tests.kourou_process import free_pair
from tests.spark.shooting import (
    KILLS,
    PATIENCE_SECONDS,
    SEED,
    TIMEOUT_SECONDS,
    Program,
    broker_on,
    victims,
)

USUAL = ("worker", "broker", "driver", "worker", "broker")
QUEUES, ROWS_A_BATCH, MORE = 3, 300, 3000


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_whatever_is_killed_each_message_is_archived_once(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    master, to_kill = victims(USUAL, chance)
    ports, lake, topic = (free_pair(), free_pair()), tmp_path / "lake", "shot-at"
    name_server = f"127.0.0.1:{ports[0]}"
    with contextlib.ExitStack() as brokers:
        running = brokers.enter_context(broker_on(tmp_path, ports))
        make_topic(f"127.0.0.1:{ports[1]}", topic, QUEUES)
        sent, unsure = send(name_server, topic, 0)
        arguments = (master, name_server, str(lake), topic, str(ROWS_A_BATCH))
        archiver = Program("tests.spark.archive_program", *arguments, done="archived")
        try:
            for victim in to_kill:
                archiver.wait_for_a_batch()
                time.sleep(chance.random() * 0.4)  # anywhere in the batch that follows
                if victim == "broker":
                    running.kill()
                    running = brokers.enter_context(broker_on(tmp_path, ports))
                else:
                    archiver.kill(victim, chance)
                sent, more = send(name_server, topic, sent)
                unsure += more
            archiver.wait_for_a_batch()
        finally:
            archiver.kill_all()
        archive(spark, name_server, str(lake), topics=[topic])
        audited = audit_lake(spark, str(lake), name_server)
    assert audited.is_ok, f"seed {SEED}: {audited.report().tables[0].rows}"
    assert sum(queue.behind for queue in audited.queues) == 0
    counts = read_lake(spark, str(lake)).selectExpr("count(*)", "count(distinct body)").collect()[0]
    stored = sum(queue.read for queue in audited.queues)
    assert tuple(counts) == (stored, sent), f"seed {SEED}"
    assert sent <= stored <= sent + unsure, f"seed {SEED}: {unsure} were sent twice"
    print(f"seed {SEED}: {KILLS} kills, {archiver.batches()} commits, {sent} messages, each there once")


def send(name_server: str, topic: str, start: int) -> tuple[int, int]:
    """So many more messages, each different; returns how many there are, and how many may be there twice: a
    broker that has only just started may store what its sender gave up waiting for."""
    unsure = 0
    bodies = (b"%d" % number for number in range(start, start + MORE))
    with kourou.Producer("shooting", name_server, retries=0) as producer:
        for number in range(QUEUES):
            batch = [kourou.Message(topic, next(bodies)) for _ in range(MORE // QUEUES)]
            deadline = time.monotonic() + PATIENCE_SECONDS
            while True:
                try:
                    queue = next(each for each in producer.queues(topic) if each.queue_id == number)
                    producer.send_all(batch, queue=queue)
                    break
                except (kourou.Unreachable, kourou.NotFound) as error:  # it registers in a moment
                    if isinstance(error, kourou.TimedOut | kourou.ConnectionLost):
                        unsure += len(batch)
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)
    return start + MORE, unsure
