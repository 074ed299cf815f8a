"""Fraud alerts: a card that spends too much within ten minutes, told to a topic, each alert once.

    topic card-payments ──▶ sum per card in sliding windows ──▶ above the limit ──▶ topic fraud-alerts ──▶ a
    consumer

The alerts go back through `format("rocketmq")` with `delivery=exactly-once`: a batch that is done again after
a crash adds nothing. Alerts of one card have one sharding key, and so are read in their order.

    python examples/fraud_alerts.py localhost:9876
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import kourou
import kourou.spark

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
LIMIT = 1000.0
PAYMENTS = [
    ("card-1", 40.0, 0),
    ("card-2", 700.0, 1),
    ("card-1", 55.0, 2),
    ("card-2", 450.0, 4),  # 1150 within ten minutes
    ("card-3", 900.0, 5),
    ("card-3", 900.0, 28),  # the same, but far apart
    ("card-1", 10.0, 60),  # time goes on, and windows close
]


@dataclass(frozen=True)
class Alert:
    card: str
    spent: float
    tags: str | None


def send_payments(name_server: str, topic: str) -> None:
    with kourou.Producer("terminals", name_server) as producer:
        for card, amount, minute in PAYMENTS:
            payment = {"card": card, "amount": amount, "at": (NOON + timedelta(minutes=minute)).isoformat()}
            producer.send(kourou.Message(topic, json.dumps(payment).encode(), keys=card), key=card)


def write_alerts(spark: SparkSession, name_server: str, payments: str, alerts: str, folder: str) -> None:
    """Read what is new, write an alert for every card that is above the limit in a window that is over."""
    spent = (
        spark.readStream.format("rocketmq")
        .option("namesrvAddr", name_server)
        .option("subscribe", payments)
        .option("startingOffsets", "earliest")
        .option("groupId", "fraud")
        .schema("body binary")
        .load()
        .select(
            f.from_json(f.col("body").cast("string"), "card string, amount double, at timestamp").alias("p")
        )
        .select("p.*")
        .withWatermark("at", "1 minute")
        .groupBy("card", f.window("at", "10 minutes", "10 minutes").alias("window"))
        .agg(f.sum("amount").alias("spent"))
        .where(f.col("spent") > LIMIT)
    )
    query = (
        spent.select(
            f.to_json(f.struct("card", "spent", f.col("window.start").alias("since")))
            .cast("binary")
            .alias("body"),
            f.lit("fraud").alias("tags"),
            f.col("card").alias("keys"),
            f.col("card").alias("shardingKey"),
        )
        .writeStream.format("rocketmq")
        .option("namesrvAddr", name_server)
        .option("topic", alerts)
        .option("delivery", "exactly-once")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def read_alerts(name_server: str, topic: str) -> list[Alert]:
    """As any consumer would."""
    found = []
    with kourou.PullConsumer("guards", topic, name_server) as consumer:
        while received := consumer.receive(32, timeout=2):
            for message in received:
                told = json.loads(message.body)
                found.append(Alert(told["card"], told["spent"], message.tags))
            consumer.commit()
    return found


def run(
    spark: SparkSession,
    name_server: str,
    folder: str,
    payments: str = "card-payments",
    alerts: str = "fraud-alerts",
) -> list[Alert]:
    with kourou.Producer("guards", name_server) as producer:
        producer.send(kourou.Message(alerts, json.dumps({"card": "test", "spent": 0}).encode(), tags="test"))
    send_payments(name_server, payments)
    write_alerts(spark, name_server, payments, alerts, folder)
    return [alert for alert in read_alerts(name_server, alerts) if alert.tags == "fraud"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for alert in run(kourou.spark.session("fraud"), sys.argv[1], folder):
            print(f"{alert.card} spent {alert.spent:.2f} within ten minutes")
