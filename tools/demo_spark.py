"""The part of `make demo` that runs on Spark: topics are tables.

payments ──▶ Parquet, each once ──▶ SQL ──▶ alerts back to a topic ──▶ a consumer
                  └──▶ a page with figures and a picture
"""

from __future__ import annotations

import importlib.util
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import kourou
from tools.demo_kinds import DemoFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAYMENTS, ALERTS = "card-payments", "fraud-alerts"
MESSAGES, CARDS, LIMIT = 2_000, 50, 950.0

Step = Callable[[str, str], None]


def with_spark(name_server: str, folder: Path, step: Step) -> None:
    if importlib.util.find_spec("pyspark") is None:
        step("Spark", "left out: pip install 'kourou[spark]' brings it")
        return
    from kourou.spark.pipelines.quiet import quiet_session

    folder.mkdir(parents=True, exist_ok=True)
    suspicious = produce(name_server)
    step("payments", f"{MESSAGES} of them in topic {PAYMENTS}, {suspicious} above {LIMIT:.0f}")
    began = time.monotonic()
    settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}
    with quiet_session("demo", master="local[2]", settings=settings) as spark:
        step(
            "kourou.spark.session()",
            f"Spark {spark.version} in {time.monotonic() - began:.1f} s, without a jar",
        )
        to_parquet(spark, name_server, folder / "lake", step)
        by_sql(spark, folder / "lake", step)
        alerts_to_a_topic(spark, name_server, folder / "checkpoint", suspicious, step)
        a_page_with_a_picture(spark, name_server, folder / "payments.html", step)


def produce(name_server: str) -> int:
    """Payments of some cards; returns how many are above the limit."""
    chance, suspicious = random.Random(7), 0
    with kourou.Producer("terminals", name_server) as producer:
        messages = []
        for _ in range(MESSAGES):
            amount = round(chance.random() ** 3 * 1000, 2)
            suspicious += amount > LIMIT
            card = f"card-{chance.randrange(CARDS)}"
            body = json.dumps({"card": card, "amount": amount}).encode()
            messages.append(kourou.Message(PAYMENTS, body, keys=card, tags="payment"))
        producer.send(kourou.Message(ALERTS, b"{}", tags="test"))
        producer.send_all(messages)
    return suspicious


def to_parquet(spark: SparkSession, name_server: str, lake: Path, step: Step) -> None:
    from kourou.spark.pipelines.archive import archive

    done = archive(spark, name_server, str(lake), topics=[PAYMENTS])
    again = archive(spark, name_server, str(lake), topics=[PAYMENTS])
    if (done.rows, again.rows) != (MESSAGES, 0):
        raise DemoFailed(f"{MESSAGES} payments were sent, {done.rows} and then {again.rows} archived")
    step("archive to Parquet", f"{done.rows} messages in {done.seconds:.1f} s; a second run adds none")


def by_sql(spark: SparkSession, lake: Path, step: Step) -> None:
    from kourou.spark.pipelines.lake_frames import read_lake

    read_lake(spark, str(lake)).createOrReplaceTempView("messages")
    top = spark.sql(
        """
        select payment.card, count(*) as payments, round(sum(payment.amount), 2) as spent
        from (select from_json(cast(body as string), 'card string, amount double') as payment from messages)
        group by 1 order by 3 desc limit 1
        """
    ).collect()[0]
    step("SQL", f"who spent most? {top.card}: {top.spent:,.2f} in {top.payments} payments")


def alerts_to_a_topic(
    spark: SparkSession, name_server: str, checkpoint: Path, expected: int, step: Step
) -> None:
    from pyspark.sql import functions as f

    payments = (
        spark.readStream.format("rocketmq")
        .options(namesrvAddr=name_server, subscribe=PAYMENTS, startingOffsets="earliest", groupId="guards")
        .schema("body binary, keys string")
        .load()
        .withColumn("amount", f.get_json_object(f.col("body").cast("string"), "$.amount").cast("double"))
    )
    query = (
        payments.where(f.col("amount") > LIMIT)
        .select("body", "keys", f.lit("fraud").alias("tags"))
        .writeStream.format("rocketmq")
        .options(namesrvAddr=name_server, topic=ALERTS, delivery="exactly-once")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    received = 0
    with kourou.PullConsumer("guards-phone", ALERTS, name_server, tags="fraud") as consumer:
        while received < expected and (messages := consumer.receive(256, timeout=5.0)):
            received += len(messages)
        received += len(consumer.receive(256, timeout=0.2))
    if received != expected:
        raise DemoFailed(f"{expected} alerts were due, and {received} came")
    step("alerts back to a topic", f"{received} in {ALERTS}, exactly once, read by a plain consumer")


def a_page_with_a_picture(spark: SparkSession, name_server: str, page: Path, step: Step) -> None:
    from kourou.spark.pipelines.report import as_html
    from kourou.spark.pipelines.stats import stats

    found = stats(spark, name_server, topics=[PAYMENTS, ALERTS], window="1 second")
    page.write_text(as_html(found.report(with_pictures=True)))
    step(
        "a page with a picture",
        f"{page}, {page.stat().st_size / 1e3:.0f} kB: volume, sizes, tags, hot queues",
    )
